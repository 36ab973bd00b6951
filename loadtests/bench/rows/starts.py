"""From zero: one call to a function that has no worker but a zygote, and fifty at once."""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from statistics import median
from time import perf_counter

from loadtests.bench.burst import Burst, Reply
from loadtests.bench.gateway_process import GatewayBroke
from loadtests.bench.requests import post_json
from loadtests.bench.samples import percentile
from loadtests.bench.stage import Stage, progress
from loadtests.bench.table import Row

WARM_MAX_MS = 25.0
#: What bench-heavy imports.
IMPORTS = "import numpy, scipy.linalg, scipy.optimize, scipy.stats"
SPAWN_TIMEOUT_S = 60.0
#: The last worker's end is not the first call's business.
SETTLE_S = 0.2
START_HEADER = "x-samovar-start"
BURST_TIMEOUT_S = 90.0


def warm(stage: Stage) -> list[Row]:
    """An import-heavy function's first call from zero workers, beside a spawned interpreter's imports."""
    gateway = stage.gateway()
    progress("deploying a function that needs numpy and scipy (the first time this downloads them)")
    target = gateway.deploy("heavy")
    call = Burst(target.address, (post_json(target, {}),))
    # The call after the deploy tells the interpreter; it may also be the one that starts the zygote.
    python = str(json.loads(_answered(stage.generator.burst(call)[0]).body)["python"])
    progress(f"from zero workers, {stage.params.warm_calls} times")
    calls: list[Reply] = []
    spawned_s: list[float] = []
    every = max(1, stage.params.warm_calls // max(1, stage.params.spawned))
    for number in range(stage.params.warm_calls):
        gateway.wait_for_zero("heavy")
        if number % every == 0 and len(spawned_s) < stage.params.spawned:
            spawned_s.append(_spawn(python))
        time.sleep(SETTLE_S)
        calls.append(_answered(stage.generator.burst(call)[0]))
    return [warm_row(calls, spawned_s)]


def _answered(reply: Reply) -> Reply:
    if reply.status != 200:
        raise GatewayBroke(f"a call was answered {reply.status}: {reply.error or reply.body[:500]!r}")
    return reply


def _spawn(python: str) -> float:
    """Seconds that a fresh interpreter of the same environment takes for the same imports."""
    began = perf_counter()
    subprocess.run([python, "-c", IMPORTS], check=True, stdin=subprocess.DEVNULL, timeout=SPAWN_TIMEOUT_S)
    return perf_counter() - began


def warm_row(calls: Sequence[Reply], spawned_s: Sequence[float]) -> Row:
    """The row of calls that each found no worker. Raises GatewayBroke when one was not started `warm`."""
    kinds = Counter(reply.headers.get(START_HEADER, "none") for reply in calls)
    if set(kinds) != {"warm"}:
        raise GatewayBroke(f"calls from zero workers were started {_counted(kinds)}, not all warm")
    milliseconds = sorted(reply.nanoseconds / 1e6 for reply in calls)
    ours, spawned = median(milliseconds), median(spawned_s) * 1e3
    return Row(
        name="from zero, numpy + scipy (warm), median",
        measured=f"{ours:.1f} ms",
        control=f"{spawned:,.0f} ms (spawned interpreter)",
        ratio=f"{spawned / ours:.0f} x faster",
        bound=f"<= {WARM_MAX_MS:.0f} ms",
        met=ours <= WARM_MAX_MS,
        note=f"{len(calls)} calls, 90th percentile {percentile(milliseconds, 0.9):.1f} ms, slowest "
        f"{milliseconds[-1]:.1f} ms; the control is `{IMPORTS}` alone, in the interpreter that the worker named",
        values={"median_ms": ours, "max_ms": milliseconds[-1], "spawned_ms": spawned},
    )


def burst(stage: Stage) -> list[Row]:
    """Fifty first calls at the same moment to a function that serves one call a worker."""
    gateway = stage.gateway()
    target = gateway.deploy("sleeper")
    count = stage.params.burst_calls
    # One call first, so that what is measured is scaling and not the first load of the environment.
    _answered(stage.generator.burst(Burst(target.address, (post_json(target, {}),)))[0])
    gateway.wait_for_zero("sleeper")
    progress(f"{count} simultaneous first calls")
    calls = (post_json(target, {}),) * count
    return [burst_row(stage.generator.burst(Burst(target.address, calls, BURST_TIMEOUT_S)))]


def burst_row(replies: Sequence[Reply]) -> Row:
    """The row of calls that all began at once."""
    good = [reply for reply in replies if reply.status == 200]
    workers = len({json.loads(reply.body)["pid"] for reply in good})
    seconds = sorted(reply.nanoseconds / 1e9 for reply in replies)
    kinds = _counted(Counter(reply.headers.get(START_HEADER, "none") for reply in good))
    bad = Counter(reply.error or f"status {reply.status}" for reply in replies if reply.status != 200)
    return Row(
        name=f"0 to {len(replies)} workers, {len(replies)} first calls at once (1 s each)",
        measured=f"{len(good)} of {len(replies)} answered in {seconds[-1]:.2f} s",
        ratio=f"{workers} workers",
        bound="all answered",
        met=len(good) == len(replies),
        note=f"first answer after {seconds[0]:.2f} s, median {median(seconds):.2f} s; starts: {kinds}"
        + (f"; not answered: {_counted(bad)}" if bad else ""),
        values={"answered": len(good), "last_s": seconds[-1], "median_s": median(seconds), "workers": workers},
    )


def _counted(kinds: Counter[str]) -> str:
    return ", ".join(f"{number} {kind}" for kind, number in kinds.most_common())
