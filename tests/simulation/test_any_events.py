"""Hypothesis sends any event at any time: late, duplicate, unknown, contradictory. The books must hold all the same."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from warmpool import commands, events
from warmpool.pool import WarmPool
from warmpool.values import Need, PoolParams, RevisionSpec, ScaleParams, Slice

PARAMS = PoolParams(
    max_workers=6,
    max_queued=12,
    max_starting_per_agent=3,
    max_environments_per_agent=2,
    start_backoff_s=0.5,
    start_backoff_max_s=4.0,
    start_backoff_wait_s=1.0,
)
CALLS = st.sampled_from([f"call{n}" for n in range(16)])
REVISIONS = st.sampled_from(["f", "g", "h"])
WORKERS = st.sampled_from([f"w-{n}" for n in range(1, 24)] + ["old-1", "old-2", "nobody"])
AGENTS = st.sampled_from(["a", "b"])
ENVIRONMENTS = st.sampled_from(["e1", "e2", "e3"])
SLICES = st.sampled_from(["0", "1", "2"])
SPECS = st.builds(
    RevisionSpec,
    revision=REVISIONS,
    environment=ENVIRONMENTS,
    concurrency=st.sampled_from([1, 2, 5]),
    need=st.builds(Need, memory_bytes=st.sampled_from([1, 3]), slice_kind=st.sampled_from(["cpu", "cpu", "gpu"])),
    scale=st.builds(
        ScaleParams,
        min_workers=st.integers(0, 2),
        max_workers=st.integers(0, 3),
        idle_timeout_s=st.sampled_from([0.0, 0.5, 5.0]),
        stable_window_s=st.sampled_from([6.0, 60.0]),
        scale_down_delay_s=st.sampled_from([0.0, 4.0]),
    ),
    queue_limit=st.sampled_from([0, 3, 100]),
    reachable=st.booleans(),
    preload=st.sampled_from([(), ("numpy",), ("numpy", "scipy")]),
)


class AnyEvents(RuleBasedStateMachine):
    """Any event; one oracle: who was answered."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = WarmPool(PARAMS)
        self.now = 50.0
        self.log: list[tuple[float, events.Event]] = []
        self.commands: list[commands.Command] = []
        self.waiting: dict[str, None] = {}
        self.running: dict[str, str] = {}

    def tell(self, event: events.Event) -> None:
        self.log.append((self.now, event))
        if type(event) is events.InvocationArrived and event.invocation not in self.running:
            self.waiting.setdefault(event.invocation)
        if type(event) is events.InvocationFinished:
            self.running.pop(event.invocation, None)
        if type(event) is events.InvocationCancelled:
            self.waiting.pop(event.invocation, None)
        out = self.pool.handle(event, self.now)
        self.commands += out
        alive = {view.worker for view in self.pool.workers()}
        self.running = {call: worker for call, worker in self.running.items() if worker in alive}
        for command in out:
            if type(command) is commands.Dispatch:
                assert command.invocation in self.waiting, f"{command} was answered before"
                del self.waiting[command.invocation]
                self.running[command.invocation] = command.worker
            elif type(command) is commands.Reject:
                assert command.invocation in self.waiting, f"{command} was answered before"
                del self.waiting[command.invocation]
            elif type(command) is commands.StopWorker:
                assert command.worker not in self.running.values(), f"{command} while it runs a call"

    @rule(call=CALLS, revision=REVISIONS)
    def arrive(self, call: str, revision: str) -> None:
        self.tell(events.InvocationArrived(call, revision))

    @rule(call=CALLS)
    def finish(self, call: str) -> None:
        self.tell(events.InvocationFinished(call))

    @rule(call=CALLS)
    def cancel(self, call: str) -> None:
        self.tell(events.InvocationCancelled(call))

    @rule(data=st.data())
    def ready(self, data: st.DataObject) -> None:
        alive = [view.worker for view in self.pool.workers()] or ["nobody"]
        self.tell(events.WorkerReady(data.draw(st.one_of(st.sampled_from(alive), WORKERS))))

    @rule(worker=WORKERS, by_function=st.booleans())
    def fail(self, worker: str, by_function: bool) -> None:
        self.tell(events.WorkerFailed(worker, "it raised", by_function))

    @rule(worker=WORKERS)
    def lose(self, worker: str) -> None:
        self.tell(events.WorkerLost(worker, "killed"))

    @rule(revision=REVISIONS)
    def request(self, revision: str) -> None:
        self.tell(events.WorkerRequested(revision, "because"))

    @rule(
        agent=AGENTS,
        slices=st.lists(st.tuples(SLICES, st.integers(0, 9), st.integers(0, 4)), max_size=3, unique_by=lambda s: s[0]),
        held=st.lists(st.tuples(WORKERS, REVISIONS, SLICES), max_size=4),
        environments=st.lists(ENVIRONMENTS, max_size=4),
    )
    def report(self, agent: str, slices: list, held: list, environments: list) -> None:
        offered = tuple(Slice(f"{agent}/{n}", agent, "cpu", 1000, memory, places) for n, memory, places in slices)
        workers = tuple(events.HeldWorker(worker, revision, f"{agent}/{n}") for worker, revision, n in held)
        self.tell(events.AgentReported(agent, offered, workers, tuple(environments)))

    @rule(agent=AGENTS)
    def lose_agent(self, agent: str) -> None:
        self.tell(events.AgentLost(agent))

    @rule(agent=AGENTS, environment=ENVIRONMENTS, forkable=st.booleans())
    def environment_loaded(self, agent: str, environment: str, forkable: bool) -> None:
        self.tell(events.EnvironmentLoaded(agent, environment, forkable, ""))

    @rule(agent=AGENTS, environment=ENVIRONMENTS)
    def environment_failed(self, agent: str, environment: str) -> None:
        self.tell(events.EnvironmentFailed(agent, environment, "no"))

    @rule(spec=SPECS)
    def change(self, spec: RevisionSpec) -> None:
        self.tell(events.RevisionChanged(spec))

    @rule(revision=REVISIONS)
    def remove(self, revision: str) -> None:
        self.tell(events.RevisionRemoved(revision))

    @rule(seconds=st.sampled_from([0.0, 0.1, 1.0, 2.5, 70.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.tell(events.Tick())

    @invariant()
    def the_books_hold(self) -> None:
        self.pool.check()
        views = self.pool.workers()
        assert len(views) <= PARAMS.max_workers
        assert sum(view.in_flight for view in views) == len(self.running)

    def teardown(self) -> None:
        """With no more events but ticks everything rests, and the log replays."""
        for _ in range(2_000):
            due = self.pool.next_due(self.now)
            if due is None or due > self.now + 1_000.0:
                break
            self.now = max(due, self.now + 0.01)
            for view in self.pool.workers():
                if view.state == "draining":
                    self.tell(events.WorkerLost(view.worker, "stopped"))
            self.tell(events.Tick())
            self.pool.check()
        fresh = WarmPool(PARAMS)
        assert [command for now, event in self.log for command in fresh.handle(event, now)] == self.commands


TestAnyEvents = AnyEvents.TestCase
TestAnyEvents.settings = settings(
    max_examples=int(os.environ.get("SAMOVAR_HYPOTHESIS_EXAMPLES", "30")),
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
