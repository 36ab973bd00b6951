"""Functions' log lines: kept, bounded, tailed and followed without a gap."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.function_logs import OWN_STREAM, FunctionLogParams, FunctionLogs, TooManyFollowers
from gateway.log_follower import Follower, LogFollowerParams
from gateway.log_lines import last_lines


def write(logs: FunctionLogs, *lines: str | bytes, function: str = "f", at: float = 1.0) -> None:
    raw = [line.encode() if isinstance(line, str) else line for line in lines]
    logs.append("lab", function, 3, "w1", "stdout", raw, at)


def texts(rows: list[bytes]) -> list[str]:
    return [json.loads(row)["line"] for row in rows]


@pytest.fixture
async def logs(tmp_path: Path) -> AsyncIterator[FunctionLogs]:
    made = FunctionLogs(tmp_path / "logs")
    yield made
    await made.close()


async def test_a_line_comes_back_with_who_wrote_it(logs: FunctionLogs) -> None:
    write(logs, "hello", at=12.5)
    (row,) = await logs.tail("lab", "f", 10)
    expected = {"at": 12.5, "worker": "w1", "revision": 3, "stream": "stdout", "line": "hello"}
    assert json.loads(row) == expected


async def test_any_bytes_become_one_line_of_text(logs: FunctionLogs) -> None:
    write(logs, b"\xff\x00 caf\xc3\xa9", "with\nnewline", "")
    assert texts(await logs.tail("lab", "f", 10)) == ["\ufffd\x00 café", "with\nnewline", ""]


async def test_the_tail_is_the_last_lines_oldest_first_of_one_function(logs: FunctionLogs) -> None:
    for n in range(20):
        write(logs, f"{n}")
        write(logs, "other", function="g")
    assert texts(await logs.tail("lab", "f", 3)) == ["17", "18", "19"]
    assert await logs.tail("lab", "f", 0) == []
    assert await logs.tail("lab", "nobody", 5) == []


async def test_lines_reach_the_disk_by_themselves_and_survive_a_restart(tmp_path: Path) -> None:
    logs = FunctionLogs(tmp_path, FunctionLogParams(write_every_s=0.001))
    write(logs, "one")
    for _ in range(2000):
        if (tmp_path / "lab" / "f.log").exists():
            break
        await asyncio.sleep(0.002)
    write(logs, "two")
    await logs.close()
    assert texts(await FunctionLogs(tmp_path).tail("lab", "f", 5)) == ["one", "two"]


async def test_files_are_turned_over_at_their_bound_and_only_two_are_kept(tmp_path: Path) -> None:
    logs = FunctionLogs(tmp_path, FunctionLogParams(file_bytes_max=1000))
    for n in range(60):
        write(logs, f"line {n}")
        await logs.tail("lab", "f", 1)
    files = sorted(p.name for p in (tmp_path / "lab").iterdir())
    assert files == ["f.log", "f.log.1"]
    assert sum(p.stat().st_size for p in (tmp_path / "lab").iterdir()) < 2400
    last = texts(await logs.tail("lab", "f", 15))
    assert last == [f"line {n}" for n in range(45, 60)]


async def test_a_flood_is_cut_counted_and_said(tmp_path: Path) -> None:
    logs = FunctionLogs(tmp_path, FunctionLogParams(pending_bytes_max=1000, line_chars_max=50))
    write(logs, *["x" * 500] * 100)
    rows = [json.loads(row) for row in await logs.tail("lab", "f", 1000)]
    assert rows[0]["line"] == "x" * 50
    assert rows[-1]["stream"] == OWN_STREAM
    assert logs.dropped == 100 - (len(rows) - 1) > 0
    assert rows[-1]["line"].startswith(f"{logs.dropped} lines were dropped")


async def test_a_disk_that_takes_nothing_loses_lines_but_breaks_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    logs = FunctionLogs(tmp_path / "file")
    write(logs, "lost")
    await logs.close()
    assert logs.dropped == 1


async def follow(logs: FunctionLogs, count: int, seen: list[Any]) -> None:
    async for row in logs.follow("lab", "f", count, beat_s=60):
        seen.append(json.loads(row)["line"])


async def until(condition: Any) -> None:
    for _ in range(5000):
        if condition():
            return
        await asyncio.sleep(0.001)
    pytest.fail("not in time")


async def test_a_follower_sees_every_line_once_while_others_are_written(tmp_path: Path) -> None:
    logs = FunctionLogs(tmp_path, FunctionLogParams(write_every_s=0.0))
    followers: list[tuple[list[str], asyncio.Task[None]]] = []
    for n in range(300):
        write(logs, f"{n}")
        if n % 60 == 30:
            seen: list[str] = []
            followers.append((seen, asyncio.create_task(follow(logs, 1000, seen))))
        await asyncio.sleep(0)
    await until(lambda: all(len(seen) >= 300 for seen, _ in followers))
    await logs.close()
    for seen, task in followers:
        await task
        assert seen == [f"{n}" for n in range(300)]


async def test_a_quiet_log_gives_a_beat_and_ends_when_the_function_is_deleted(logs: FunctionLogs) -> None:
    write(logs, "one")
    rows = logs.follow("lab", "f", 5, beat_s=0.001)
    assert texts([await anext(rows)]) == ["one"]
    assert await anext(rows) == b""
    await logs.forget("lab", "f")
    assert [row async for row in rows if row] == []
    assert await logs.tail("lab", "f", 5) == []


async def test_followers_are_bounded_and_free_their_place(tmp_path: Path) -> None:
    logs = FunctionLogs(tmp_path, FunctionLogParams(followers_max=1))
    first = logs.follow("lab", "f", 0, beat_s=0.001)
    await anext(first)
    with pytest.raises(TooManyFollowers):
        await anext(logs.follow("lab", "f", 0, beat_s=0.001))
    await first.aclose()
    assert await anext(logs.follow("lab", "f", 0, beat_s=0.001)) == b""


async def test_a_slow_follower_loses_lines_and_knows_how_many() -> None:
    follower = Follower(LogFollowerParams(lines_max=2, bytes_max=100))
    for n in range(5):
        follower.offer(b"%d" % n)
    assert (await follower.next(1), follower.take_missed(), follower.take_missed()) == (b"0", 3, 0)
    follower.offer(b"x" * 100)
    assert follower.take_missed() == 1
    follower.close()
    assert [await follower.next(1), await follower.next(1)] == [b"1", None]


def test_last_lines_are_read_from_the_end_within_a_bound(tmp_path: Path) -> None:
    file = tmp_path / "log"
    assert last_lines(file, 5, 1000) == []
    file.write_bytes(b"".join(b"%06d\n" % n for n in range(200_000)))
    assert last_lines(file, 2, 10_000_000) == [b"199998", b"199999"]
    assert last_lines(file, 100_000, 10_000_000)[0] == b"100000"
    assert last_lines(file, 1000, 24) == [b"199997", b"199998", b"199999"]
    assert last_lines(file, 300_000, 10_000_000)[0] == b"000000"
