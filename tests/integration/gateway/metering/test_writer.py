"""From the journal into a real PostgreSQL: every record exactly once, whatever breaks in between."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from gateway.database.database import Database
from gateway.database.migrations import migrate
from gateway.embedded.postgres import EmbeddedPostgres
from gateway.errors import Unavailable
from gateway.metering.bench import sample_records
from gateway.metering.ingest import Ingest, Read, Stored, coming_months
from gateway.metering.journal import Journal, JournalParams
from gateway.metering.record import MeteringRecord
from gateway.metering.segments import DAMAGED_SUFFIX, SUFFIX
from gateway.metering.writer import Writer, WriterParams

QUICK = WriterParams(batch_records_max=100, piece_bytes=4096, interval_s=0.01, pause_s=0.01, pause_max_s=0.05)
PATIENCE_S = 60.0


async def stored(database: Database) -> tuple[int, int]:
    """Rows, and invocations among them."""
    rows = await database.fetch("SELECT count(*) AS rows, count(DISTINCT invocation) AS calls FROM metering")
    return rows[0]["rows"], rows[0]["calls"]


async def until(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    """Poll until the condition holds; fails the test when it never does."""
    end = time.monotonic() + PATIENCE_S
    while not await condition():
        if time.monotonic() > end:
            pytest.fail(f"{what}: not within {PATIENCE_S:g} s")
        await asyncio.sleep(0.01)


def keep(journal: Journal, records: list[MeteringRecord]) -> None:
    for record in records:
        journal.append(record)


async def bring(journal: Journal, database: Database, ingest: Ingest | None = None) -> Writer:
    """A writer that has brought everything over and ended."""
    writer = Writer(journal, database, QUICK, ingest=ingest)
    writer.start()
    await writer.flush()
    await writer.stop()
    return writer


async def test_every_field_arrives_as_it_was(tmp_path: Path, database: Database) -> None:
    journal, record = Journal(tmp_path), sample_records(1)[0]._replace(client_gone=True, namespace="ä", status=499)
    journal.append(record)
    await bring(journal, database)
    row = dict((await database.fetch("SELECT * FROM metering"))[0])
    arrived_at = row.pop("arrived_at")
    assert round(arrived_at.timestamp() * 1e6) == record.arrived_us
    assert str(row.pop("invocation")) == record.invocation
    assert row == {name: getattr(record, name) for name in row}


async def test_what_is_appended_while_it_runs_arrives_and_drained_segments_go(
    tmp_path: Path, database: Database
) -> None:
    journal = Journal(tmp_path, JournalParams(segment_bytes=20_000))
    writer = Writer(journal, database, QUICK)
    writer.start()
    for piece in range(5):
        keep(journal, sample_records(300))
        await writer.flush()
        assert await stored(database) == ((piece + 1) * 300,) * 2
    assert len(list(tmp_path.iterdir())) == 1
    assert writer.stored == 1500
    assert (writer.lag().bytes_waiting, writer.lag().behind_s, writer.duplicates) == (0, 0.0, 0)
    assert await database.fetchval("SELECT count(*) FROM metering_watermarks") == 1
    await writer.stop()


async def test_leftovers_of_earlier_processes_arrive_and_their_files_go(tmp_path: Path, database: Database) -> None:
    for _ in range(3):
        keep(Journal(tmp_path), sample_records(50))
    journal = Journal(tmp_path)
    await bring(journal, database)
    assert await stored(database) == (150, 150)
    assert [segment.active for segment in journal.segments()] == [True]
    assert await database.fetchval("SELECT count(*) FROM metering_watermarks") == 0


async def test_a_torn_end_is_left_out_and_a_damaged_file_is_kept(tmp_path: Path, database: Database) -> None:
    torn, damaged = Journal(tmp_path), Journal(tmp_path)
    keep(torn, sample_records(10))
    keep(damaged, sample_records(10))
    path = torn.segments()[-1].path
    path.write_bytes(path.read_bytes()[:-5])
    path = damaged.segments()[-1].path
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    writer = await bring(Journal(tmp_path), database)
    rows, calls = await stored(database)
    assert rows == calls
    assert 9 + 4 <= rows < 20
    assert writer.bytes_torn > 0
    assert len(list(tmp_path.glob("*" + DAMAGED_SUFFIX))) == 1
    assert len(list(tmp_path.glob("*" + SUFFIX))) == 1


class Interrupted(Ingest):
    """Stops in the moment between COPY and COMMIT, the `at`-th time."""

    def __init__(self, database: Database, at: int) -> None:
        super().__init__(database)
        self.left = at
        self.there = asyncio.Event()

    async def _before_commit(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.there.set()
            await asyncio.Event().wait()


async def test_ended_between_copy_and_commit_nothing_is_lost_or_doubled(tmp_path: Path, database: Database) -> None:
    journal = Journal(tmp_path)
    keep(journal, sample_records(1000))
    ingest = Interrupted(database, at=4)
    writer = Writer(journal, database, QUICK, ingest=ingest)
    writer.start()
    await ingest.there.wait()
    await writer.stop()
    before, calls = await stored(database)
    assert 300 <= before == calls < 1000
    again = await bring(Journal(tmp_path), database)
    assert await stored(database) == (1000, 1000)
    assert (again.stored, again.duplicates) == (1000 - before, 0)


class Unheard(Ingest):
    """Every third batch is stored, but we never hear of it."""

    calls = 0

    async def store(self, journal: str, position: int, read: Read, records_max: int, now: float) -> Stored:
        new = await super().store(journal, position, read, records_max, now)
        self.calls += 1
        if self.calls % 3 == 0:
            raise Unavailable("the connection was lost before the answer came")
        return new


async def test_a_commit_that_was_not_heard_of_is_not_repeated(tmp_path: Path, database: Database) -> None:
    journal = Journal(tmp_path)
    keep(journal, sample_records(1000))
    writer = await bring(journal, database, Unheard(database))
    assert await stored(database) == (1000, 1000)
    assert writer.failures >= 3
    assert writer.duplicates == 0


async def test_cut_connections_lose_nothing(tmp_path: Path, database: Database) -> None:
    class Cut(Ingest):
        cuts = 0

        async def _before_commit(self) -> None:
            self.cuts += 1
            if self.cuts % 2:
                others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'idle in transaction'"
                await database.fetch(others)

    journal = Journal(tmp_path)
    keep(journal, sample_records(500))
    await bring(journal, database, Cut(database))
    assert await stored(database) == (500, 500)


async def test_a_journal_that_comes_twice_is_stored_once(tmp_path: Path, database: Database) -> None:
    made = sample_records(250)
    for place in ("one", "copy"):
        journal = Journal(tmp_path / place)
        keep(journal, made)
        writer = await bring(journal, database)
    more = sample_records(10)
    journal = Journal(tmp_path / "mixed")
    keep(journal, made[:5] + more)
    mixed = await bring(journal, database)
    assert await stored(database) == (260, 260)
    assert (writer.duplicates, writer.stored, mixed.duplicates, mixed.stored) == (250, 0, 5, 10)


async def test_killed_in_the_middle_of_storing_it_goes_on_where_it_was(
    tmp_path: Path, database: Database, database_dsn: str
) -> None:
    script = """
import asyncio, sys
from pathlib import Path
from gateway.database.database import Database
from gateway.metering.bench import sample_records
from gateway.metering.journal import Journal
from gateway.metering.writer import Writer, WriterParams
async def main():
    journal = Journal(Path(sys.argv[1]))
    for record in sample_records(5000):
        journal.append(record)
    database = Database(sys.argv[2])
    await database.open()
    writer = Writer(journal, database, WriterParams(batch_records_max=50))
    writer.start()
    await asyncio.sleep(600)
asyncio.run(main())
"""
    process = subprocess.Popen([sys.executable, "-c", script, str(tmp_path), database_dsn])
    try:

        async def some() -> bool:
            assert process.poll() is None
            return (await stored(database))[0] > 0

        await until(some, "the first rows are stored")
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    await bring(Journal(tmp_path), database)
    assert await stored(database) == (5000, 5000)


async def test_a_stopped_postgresql_loses_nothing(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory() as short:
        server = EmbeddedPostgres(Path(short))
        database = Database(await server.start())
        await database.open()
        await migrate(database)
        journal = Journal(tmp_path)
        writer = Writer(journal, database, QUICK)
        writer.start()
        keep(journal, sample_records(200))
        await writer.flush()
        await server.stop()
        keep(journal, sample_records(200))

        async def noticed() -> bool:
            return writer.failures > 0

        await until(noticed, "the outage is noticed")
        assert writer.lag().bytes_waiting > 0
        await server.start()
        await writer.flush()
        assert await stored(database) == (400, 400)
        await writer.stop()
        await database.close()
        await server.stop()


async def test_flushing_gives_up_when_the_database_stays_away(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    keep(journal, sample_records(1))
    writer = Writer(journal, Database("postgresql://samovar@/none?host=/nowhere"), WriterParams(flush_timeout_s=0.05))
    with pytest.raises(Unavailable, match="not running"):
        await writer.flush()
    writer.start()
    with pytest.raises(Unavailable, match="did not reach the database"):
        await writer.flush()
    await writer.stop()


async def test_records_lie_in_the_partition_of_their_month(tmp_path: Path, database: Database) -> None:
    now_us = int(time.time() * 1e6)
    month_us = 30 * 24 * 3600 * 1_000_000
    made = sample_records(6)
    ages = (0, 0, 2, 5, 400, -36)
    journal = Journal(tmp_path)
    keep(journal, [r._replace(arrived_us=now_us - age * month_us) for r, age in zip(made, ages, strict=True)])
    await bring(journal, database)
    rows = await database.fetch("SELECT tableoid::regclass::text AS place, arrived_at FROM metering")
    assert len(rows) == 6
    usual = [row for row in rows if row["place"] != "metering_other"]
    assert len(usual) == 4
    assert all(row["place"] == f"metering_{row['arrived_at']:%Y_%m}" for row in usual)


async def test_partitions_are_made_ahead(tmp_path: Path, database: Database) -> None:
    journal = Journal(tmp_path)
    keep(journal, sample_records(1))
    await bring(journal, database)
    for year, month in coming_months(time.time()):
        assert await database.fetchval("SELECT to_regclass($1)", f"metering_{year}_{month:02}") is not None


async def test_a_month_whose_records_are_in_the_default_partition_stays_there(
    tmp_path: Path, database: Database
) -> None:
    first, *made = sample_records(3)
    partition = f"metering_{time.gmtime().tm_year}_{time.gmtime().tm_mon:02}"
    journal = Journal(tmp_path / "first")
    journal.append(first)
    await bring(journal, database)
    await database.execute(f"DROP TABLE {partition}")

    class Forgetful(Ingest):
        async def _ensure_months(self, months: object, now: float) -> None:
            pass

    for place, ingest in (("one", Forgetful(database)), ("two", Ingest(database))):
        journal = Journal(tmp_path / place)
        journal.append(made.pop())
        await bring(journal, database, ingest)
    assert await stored(database) == (2, 2)
    assert await database.fetchval("SELECT count(*) FROM metering_other") == 2
