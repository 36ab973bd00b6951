"""A pool with a clock one can turn, checked after every event."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from warmpool import commands, events
from warmpool.pool import WarmPool
from warmpool.values import Need, PoolParams, RevisionSpec, ScaleParams, Slice

MIB = 1024 * 1024


class House:
    """One pool, its time, and short words for what happens to it."""

    def __init__(self, params: PoolParams | None = None) -> None:
        self.pool = WarmPool(params)
        self.now = 100.0
        self.specs: dict[str, RevisionSpec] = {}

    def tell(self, event: events.Event, at: float | None = None) -> list[commands.Command]:
        if at is not None:
            self.now = at
        out = self.pool.handle(event, self.now)
        self.pool.check()
        return out

    def agent(self, name: str = "a", *, mib: int = 16 * 1024, places: int = 64, slices: int = 1, **rest: object):
        offered = tuple(
            Slice(f"{name}/{n}", name, str(rest.get("kind", "cpu")), 1000, mib * MIB, places) for n in range(slices)
        )
        held = tuple(events.HeldWorker(*one) for one in rest.get("held", ()))
        return self.tell(events.AgentReported(name, offered, held, tuple(rest.get("environments", ("env",)))))

    def revision(self, name: str = "f", *, concurrency: int = 1, environment: str = "env", mib: int = 256, **rest):
        own = {key: rest.pop(key) for key in ("reachable", "preload", "queue_limit") if key in rest}
        self.specs[name] = RevisionSpec(
            name, environment, concurrency, Need(memory_bytes=mib * MIB), ScaleParams(**rest), **own
        )
        return self.tell(events.RevisionChanged(self.specs[name]))

    def call(self, name: str, revision: str = "f") -> list[commands.Command]:
        return self.tell(events.InvocationArrived(name, revision))

    def calls(self, count: int, revision: str = "f", first: int = 0) -> list[commands.Command]:
        return [one for n in range(first, first + count) for one in self.call(f"{revision}-{n}", revision)]

    def finish(self, *names: str) -> list[commands.Command]:
        return [one for name in names for one in self.tell(events.InvocationFinished(name))]

    def cancel(self, name: str) -> list[commands.Command]:
        return self.tell(events.InvocationCancelled(name))

    def ready(self, *workers: str) -> list[commands.Command]:
        return [one for worker in workers for one in self.tell(events.WorkerReady(worker))]

    def lost(self, *workers: str) -> list[commands.Command]:
        return [one for worker in workers for one in self.tell(events.WorkerLost(worker, "killed by signal 9"))]

    def failed(self, worker: str, by_function: bool = False) -> list[commands.Command]:
        return self.tell(events.WorkerFailed(worker, "ImportError: no", by_function))

    def pass_time(self, seconds: float) -> list[commands.Command]:
        """Tick whenever something is due, until so many seconds have passed."""
        end, out = self.now + seconds, []
        while (due := self.pool.next_due(self.now)) is not None and due <= end:
            out += self.tell(events.Tick(), at=due)
        self.now = end
        return out

    def view(self, revision: str = "f"):
        return self.pool.revision(revision)

    def states(self, revision: str = "f") -> dict[str, str]:
        return {view.worker: str(view.state) for view in self.pool.workers() if view.revision == revision}

    @staticmethod
    def of(kind: type, out: list[commands.Command]) -> list:
        return [one for one in out if type(one) is kind]

    def started(self, out: list[commands.Command]) -> list[str]:
        return [one.worker for one in out if type(one) is commands.StartWorker]

    def stopped(self, out: list[commands.Command]) -> list[str]:
        return [one.worker for one in out if type(one) is commands.StopWorker]

    def sent(self, out: list[commands.Command]) -> list[tuple[str, str, str]]:
        return [(one.invocation, one.worker, str(one.start_kind)) for one in out if type(one) is commands.Dispatch]


@pytest.fixture
def house() -> House:
    """A pool with the default bounds and one roomy agent that has the environment."""
    built = House()
    built.tell(events.RevisionChanged(RevisionSpec("other", "env")))
    built.agent()
    return built


@pytest.fixture
def build() -> Callable[..., House]:
    """Make a pool with bounds of one's own and nothing in it."""
    return lambda **bounds: House(PoolParams(**bounds))
