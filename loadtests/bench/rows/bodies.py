"""Large bodies through a handler that streams them back: how fast, and whether memory stays flat meanwhile."""

from __future__ import annotations

import os

from loadtests.bench.loadgen import Load, LoadResult
from loadtests.bench.processes import MIB, RssWatch, rss_bytes
from loadtests.bench.requests import Target, post
from loadtests.bench.samples import Paired, in_turn
from loadtests.bench.stage import Stage, progress
from loadtests.bench.table import Row

SIZES_MIB = (1, 16)
GROWTH_MAX_MIB = 32.0
PAIRS = 2


def bodies(stage: Stage) -> list[Row]:
    """A row for each size."""
    gateway = stage.gateway()
    ours, control = gateway.deploy("echo"), stage.control.bytes
    _echo(stage, ours, b"small", seconds=0.2)
    pids = [gateway.pid, *gateway.worker_pids("echo")]
    rows = []
    for size in SIZES_MIB:
        progress(f"bodies of {size} MiB")
        rows.append(_row(stage, ours, control, pids, size))
    return rows


def _row(stage: Stage, ours: Target, control: Target, pids: list[int], size_mib: int) -> Row:
    body = os.urandom(size_mib * MIB)
    before = peak = rss_bytes(pids)

    def watched() -> LoadResult:
        nonlocal peak
        with RssWatch(pids) as watch:
            result = _echo(stage, ours, body, stage.params.slice_s)
        peak = max(peak, watch.peak_bytes)
        return result

    def controlled() -> LoadResult:
        return _echo(stage, control, body, stage.params.slice_s)

    slices = in_turn(watched, controlled, PAIRS)
    return body_row(slices, size_mib, peak - before)


def _echo(stage: Stage, target: Target, body: bytes, seconds: float) -> LoadResult:
    request = post(target, body, "application/octet-stream")
    # An answer that begins before the request has ended may end its connection (RFC 9112, 9.3).
    load = Load(target.address, request, 1, seconds, expected_bytes=body, redial=True)
    return stage.generator.load(load)


def body_row(slices: Paired[LoadResult], size_mib: int, growth_bytes: int) -> Row:
    """The row of echoes of bodies of one size; `growth_bytes` is of gateway and worker together."""

    def speed(result: LoadResult) -> float:
        return result.per_second * size_mib * MIB / 1e6

    ours, control = slices.medians(speed)
    growth = growth_bytes / MIB
    return Row(
        name=f"bodies of {size_mib} MiB, echoed as a stream",
        measured=f"{ours:,.0f} MB/s each way, memory {growth:+.0f} MiB",
        control=f"{control:,.0f} MB/s (aiohttp)",
        ratio=f"{slices.ratio(speed):.0%}",
        bound=f"memory < +{GROWTH_MAX_MIB:.0f} MiB",
        met=growth < GROWTH_MAX_MIB,
        values={"mb_per_s": ours, "control_mb_per_s": control, "growth_mib": growth},
    )
