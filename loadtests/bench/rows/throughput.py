"""The hot path: requests a second beside the control, latency beside the control, and what metering takes of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from loadtests.bench.gateway_process import GatewayProcess
from loadtests.bench.loadgen import Load, LoadResult
from loadtests.bench.processes import cpu_seconds
from loadtests.bench.requests import PAYLOAD, Target, post_json
from loadtests.bench.samples import Paired, in_turn
from loadtests.bench.stage import Stage, progress
from loadtests.bench.table import Row

HOT_RATIO_MIN = 0.60
LATENCY_DIFFERENCE_MAX_US = 120.0
METERING_COST_MAX = 0.05
#: Fewer pairs are enough for the row that promises nothing.
QUEUED_PAIRS = 2


@dataclass(frozen=True)
class Slice:
    """One slice: what the callers saw, and processor time a call. Other load on a machine disturbs the latter least."""

    result: LoadResult
    server_cpu_us: float
    workers_cpu_us: float = 0.0

    @property
    def per_second(self) -> float:
        """Right answers a second."""
        return self.result.per_second

    @property
    def median_us(self) -> float:
        """Latency of the middle call."""
        assert self.result.latencies is not None
        return self.result.latencies.median_us


@dataclass(frozen=True)
class Contestant:
    """Something that answers the null call."""

    target: Target
    server: int
    workers: tuple[int, ...] = ()

    def measure(self, stage: Stage, connections: int) -> Slice:
        """One slice of it. Raises what the load generator raises."""
        request = post_json(self.target, PAYLOAD)
        load = Load(self.target.address, request, connections, stage.params.slice_s, expected_json=PAYLOAD)
        server_s, workers_s = cpu_seconds([self.server]), cpu_seconds(self.workers)
        result = stage.generator.load(load)
        return Slice(
            result,
            (cpu_seconds([self.server]) - server_s) / result.answered * 1e6,
            (cpu_seconds(self.workers) - workers_s) / result.answered * 1e6,
        )


def _contestant(stage: Stage, gateway: GatewayProcess, folder: str, connections: int) -> Contestant:
    """A function of the gateway, with as many workers running as these connections want."""
    target = gateway.deploy(folder)
    request = post_json(target, PAYLOAD)
    stage.generator.load(Load(target.address, request, connections, 0.3, 0.0, expected_json=PAYLOAD))
    return Contestant(target, gateway.pid, tuple(gateway.worker_pids(folder)))


def _beside_control(stage: Stage, folder: str, connections: int, pairs: int) -> Paired[Slice]:
    ours = _contestant(stage, stage.gateway(), folder, connections)
    control = Contestant(stage.control.json, stage.control.pid)
    return in_turn(lambda: ours.measure(stage, connections), lambda: control.measure(stage, connections), pairs)


def hot(stage: Stage) -> list[Row]:
    """Requests a second of the null call."""
    connections = stage.params.connections
    progress(f"hot null call, {connections} connections")
    row = hot_row(_beside_control(stage, "null-async", connections, stage.params.pairs), connections)
    queued = hot_row(_beside_control(stage, "null", connections, QUEUED_PAIRS), connections)
    return [row, replace(queued, name="the same, workers of concurrency 1", bound="", met=None)]


def hot_row(slices: Paired[Slice], connections: int) -> Row:
    """The row of slices of the gateway and the control."""
    ours, control = slices.medians(lambda part: part.per_second)
    ratio = slices.ratio(lambda part: part.per_second)
    return Row(
        name=f"hot null call, {connections} connections",
        measured=f"{ours:,.0f} requests/s",
        control=f"{control:,.0f} requests/s (aiohttp)",
        ratio=f"{ratio:.0%}",
        bound=f">= {HOT_RATIO_MIN:.0%}",
        met=ratio >= HOT_RATIO_MIN,
        note=_cpu_note(slices),
        values={"requests_per_s": ours, "control_requests_per_s": control, "ratio": ratio, **_cpu_values(slices.first)},
    )


def _cpu_values(parts: Sequence[Slice]) -> dict[str, float]:
    return {
        "server_cpu_us": median(part.server_cpu_us for part in parts),
        "workers_cpu_us": median(part.workers_cpu_us for part in parts),
    }


def _cpu_note(slices: Paired[Slice]) -> str:
    ours, control = _cpu_values(slices.first), _cpu_values(slices.second)
    return (
        f"processor time a call: gateway {ours['server_cpu_us']:.0f} us and workers {ours['workers_cpu_us']:.0f} us, "
        f"control {control['server_cpu_us']:.0f} us"
    )


def latency(stage: Stage) -> list[Row]:
    """The null call on one connection."""
    progress("null call, 1 connection")
    return [latency_row(_beside_control(stage, "null", 1, stage.params.pairs))]


def latency_row(slices: Paired[Slice]) -> Row:
    """The row of slices of the gateway and the control."""
    ours, control = slices.medians(lambda part: part.median_us)
    difference = slices.difference(lambda part: part.median_us)
    return Row(
        name="hot null call, 1 connection, median",
        measured=f"{ours:,.0f} us",
        control=f"{control:,.0f} us (aiohttp)",
        ratio=f"{difference:+,.0f} us",
        bound=f"<= +{LATENCY_DIFFERENCE_MAX_US:.0f} us",
        met=difference <= LATENCY_DIFFERENCE_MAX_US,
        note=_cpu_note(slices),
        values={"median_us": ours, "control_median_us": control, "difference_us": difference},
    )


def metering(stage: Stage) -> list[Row]:
    """The null call with metering on and off, on two gateways that differ in nothing else."""
    connections = stage.params.connections
    progress(f"metering on and off, {connections} connections")
    try:
        on = _contestant(stage, stage.gateway(), "null-async", connections)
        off = _contestant(stage, stage.gateway(metering=False), "null-async", connections)
        slices = in_turn(
            lambda: on.measure(stage, connections),
            lambda: off.measure(stage, connections),
            stage.params.metering_pairs,
        )
    finally:
        stage.retire(metering=False)
    return [metering_row(slices, connections)]


def metering_row(slices: Paired[Slice], connections: int) -> Row:
    """The row of slices with metering on and with metering off."""
    on, off = slices.medians(lambda part: part.per_second)
    cost = 1.0 - slices.ratio(lambda part: part.per_second)
    on_cpu, off_cpu = _cpu_values(slices.first)["server_cpu_us"], _cpu_values(slices.second)["server_cpu_us"]
    return Row(
        name=f"metering on, {connections} connections",
        measured=f"{on:,.0f} requests/s",
        control=f"{off:,.0f} requests/s (metering off)",
        ratio=f"costs {cost:.1%}",
        bound=f"<= {METERING_COST_MAX:.0%}",
        met=cost <= METERING_COST_MAX,
        note=f"processor time of the gateway a call: {on_cpu:.0f} us with metering, {off_cpu:.0f} us without",
        values={"on_requests_per_s": on, "off_requests_per_s": off, "cost": cost},
    )
