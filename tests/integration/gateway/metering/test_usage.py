"""Sums of real records."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from gateway.database.database import Database
from gateway.errors import BadRequest
from gateway.metering.bench import sample_records
from gateway.metering.journal import Journal
from gateway.metering.usage import Usage
from gateway.metering.writer import Writer

SECOND = 1_000_000
START_US = 1_790_000_000 * SECOND


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path)


@pytest_asyncio.fixture
async def usage(journal: Journal, database: Database) -> AsyncIterator[Usage]:
    writer = Writer(journal, database)
    writer.start()
    yield Usage(database, writer)
    await writer.stop()


async def test_sums_hold_calls_that_were_answered_a_moment_ago(journal: Journal, usage: Usage) -> None:
    plain = sample_records(1)[0]._replace(function="f", start_kind="hot", client_gone=False)
    changes = [
        {},
        {"start_kind": "warm", "status": 500, "fault": "function"},
        {"start_kind": "cold", "status": 503},
        {"start_kind": "frozen", "status": 502, "fault": "platform"},
        {"start_kind": "", "status": 499, "fault": "caller", "client_gone": True},
        {"status": 404},
    ]
    for place, change in enumerate(changes):
        invocation = f"0193a5b2-7c1e-7abc-8def-{place:012x}"
        journal.append(
            plain._replace(
                invocation=invocation, queued_us=1500, run_us=2500, slice_ms=3, cpu_us=1000, bytes_in=7, bytes_out=9
            )._replace(**change)
        )
    (row,) = await usage.rows()
    assert row == {
        "namespace": "default", "function": "f", "calls": 6, "errors": 4, "hot": 2, "warm": 1, "cold": 1, "frozen": 1,
        "queued_ms": 9, "run_ms": 15, "slice_ms": 18, "cpu_ms": 6, "bytes_in": 42, "bytes_out": 54,
        "platform_faults": 1, "client_gone": 1,
    }  # fmt: skip


async def test_rows_are_per_function_of_the_namespace_and_time_asked_for(journal: Journal, usage: Usage) -> None:
    made = sample_records(60)
    for place, record in enumerate(made):
        namespace, function = ("one", "two")[place % 2], f"f{place % 3}"
        arrived_us = START_US + place * SECOND
        journal.append(record._replace(namespace=namespace, function=function, arrived_us=arrived_us))

    async def calls(*asked: float | str | None) -> dict[tuple[str, str], int]:
        return {(row["namespace"], row["function"]): row["calls"] for row in await usage.rows(*asked)}

    assert await calls() == {(n, f"f{k}"): 10 for n in ("one", "two") for k in range(3)}
    assert await calls("one") == {("one", f"f{k}"): 10 for k in range(3)}
    start = START_US / SECOND
    assert await calls(None, start + 58) == {("one", "f1"): 1, ("two", "f2"): 1}
    assert await calls(None, None, start + 2) == {("one", "f0"): 1, ("two", "f1"): 1}
    assert await calls("one", start + 1, start + 5) == {("one", "f2"): 1, ("one", "f1"): 1}
    assert await calls("nobody") == {}


async def test_a_worker_that_lies_about_itself_breaks_no_sum(journal: Journal, usage: Usage) -> None:
    for record in sample_records(20):
        journal.append(record._replace(function="liar", cpu_us=(1 << 64) - 1, peak_memory_bytes=1 << 63))
    (row,) = await usage.rows()
    assert row["calls"] == 20
    assert row["cpu_ms"] > 0


@pytest.mark.parametrize("time", [float("nan"), float("inf"), 1e20])
async def test_a_time_that_is_none_is_refused(usage: Usage, time: float) -> None:
    with pytest.raises(BadRequest, match="since"):
        await usage.rows(None, time)
