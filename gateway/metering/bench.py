"""`python -m gateway.metering.bench`: how fast the journal takes records, and how fast the writer brings them over.

A PostgreSQL of its own in a temporary directory, with everything durable as in service.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import uvloop

from gateway.database.database import Database
from gateway.database.migrations import migrate
from gateway.embedded.postgres import EmbeddedPostgres
from gateway.identifiers import Uuid7
from gateway.metering.journal import Journal
from gateway.metering.record import MeteringRecord
from gateway.metering.writer import Writer, WriterParams

_FUNCTIONS = 50
_WARM_UP_RECORDS = 5000


def sample_records(count: int) -> list[MeteringRecord]:
    """Records as a busy gateway makes them: a few dozen functions, every start kind, all of now."""
    new_invocation = Uuid7()
    kinds = ("hot",) * 97 + ("warm", "cold", "frozen")
    return [
        MeteringRecord(
            new_invocation(), time.time_ns() // 1000, "default", f"function-{n % _FUNCTIONS}", 1 + n % 3,
            f"token-{n % 7}", "account", kinds[n % 100], n % 900, 0, 0, 350 + n % 5000, "cpu", 1 + n % 5, 300 + n % 99,
            31_000_000 + n, 120, 240, 200, "none", False, 1,
        )
        for n in range(count)
    ]  # fmt: skip


async def measure(records: int, directory: Path) -> dict[str, float]:
    """Records a second, journal and writer."""
    server = EmbeddedPostgres(directory)
    database = Database(await server.start())
    try:
        await database.open()
        await migrate(database)
        await _bring(Journal(directory / "warm-up"), database, sample_records(_WARM_UP_RECORDS))
        journal = Journal(directory / "journal")
        made = sample_records(records)
        started = time.perf_counter()
        for record in made:
            journal.append(record)
        appended_s = time.perf_counter() - started
        bytes_written = journal.size()
        written_s = await _bring(journal, database, [])
        stored = await database.fetchval("SELECT count(*) FROM metering")
        if stored != records + _WARM_UP_RECORDS:
            raise RuntimeError(f"{stored} records stored of {records + _WARM_UP_RECORDS}")
        return {
            "records": records,
            "appends_per_s": round(records / appended_s, 1),
            "append_us": round(appended_s / records * 1e6, 2),
            "bytes_per_record": round(bytes_written / records, 1),
            "writer_s": round(written_s, 3),
            "records_per_s": round(records / written_s, 1),
        }
    finally:
        await database.close()
        await server.stop()


async def _bring(journal: Journal, database: Database, records: list[MeteringRecord]) -> float:
    """Seconds from the start of a writer to the arrival of everything in the journal."""
    for record in records:
        journal.append(record)
    writer = Writer(journal, database, WriterParams(flush_timeout_s=600.0))
    started = time.perf_counter()
    writer.start()
    await writer.flush()
    took_s = time.perf_counter() - started
    await writer.stop()
    journal.close()
    return took_s


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m gateway.metering.bench", description=__doc__)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    given = parser.parse_args()
    if given.records < 1:
        parser.error("--records: at least 1")
    with tempfile.TemporaryDirectory(prefix="samovar-bench-") as directory:
        result = uvloop.run(measure(given.records, Path(directory)))
    if given.json:
        print(json.dumps(result))
    else:
        print(f"journal: {result['appends_per_s']:>10,.0f} records/s ({result['append_us']} microseconds each)")
        print(f"writer:  {result['records_per_s']:>10,.0f} records/s into PostgreSQL")


if __name__ == "__main__":
    main()
