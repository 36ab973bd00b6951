"""One batch of journal entries into PostgreSQL: rows and the journal's new position in one transaction.

That makes it exactly once: a batch that committed has moved the position, and the position is moved only from where
the batch began. The unique key of the table is a safety net below it (a journal restored from a copy, say).
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import asyncpg

from gateway.database.database import Connection, Database, rows_touched
from gateway.database.statements import load_statements
from gateway.metering.record import ARRIVED, COLUMNS, arrived_us

log = logging.getLogger("gateway.metering")

#: What COPY wants before the first row and after the last.
_COPY_HEAD = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_COPY_END = b"\xff\xff"

_SQL = load_statements("metering")
#: A record's month gets a partition when it is at most so far from now; records of other months share one.
MONTHS_BACK = 13
MONTHS_AHEAD = 2
_LAST = datetime(9999, 12, 31, tzinfo=UTC)


class PositionMoved(Exception):
    """The journal's position in the database is not where the batch begins: read it again."""


@dataclass(frozen=True)
class Batch:
    """Rows ready for COPY, and the piece of a journal that they are."""

    journal: str
    #: Positions before and after.
    start: int
    stop: int
    #: Records as bytes, which are rows of COPY.
    rows: list[bytes]

    def months(self) -> set[tuple[int, int]]:
        """(year, month) of the arrivals, UTC."""
        found: set[tuple[int, int]] = set()
        first, after = b"", b""
        for row in self.rows:
            if not first <= row[ARRIVED] < after:
                month, first, after = _month_around(row)
                found.add(month)
        return found


class Ingest:
    """See the module."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._months: set[tuple[int, int]] = set()
        #: Records that were in the database already; a metric.
        self.duplicates = 0

    async def position(self, journal: str, first: int) -> int:
        """Where the database is in a journal, which begins at `first` when it is new. Raises Unavailable."""
        await self._database.execute(_SQL["begin_journal"], journal, first)
        position: int = await self._database.fetchval(_SQL["select_watermark"], journal)
        return position

    async def forget(self, journal: str) -> None:
        """The journal's file is gone, and so its position may. Raises Unavailable."""
        await self._database.execute(_SQL["forget_journal"], journal)

    async def store(self, batch: Batch, now: float) -> int:
        """Bring a batch in; gives the number of new rows. Raises Unavailable, PositionMoved."""
        await self._ensure_months(batch.months(), now)
        data = b"".join((_COPY_HEAD, *batch.rows, _COPY_END))
        try:
            async with self._database.transaction() as connection:
                await _advance(connection, batch)
                if batch.rows:
                    await _copy(connection, "metering", data)
                await self._before_commit()
            return len(batch.rows)
        except asyncpg.UniqueViolationError:
            log.warning("a batch of %d metering records holds some that are stored already", len(batch.rows))
        async with self._database.transaction() as connection:
            await _advance(connection, batch)
            await connection.execute(_SQL["make_staging"])
            await _copy(connection, "metering_staging", data)
            stored = rows_touched(await connection.execute(_SQL["insert_staged"]))
            await self._before_commit()
        self.duplicates += len(batch.rows) - stored
        return stored

    async def prepare_months(self, now: float) -> None:
        """Make the partitions of this month and the next ones. Raises Unavailable."""
        await self._ensure_months(coming_months(now), now)

    async def _ensure_months(self, months: Iterable[tuple[int, int]], now: float) -> None:
        for month in months:
            if month in self._months or not _near(month, now):
                continue
            try:
                await self._database.fetchval(_SQL["make_month"], datetime(*month, 2, tzinfo=UTC))
            except asyncpg.CheckViolationError:
                # Records of that month are in the default partition already; they are well where they are.
                log.warning("no partition of its own for the metering records of %04d-%02d", *month)
            self._months.add(month)

    async def _before_commit(self) -> None:
        """The moment between COPY and COMMIT; tests break in here."""


async def _advance(connection: Connection, batch: Batch) -> None:
    tag = await connection.execute(_SQL["advance_watermark"], batch.journal, batch.start, batch.stop)
    if rows_touched(tag) != 1:
        raise PositionMoved(batch.journal)


async def _copy(connection: Connection, table: str, data: bytes) -> None:
    await connection.copy_to_table(table, source=_once(data), columns=COLUMNS, format="binary")


async def _once(data: bytes) -> AsyncIterator[bytes]:
    yield data


def coming_months(now: float) -> list[tuple[int, int]]:
    """This month and those that partitions are made ahead for."""
    year, month = month_of(int(now * 1e6))
    counted = [year * 12 + month - 1 + ahead for ahead in range(MONTHS_AHEAD + 1)]
    return [(count // 12, count % 12 + 1) for count in counted]


def month_of(arrived_us: int) -> tuple[int, int]:
    """(year, month) of a time, UTC; clocks that are far off give the nearest year there is."""
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=arrived_us)
    except OverflowError:
        return (9999, 12)
    return moment.year, moment.month


def _month_around(row: bytes) -> tuple[tuple[int, int], bytes, bytes]:
    """The month of a row's arrival, that arrival, and the start of the next month, both as a row holds them."""
    at_us = arrived_us(row)
    year, month = month_of(at_us)
    following = datetime(year + month // 12, month % 12 + 1, 1, tzinfo=UTC) if year < 9999 else _LAST
    arrived = row[ARRIVED]
    ahead_us = int(following.timestamp()) * 1_000_000 - at_us
    return (year, month), arrived, (int.from_bytes(arrived, "big") + ahead_us).to_bytes(8, "big")


def _near(month: tuple[int, int], now: float) -> bool:
    year, of_year = month_of(int(now * 1e6))
    distance = month[0] * 12 + month[1] - (year * 12 + of_year)
    return -MONTHS_BACK <= distance <= MONTHS_AHEAD
