"""The pool's books: one record for each revision and one for each worker, and what may follow what.

Records are plain slots; they belong to `WarmPool` and nobody outside `warmpool` sees them, but as views.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from math import inf
from typing import NamedTuple, Protocol

from warmpool.autoscaler import ScalerState, window_seconds
from warmpool.values import Need, RevisionSpec, StartKind, WorkerState
from warmpool.windows import ConcurrencyMeter

#: STARTING -> READY -> DRAINING -> GONE; LOST from anywhere that is not the end.
MOVES: dict[WorkerState, tuple[WorkerState, ...]] = {
    WorkerState.STARTING: (WorkerState.READY, WorkerState.DRAINING, WorkerState.GONE, WorkerState.LOST),
    WorkerState.READY: (WorkerState.DRAINING, WorkerState.LOST),
    WorkerState.DRAINING: (WorkerState.GONE, WorkerState.LOST),
    WorkerState.GONE: (),
    WorkerState.LOST: (),
}


class IllegalMove(AssertionError):
    """A worker was to go where the table does not lead."""


class WorkerView(NamedTuple):
    """A worker for `samovar ps`. Times are those of the pool's clock; `idle_since` counts while nothing runs."""

    worker: str
    revision: str
    state: WorkerState
    start_kind: StartKind
    agent: str
    slice_id: str
    in_flight: int
    since: float
    idle_since: float
    concurrency: int


class RevisionView(NamedTuple):
    """A revision for `samovar list`. `wanted` workers for this `reason`, the latest decision in plain words."""

    revision: str
    queued: int
    running: int
    ready: int
    starting: int
    draining: int
    wanted: int
    reason: str


class Worker:
    """A worker from the order to start it until it is known to be gone. Compared and hashed by identity."""

    __slots__ = (
        "agent", "idle_since", "in_flight", "leaving", "name", "need", "ready_at", "ready_order",
        "revision", "since", "slice_id", "start_kind", "state",
    )  # fmt: skip

    def __init__(
        self, name: str, revision: Revision, agent: str, slice_id: str, need: Need, kind: StartKind, now: float
    ) -> None:
        self.name = name
        self.revision = revision
        self.agent = agent
        self.slice_id = slice_id
        #: What it takes from its slice, as it was when it was placed.
        self.need = need
        self.start_kind = kind
        self.state = WorkerState.STARTING
        self.in_flight = 0
        self.since = now
        self.idle_since = now
        #: Surplus but busy: takes calls only when nobody else can, and goes when it is idle.
        self.leaving = False
        #: Place among all workers that ever became ready; says who was ready before a call came.
        self.ready_order = 0
        self.ready_at = now

    @property
    def idle(self) -> bool:
        """Ready with nothing to do."""
        return self.state is WorkerState.READY and not self.in_flight

    @property
    def unused(self) -> bool:
        """Nothing has run on it since it became ready."""
        return not self.in_flight and self.idle_since == self.ready_at

    def move(self, state: WorkerState) -> None:
        """Change the state. Raises IllegalMove when the table does not have it."""
        if state not in MOVES[self.state]:
            raise IllegalMove(f"worker {self.name}: {self.state} -> {state}")
        self.state = state

    def view(self) -> WorkerView:
        """For people."""
        return WorkerView(
            self.name,
            self.revision.name,
            self.state,
            self.start_kind,
            self.agent,
            self.slice_id,
            self.in_flight,
            self.since,
            self.idle_since,
            self.revision.concurrency,
        )


class Room(Protocol):
    """The ready workers of one revision that have room; owns their `in_flight`. See warmpool.rooms."""

    def take(self) -> Worker | None:
        """Choose a worker and count one call more on it; None when there is no room."""

    def give(self, worker: Worker) -> None:
        """One call less on a worker that was taken here."""

    def add(self, worker: Worker) -> None:
        """A worker serves from now on, with the calls it already has."""

    def remove(self, worker: Worker) -> None:
        """A worker does not take calls by rule any more."""

    def __iter__(self) -> Iterator[Worker]:
        """Those with room."""


class Revision:
    """All that the pool knows of one revision: its settings, queue, workers, demand and decisions."""

    __slots__ = (
        "asked_until", "backed_off_by_function", "concurrency", "draining", "due", "failed_at", "failures", "finished",
        "floor", "held_until", "idle_timeout_s", "last_activity", "leaving", "meter", "name", "next_decision",
        "rate", "rated_at", "rated_finished", "ready", "reason", "refusal", "removed", "retry_at", "room", "scaler",
        "spec", "starting", "unmet", "unmet_by_calls", "waiting", "want", "workers",
    )  # fmt: skip

    def __init__(self, spec: RevisionSpec, room: Room, now: float) -> None:
        self.name = spec.revision
        self.spec = spec
        self.concurrency = max(1, spec.concurrency)
        self.removed = False
        #: From the last activity to the wish to go; 0 for an unreachable revision.
        self.idle_timeout_s = 0.0
        #: Waiting calls, first come first, with the number of workers that were ever ready when each came.
        self.waiting: OrderedDict[str, int] = OrderedDict()
        self.room = room
        #: Busy workers that go when they are idle; they still have room if nobody else has.
        self.leaving: dict[Worker, None] = {}
        #: Every worker that is not gone, draining ones included.
        self.workers: dict[str, Worker] = {}
        self.ready = self.starting = self.draining = 0
        #: Calls queued or running, and their averages.
        self.meter = ConcurrencyMeter(*window_seconds(spec.scale))
        self.scaler = ScalerState()
        self.next_decision = now
        #: Workers to hold while calls are there, and to have even without any.
        self.want = self.floor = 0
        self.reason = "no call yet"
        #: When the next Tick has something to do here.
        self.due = inf
        self.last_activity = now
        #: A worker was asked for and is to be there; until when this is tried, and how long the worker then stays.
        self.asked_until = self.held_until = -inf
        #: Starts in a row that came to nothing, when the last did, and when the next may be tried.
        self.failures = 0
        self.failed_at = self.retry_at = -inf
        self.backed_off_by_function = False
        #: Calls ended, and how many a second lately: for the estimate in Retry-After.
        self.finished = self.rated_finished = 0
        self.rated_at, self.rate = now, 0.0
        #: Workers that are missing for want of a place, how many of them calls wait for, and why there is none.
        self.unmet = self.unmet_by_calls = 0
        self.refusal = ""

    @property
    def alive(self) -> int:
        """Workers that serve or will."""
        return self.ready + self.starting

    def view(self) -> RevisionView:
        """For people."""
        running = self.meter.level - len(self.waiting)
        return RevisionView(
            self.name, len(self.waiting), running, self.ready, self.starting, self.draining, self.want, self.reason
        )
