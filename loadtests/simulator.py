"""How many events a second the pure pool decides: hot calls round and round the real `WarmPool`, on one core.

`python -m loadtests.simulator [--json] [--events N] [--functions N] [--concurrency N]`

A hot call is two events, its arrival and its end. A window of calls is kept in flight, spread over the functions;
time is virtual, with a Tick every tenth of a second of it. Events are made inside the measured loop, as the gateway
makes them. The number of sleeping functions beside the busy ones must not matter; `--sleeping` shows that.
"""

from __future__ import annotations

import argparse
import json
from collections import deque
from dataclasses import asdict, dataclass
from time import perf_counter

from warmpool.commands import Command, Dispatch, StartWorker
from warmpool.events import AgentReported, InvocationArrived, InvocationFinished, RevisionChanged, Tick, WorkerReady
from warmpool.pool import WarmPool
from warmpool.values import Need, PoolParams, RevisionSpec, Slice

#: Virtual time between two ticks, seconds.
TICK_S = 0.1
#: Best of so many runs: the machine's other work only ever slows one down.
RUNS = 5


@dataclass(frozen=True)
class Load:
    """What is driven through the pool."""

    events: int = 400_000
    functions: int = 20
    #: Functions that are known and have no calls.
    sleeping: int = 1_000
    concurrency: int = 8
    #: Calls in flight of each function.
    in_flight: int = 6
    #: Virtual calls a second over all functions.
    calls_per_s: float = 20_000.0


@dataclass(frozen=True)
class Measured:
    """What came out."""

    events: int
    seconds: float
    events_per_s: float
    decisions: int
    load: Load


def house(load: Load) -> tuple[WarmPool, list[str]]:
    """A pool with ready workers for every busy function."""
    pool = WarmPool(PoolParams(max_workers=100_000, max_starting_per_agent=100_000))
    places = 64 * load.functions
    pool.handle(AgentReported("a", (Slice("a/0", "a", "cpu", 0, places, places),), (), ()), 0.0)
    busy = [f"default/busy-{n}@1" for n in range(load.functions)]
    for name in [*busy, *(f"default/asleep-{n}@1" for n in range(load.sleeping))]:
        pool.handle(RevisionChanged(RevisionSpec(name, "e", load.concurrency, Need(memory_bytes=1))), 0.0)
    for name in busy:
        for n in range(load.in_flight):
            start(pool, pool.handle(InvocationArrived(f"warm-up/{name}/{n}", name), 0.0))
    for name in busy:
        for n in range(load.in_flight):
            pool.handle(InvocationFinished(f"warm-up/{name}/{n}"), 0.1)
    return pool, busy


def start(pool: WarmPool, commands: list[Command]) -> None:
    """Workers are ready as soon as they are ordered."""
    for command in commands:
        if isinstance(command, StartWorker):
            pool.handle(WorkerReady(command.worker), 0.0)


def run(load: Load) -> Measured:
    """One run."""
    pool, busy = house(load)
    handle = pool.handle
    window = load.functions * load.in_flight
    names = [f"0196-{n:06d}" for n in range(window * 2)]
    free = deque(names)
    running: deque[str] = deque()
    step_s = 1.0 / load.calls_per_s
    now, tick_at, decisions, turn = 1.0, 1.0 + TICK_S, 0, 0
    calls = load.events // 2
    begun = perf_counter()
    for _ in range(calls):
        now += step_s
        if len(running) == window:
            call = running.popleft()
            handle(InvocationFinished(call), now)
            free.append(call)
        call = free.popleft()
        turn = turn + 1 if turn + 1 < len(busy) else 0
        (command,) = handle(InvocationArrived(call, busy[turn]), now)
        assert type(command) is Dispatch
        running.append(call)
        if now >= tick_at:
            tick_at += TICK_S
            for other in handle(Tick(), now):
                decisions += 1
                if isinstance(other, StartWorker):
                    handle(WorkerReady(other.worker), now)
    seconds = perf_counter() - begun
    events = 2 * calls - len(running)
    return Measured(events, seconds, events / seconds, decisions, load)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a line")
    parser.add_argument("--runs", type=int, default=RUNS, help="the best of so many runs is printed")
    for name, default in asdict(Load()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default)
    given = vars(parser.parse_args())
    as_json, runs = given.pop("json"), given.pop("runs")
    load = Load(**given)
    best = max((run(load) for _ in range(runs)), key=lambda measured: measured.events_per_s)
    if as_json:
        print(json.dumps(asdict(best)))
        return
    print(
        f"pure pool: {best.events_per_s:,.0f} events/s on one core ({best.events:,} events in {best.seconds:.2f} s, "
        f"{load.functions} functions busy, {load.sleeping} asleep, concurrency {load.concurrency})"
    )


if __name__ == "__main__":
    main()
