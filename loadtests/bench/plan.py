"""Which rows there are, in the order in which they are measured and printed, and how a run goes through them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from loadtests.bench.rows import bodies, memory, programs, starts, throughput
from loadtests.bench.stage import Stage, progress
from loadtests.bench.table import Row, failed

Measure = Callable[[Stage], list[Row]]

#: `idle` comes first, while the gateway is fresh.
MEASURES: Mapping[str, Measure] = {
    "idle": memory.idle,
    "hot": throughput.hot,
    "latency": throughput.latency,
    "metering": throughput.metering,
    "warm": starts.warm,
    "memory": memory.memory,
    "burst": starts.burst,
    "bodies": bodies.bodies,
    "pool": programs.pool,
    "writer": programs.writer,
}


def measure(stage: Stage, names: Sequence[str], measures: Mapping[str, Measure] = MEASURES) -> list[Row]:
    """The rows of these measurements. One that fails becomes a row that says so, and the others go on."""
    rows: list[Row] = []
    for name in names:
        try:
            rows += measures[name](stage)
        except Exception as error:
            progress(f"{name} failed: {error}")
            rows.append(failed(name, f"{type(error).__name__}: {error}"))
    return rows
