"""One batch of journal entries into PostgreSQL: rows and the journal's new position in one transaction.

That makes it exactly once: a batch that committed has moved the position, and the position is moved only from where
the batch began. The unique key of the table is a safety net below it (a journal restored from a copy, say).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import asyncpg

from gateway.database.database import Connection, Database, rows_touched
from gateway.database.statements import load_statements
from gateway.metering.record import ARRIVED, COLUMNS, arrived_us
from gateway.metering.segments import Entries

log = logging.getLogger("gateway.metering")

#: What COPY wants before the first row and after the last.
_COPY_HEAD = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_COPY_END = b"\xff\xff"

_SQL = load_statements("metering")
#: A record's month gets a partition when it is at most so far from now; records of other months share one.
MONTHS_BACK = 13
MONTHS_AHEAD = 2
_LAST = datetime(9999, 12, 31, tzinfo=UTC)


#: Reads the entries from a position on, a small piece of them.
Read = Callable[[int], Entries]


class PositionMoved(Exception):
    """The journal's position in the database is not where the batch begins: read it again."""


class Stored(NamedTuple):
    """A batch that was committed: up to which position, its records, how many of them were new, and how the journal
    goes on there (see `Entries.end`)."""

    position: int
    records: int
    new: int
    end: str


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

    async def store(self, journal: str, position: int, read: Read, records_max: int, now: float) -> Stored:
        """Bring in a batch that begins at `position`. Raises Unavailable, PositionMoved, OSError from reading.

        The pieces go to the server as they are read, so reading and storing overlap and little is held in memory.
        """
        first = read(position)
        await self._ensure_months(months_of(first.payloads), now)
        try:
            stream = _Stream(first, read, records_max, lambda months: self._known(months, now))
            async with self._database.transaction() as connection:
                await _lock(connection, journal, position)
                await _copy(connection, "metering", stream)
                await self._finish(connection, journal, stream)
            return Stored(stream.position, stream.records, stream.records, stream.end)
        except asyncpg.UniqueViolationError:
            log.warning("a batch of metering records holds some that are stored already")
        stream = _Stream(first, read, records_max, lambda months: self._known(months, now))
        async with self._database.transaction() as connection:
            await _lock(connection, journal, position)
            await connection.execute(_SQL["make_staging"])
            await _copy(connection, "metering_staging", stream)
            new = rows_touched(await connection.execute(_SQL["insert_staged"]))
            await self._finish(connection, journal, stream)
        self.duplicates += stream.records - new
        return Stored(stream.position, stream.records, new, stream.end)

    async def _finish(self, connection: Connection, journal: str, stream: _Stream) -> None:
        await connection.execute(_SQL["move_watermark"], journal, stream.position)
        await self._before_commit()

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

    def _known(self, months: set[tuple[int, int]], now: float) -> bool:
        return all(month in self._months or not _near(month, now) for month in months)

    async def _before_commit(self) -> None:
        """The moment between COPY and COMMIT; tests break in here."""


class _Stream:
    """The bytes of one COPY, piece by piece; afterwards, how far it came."""

    def __init__(
        self, first: Entries, read: Read, records_max: int, known: Callable[[set[tuple[int, int]]], bool]
    ) -> None:
        self._piece = first
        self._read = read
        self._records_max = records_max
        self._known = known
        self.position = first.position
        self.end = first.end
        self.records = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield _COPY_HEAD
        piece = self._piece
        while piece.payloads:
            self.records += len(piece.payloads)
            self.position, self.end = piece.position, piece.end
            yield b"".join(piece.payloads)
            if piece.end != "more" or self.records >= self._records_max:
                break
            # Calls are served on this loop too.
            await asyncio.sleep(0)
            piece = self._read(self.position)
            if not self._known(months_of(piece.payloads)):
                # A new month begins: a batch of its own, after its partition is made.
                break
            self.end = piece.end
        yield _COPY_END


async def _lock(connection: Connection, journal: str, position: int) -> None:
    if await connection.fetchval(_SQL["lock_watermark"], journal) != position:
        raise PositionMoved(f"journal {journal} is not at {position} any more")


async def _copy(connection: Connection, table: str, stream: _Stream) -> None:
    await connection.copy_to_table(table, source=stream, columns=COLUMNS, format="binary")


def months_of(rows: list[bytes]) -> set[tuple[int, int]]:
    """(year, month) of the arrivals in rows, UTC."""
    found: set[tuple[int, int]] = set()
    first, after = b"", b""
    for row in rows:
        if not first <= row[ARRIVED] < after:
            month, first, after = _month_around(row)
            found.add(month)
    return found


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
