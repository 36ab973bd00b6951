"""The hot path: requests a second beside the control, latency beside the control, and what metering takes of them."""

from __future__ import annotations

from loadtests.bench.loadgen import Load, LoadResult
from loadtests.bench.requests import PAYLOAD, Target, post_json
from loadtests.bench.samples import Paired, in_turn
from loadtests.bench.stage import Stage, progress
from loadtests.bench.table import Row

HOT_RATIO_MIN = 0.60
LATENCY_DIFFERENCE_MAX_US = 120.0
METERING_COST_MAX = 0.05


def _slice(stage: Stage, target: Target, connections: int) -> LoadResult:
    request = post_json(target, PAYLOAD)
    load = Load(target.address, request, connections, stage.params.slice_s, expected_json=PAYLOAD)
    return stage.generator.load(load)


def _beside_control(stage: Stage, connections: int) -> Paired[LoadResult]:
    ours, control = stage.gateway().deploy("null"), stage.control.json
    return in_turn(
        lambda: _slice(stage, ours, connections),
        lambda: _slice(stage, control, connections),
        stage.params.pairs,
    )


def hot(stage: Stage) -> list[Row]:
    """Requests a second of the null call."""
    connections = stage.params.connections
    progress(f"hot null call, {connections} connections")
    return [hot_row(_beside_control(stage, connections), connections)]


def hot_row(slices: Paired[LoadResult], connections: int) -> Row:
    """The row of slices of the gateway and the control."""
    ours, control = slices.medians(lambda result: result.per_second)
    ratio = slices.ratio(lambda result: result.per_second)
    return Row(
        name=f"hot null call, {connections} connections",
        measured=f"{ours:,.0f} requests/s",
        control=f"{control:,.0f} requests/s (aiohttp)",
        ratio=f"{ratio:.0%}",
        bound=f">= {HOT_RATIO_MIN:.0%}",
        met=ratio >= HOT_RATIO_MIN,
        values={"requests_per_s": ours, "control_requests_per_s": control, "ratio": ratio},
    )


def latency(stage: Stage) -> list[Row]:
    """The null call on one connection."""
    progress("null call, 1 connection")
    return [latency_row(_beside_control(stage, 1))]


def latency_row(slices: Paired[LoadResult]) -> Row:
    """The row of slices of the gateway and the control."""
    ours, control = slices.medians(_median_us)
    difference = slices.difference(_median_us)
    return Row(
        name="hot null call, 1 connection, median",
        measured=f"{ours:,.0f} us",
        control=f"{control:,.0f} us (aiohttp)",
        ratio=f"{difference:+,.0f} us",
        bound=f"<= +{LATENCY_DIFFERENCE_MAX_US:.0f} us",
        met=difference <= LATENCY_DIFFERENCE_MAX_US,
        values={"median_us": ours, "control_median_us": control, "difference_us": difference},
    )


def _median_us(result: LoadResult) -> float:
    assert result.latencies is not None
    return result.latencies.median_us


def metering(stage: Stage) -> list[Row]:
    """The null call with metering on and off, on two gateways that differ in nothing else."""
    connections = stage.params.connections
    on, off = stage.gateway().deploy("null"), stage.gateway(metering=False).deploy("null")
    progress(f"metering on and off, {connections} connections")
    try:
        slices = in_turn(
            lambda: _slice(stage, on, connections),
            lambda: _slice(stage, off, connections),
            stage.params.metering_pairs,
        )
    finally:
        stage.retire(metering=False)
    return [metering_row(slices, connections)]


def metering_row(slices: Paired[LoadResult], connections: int) -> Row:
    """The row of slices with metering on and with metering off."""
    on, off = slices.medians(lambda result: result.per_second)
    cost = 1.0 - slices.ratio(lambda result: result.per_second)
    return Row(
        name=f"metering on, {connections} connections",
        measured=f"{on:,.0f} requests/s",
        control=f"{off:,.0f} requests/s (metering off)",
        ratio=f"costs {cost:.1%}",
        bound=f"<= {METERING_COST_MAX:.0%}",
        met=cost <= METERING_COST_MAX,
        values={"on_requests_per_s": on, "off_requests_per_s": off, "cost": cost},
    )
