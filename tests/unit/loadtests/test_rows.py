from __future__ import annotations

import json
import sys

import pytest

from loadtests.bench.burst import Reply
from loadtests.bench.gateway_process import GatewayBroke
from loadtests.bench.loadgen import LoadResult
from loadtests.bench.processes import MIB
from loadtests.bench.rows import bodies, memory, programs, starts, throughput
from loadtests.bench.samples import Latencies, Paired


def result(calls: int, median_us: float = 100.0) -> LoadResult:
    return LoadResult(calls, 1.0, 0, (), Latencies(calls, median_us, median_us, median_us, median_us))


def part(calls: int, median_us: float = 100.0) -> throughput.Slice:
    return throughput.Slice(result(calls, median_us), 200.0, 100.0)


def warm_reply(milliseconds: float, kind: str = "warm") -> Reply:
    return Reply(200, int(milliseconds * 1e6), {"x-samovar-start": kind}, b"{}")


def slept(pid: int, seconds: float) -> Reply:
    return Reply(200, int(seconds * 1e9), {"x-samovar-start": "warm"}, json.dumps({"pid": pid}).encode())


@pytest.mark.parametrize(("ours", "met"), [(6_001, True), (5_900, False)])
def test_hot_row_compares_with_the_control(ours: int, met: bool) -> None:
    row = throughput.hot_row(Paired((part(ours),) * 3, (part(10_000),) * 3), 64)
    assert row.met is met
    assert row.control == "10,000 requests/s (aiohttp)"
    assert "gateway 200 us and workers 100 us" in row.note


@pytest.mark.parametrize(("ours", "met"), [(319.0, True), (321.0, False)])
def test_latency_row_is_a_difference(ours: float, met: bool) -> None:
    row = throughput.latency_row(Paired((part(1, ours),), (part(1, 200.0),)))
    assert row.met is met
    assert row.values["difference_us"] == pytest.approx(ours - 200.0)


@pytest.mark.parametrize(("on", "met"), [(960, True), (940, False), (1_010, True)])
def test_metering_row_is_a_cost(on: int, met: bool) -> None:
    assert throughput.metering_row(Paired((part(on),), (part(1000),)), 64).met is met


@pytest.mark.parametrize(("milliseconds", "met"), [([9.0, 12.0, 400.0], True), ([20.0, 26.0, 30.0], False)])
def test_warm_row_takes_the_median(milliseconds: list[float], met: bool) -> None:
    row = starts.warm_row([warm_reply(each) for each in milliseconds], [0.6, 0.7, 9.0])
    assert row.met is met
    assert row.control == "700 ms (spawned interpreter)"


def test_warm_row_refuses_calls_that_were_not_started_warm() -> None:
    with pytest.raises(GatewayBroke, match="1 hot"):
        starts.warm_row([warm_reply(5.0), warm_reply(1.0, "hot")], [0.5])


def test_burst_row_counts_answers_and_workers() -> None:
    row = starts.burst_row([slept(1, 1.1), slept(2, 1.2), slept(2, 2.3)])
    assert row.met is True
    assert row.measured == "3 of 3 answered in 2.30 s"
    assert row.ratio == "2 workers"


def test_burst_row_is_not_met_when_one_was_refused() -> None:
    row = starts.burst_row([slept(1, 1.1), Reply(503, 1000), Reply(0, 1000, error="connection lost")])
    assert row.met is False
    assert "1 status 503" in row.note
    assert "1 connection lost" in row.note


@pytest.mark.parametrize(("after", "met"), [(170, True), (190, False)])
def test_worker_row_divides_by_the_workers_added(after: int, met: bool) -> None:
    row = memory.worker_row(100 * MIB, 1, after * MIB, 11)
    assert row.met is met
    assert row.measured == f"{(after - 100) / 10:.1f} MiB"


def test_idle_row_lists_the_parts_largest_first() -> None:
    row = memory.idle_row({"gateway": 40 * MIB, "postgres": 60 * MIB})
    assert row.measured == "100 MiB"
    assert row.note == "postgres 60 MiB, gateway 40 MiB"
    assert row.met is None


@pytest.mark.parametrize(("growth", "met"), [(3, True), (32, False)])
def test_body_row_is_about_flat_memory(growth: int, met: bool) -> None:
    row = bodies.body_row(Paired((result(10),), (result(20),)), 16, growth * MIB)
    assert row.met is met
    assert row.measured.startswith("168 MB/s")
    assert row.ratio == "50%"


@pytest.mark.parametrize(("rate", "met"), [(250_000.0, True), (199_999.0, False)])
def test_rate_row(rate: float, met: bool) -> None:
    assert programs.rate_row("pool", "events/s", rate, 200_000).met is met


@pytest.mark.parametrize("output", ['{"a": 1}', 'seed 7\n{"a": 1}\n', '{\n "a": 1\n}\n'])
def test_a_programs_object_is_found(output: str) -> None:
    assert programs.last_object("m", output) == {"a": 1}


@pytest.mark.parametrize("output", ["", "nothing", "[1]", "3\n"])
def test_a_program_without_an_object_is_told(output: str) -> None:
    with pytest.raises(programs.ProgramFailed, match="no JSON object"):
        programs.last_object("m", output)


def test_a_number_that_was_not_said_is_told() -> None:
    with pytest.raises(programs.ProgramFailed, match="events_per_s"):
        programs.number({"other": 1}, "events_per_s")
    with pytest.raises(programs.ProgramFailed):
        programs.number({"events_per_s": True}, "events_per_s")


def test_a_program_that_fails_is_quoted() -> None:
    with pytest.raises(programs.ProgramFailed, match="no_such_module"):
        programs.run_program("no_such_module", timeout_s=60)
    assert sys.executable
