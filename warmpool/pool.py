"""The warm pool: the only code that changes pool state, one event at a time.

`WarmPool` owns the books and routes each event to the few lines that know what it means; calls are in
`warmpool.calls`, workers in `warmpool.supply`, decisions in the policies. `check()` states what must always hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from math import inf
from typing import Any

from warmpool import adoption, scaling
from warmpool.autoscaler import within_bounds
from warmpool.calls import Calls
from warmpool.commands import Command, Note
from warmpool.events import (
    AgentLost,
    AgentReported,
    EnvironmentFailed,
    EnvironmentLoaded,
    Event,
    InvocationArrived,
    InvocationCancelled,
    InvocationFinished,
    RevisionChanged,
    RevisionRemoved,
    Tick,
    WorkerFailed,
    WorkerLost,
    WorkerReady,
    WorkerRequested,
)
from warmpool.invariants import check_books
from warmpool.ledger import Revision, RevisionView, Worker, WorkerView
from warmpool.rooms import room_for
from warmpool.supply import Supply
from warmpool.values import PoolParams, RevisionSpec, WorkerState

__all__ = ["WarmPool", "WorkerView", "RevisionView"]


class WarmPool:
    """See the module. Not thread-safe; never reads a clock."""

    def __init__(self, params: PoolParams | None = None) -> None:
        self.params = params if params is not None else PoolParams()
        self._revisions: dict[str, Revision] = {}
        self._supply = Supply(self.params)
        self._calls = Calls(self._revisions, self._supply)
        self._handlers: dict[type, Callable[[Any, float], list[Command]]] = {
            InvocationArrived: self._calls.arrived,
            InvocationFinished: self._calls.finished,
            InvocationCancelled: self._calls.cancelled,
            WorkerReady: self._worker_ready,
            WorkerFailed: self._worker_failed,
            WorkerLost: self._worker_lost,
            WorkerRequested: self._worker_requested,
            AgentReported: self._agent_reported,
            AgentLost: self._agent_lost,
            EnvironmentLoaded: self._environment_loaded,
            EnvironmentFailed: self._environment_failed,
            RevisionChanged: self._revision_changed,
            RevisionRemoved: self._revision_removed,
            Tick: self._tick,
        }

    def handle(self, event: Event, now: float) -> list[Command]:
        """Take one event into the books and say what to do. `now`: seconds of one monotonic clock."""
        return self._handlers[type(event)](event, now)

    def check(self) -> None:
        """Raises `warmpool.invariants.BrokenInvariant`, naming it, if the books contradict themselves."""
        check_books(self._revisions, self._calls, self._supply)

    def workers(self) -> list[WorkerView]:
        """Every worker that is not gone, oldest first."""
        return [worker.view() for worker in self._supply.workers.values()]

    def revision(self, revision: str) -> RevisionView | None:
        """One revision, or None when it is not known."""
        found = self._revisions.get(revision)
        return found.view() if found is not None else None

    def next_due(self, now: float) -> float | None:
        """When the next Tick would do something (not before `now`); None: nothing is due."""
        due = self._supply.agenda.next()
        return max(due, now) if due is not None else None

    # -- time --------------------------------------------------------------------------------------------

    def _tick(self, event: Tick, now: float) -> list[Command]:
        due = self._supply.agenda.take_due(now)
        if not due:
            return []
        out: list[Command] = []
        self._supply.tick(now, out)
        for revision in due:
            if not revision.removed:
                self._decide(revision, now, out)
        return out

    def _decide(self, revision: Revision, now: float, out: list[Command]) -> None:
        """Let the policies look at one revision, and carry out what they say."""
        before = revision.want
        outcome = scaling.decide(revision, self.params, now)
        if outcome.changed:
            out.append(Note(revision.name, "scale", f"{before} -> {revision.want} workers: {revision.reason}"))
        if outcome.binding:
            self._supply.shed(revision, out)
        self._follow_up(revision, now, out)

    def _follow_up(self, revision: Revision, now: float, out: list[Command]) -> None:
        """After any change to a revision: start what is missing, and know when to look again."""
        self._supply.fill(revision, now, out)
        self._supply.plan(revision, now)

    # -- workers -----------------------------------------------------------------------------------------

    def _worker_ready(self, event: WorkerReady, now: float) -> list[Command]:
        worker = self._supply.workers.get(event.worker)
        out: list[Command] = []
        if worker is not None and worker.state is WorkerState.STARTING:
            self._supply.capacity.started(worker)
            self._serve(worker, now, out)
            self._follow_up(worker.revision, now, out)
            self._supply.retry_short(now, out)
        return out

    def _serve(self, worker: Worker, now: float, out: list[Command]) -> None:
        """A starting worker serves from now on."""
        revision = worker.revision
        worker.move(WorkerState.READY)
        worker.ready_at = worker.idle_since = now
        revision.starting -= 1
        revision.ready += 1
        revision.failures = 0
        revision.backed_off_by_function = False
        revision.retry_at = -inf
        revision.last_activity = now
        if now < revision.asked_until:
            self._hold(revision, now)
        self._calls.serve(worker, out)

    @staticmethod
    def _hold(revision: Revision, now: float) -> None:
        """What was asked for is there; it stays for the idle timeout."""
        revision.asked_until = -inf
        revision.held_until = now + revision.spec.scale.idle_timeout_s
        revision.floor = scaling.floor_of(revision, now)

    def _worker_failed(self, event: WorkerFailed, now: float) -> list[Command]:
        worker = self._supply.workers.get(event.worker)
        if worker is None or worker.state is WorkerState.READY:
            return []
        out: list[Command] = []
        starting = worker.state is WorkerState.STARTING
        self._supply.end(worker, WorkerState.GONE, now)
        if starting:
            self._start_failed(worker, event.reason, event.by_function, now, out)
        self._after_end(worker.revision, now, out)
        return out

    def _start_failed(self, worker: Worker, why: str, by_function: bool, now: float, out: list[Command]) -> None:
        """Wait before the next start. If it was the function's own code and nobody else serves, tell who waits."""
        revision = worker.revision
        if worker.since > revision.failed_at:  # failures of one volley count once
            wait_s = self.params.start_backoff_s * 2.0 ** min(revision.failures, 30)
            revision.failures += 1
            revision.failed_at = now
            revision.retry_at = now + min(wait_s, self.params.start_backoff_max_s)
            wait_s = revision.retry_at - now
            out.append(Note(revision.name, "back off", f"no start for {wait_s:.3g} s: {why}"))
        revision.backed_off_by_function = by_function
        if by_function and not revision.alive:
            revision.asked_until = -inf
            revision.floor = scaling.floor_of(revision, now)
            self._calls.reject_waiting(revision, "start_failed", why, now, out)

    def _worker_lost(self, event: WorkerLost, now: float) -> list[Command]:
        worker = self._supply.workers.get(event.worker)
        if worker is None:
            return []
        out: list[Command] = []
        starting = worker.state is WorkerState.STARTING
        died_unused = worker.state is WorkerState.READY and worker.unused
        self._bury([worker], now)
        if starting:
            self._start_failed(worker, event.reason, False, now, out)
        elif died_unused:
            # Or a minimum of workers that die at once would be started as fast as they die.
            worker.revision.retry_at = max(worker.revision.retry_at, now + self.params.start_backoff_s)
        self._after_end(worker.revision, now, out)
        return out

    def _bury(self, workers: Iterable[Worker], now: float) -> dict[Revision, None]:
        """Workers are gone, whatever they were doing. Gives the revisions to look after."""
        lost = list(workers)
        for worker in lost:
            draining = worker.state is WorkerState.DRAINING
            self._supply.end(worker, WorkerState.GONE if draining else WorkerState.LOST, now)
        self._calls.drop(lost, now)
        return dict.fromkeys(worker.revision for worker in lost)

    def _after_end(self, revision: Revision, now: float, out: list[Command]) -> None:
        self._supply.retry_short(now, out)  # others may have waited longer for the place than its own successor
        if not revision.removed:
            self._follow_up(revision, now, out)

    def _worker_requested(self, event: WorkerRequested, now: float) -> list[Command]:
        revision = self._revisions.get(event.revision)
        if revision is None:
            return []
        out: list[Command] = []
        revision.last_activity = now
        if revision.ready:
            self._hold(revision, now)
        else:
            revision.asked_until = now + self.params.request_expires_s
            revision.floor = scaling.floor_of(revision, now)
            revision.want = max(revision.want, revision.floor)
            revision.reason = f"asked for: {event.reason}"
        self._follow_up(revision, now, out)
        return out

    # -- revisions ---------------------------------------------------------------------------------------

    def _revision_changed(self, event: RevisionChanged, now: float) -> list[Command]:
        out: list[Command] = []
        spec = event.spec
        revision = self._revisions.get(spec.revision)
        if revision is None:
            revision = Revision(spec, room_for(spec.concurrency), now)
            self._revisions[spec.revision] = revision
        else:
            spec = self._keep_immutable(revision.spec, spec, out)
            if spec.reachable and not revision.spec.reachable:
                revision.last_activity = now
            elif revision.spec.reachable and not spec.reachable:
                revision.held_until = -inf
            before, revision.spec = revision.spec.scale, spec
            scaling.renew_windows(revision, before, now)
        revision.idle_timeout_s = spec.scale.idle_timeout_s if spec.reachable else 0.0
        self._supply.environments.use(revision, self._supply.capacity.agents.values(), out)
        revision.floor = scaling.floor_of(revision, now)
        want = max(revision.want, revision.floor)
        revision.want = within_bounds(want, 0, spec.scale.max_workers)
        self._supply.shed(revision, out)
        self._decide(revision, now, out)
        return out

    @staticmethod
    def _keep_immutable(old: RevisionSpec, new: RevisionSpec, out: list[Command]) -> RevisionSpec:
        kept = replace(new, environment=old.environment, concurrency=old.concurrency, need=old.need)
        if kept != new:
            reason = "environment, concurrency and need of a revision do not change; the rest was taken"
            out.append(Note(new.revision, "settings", reason))
        return kept

    def _revision_removed(self, event: RevisionRemoved, now: float) -> list[Command]:
        revision = self._revisions.pop(event.revision, None)
        if revision is None:
            return []
        out: list[Command] = []
        revision.removed = True
        revision.want = revision.floor = 0
        revision.reason = "the revision was removed"
        self._supply.forget_date(revision)
        self._calls.reject_waiting(revision, "revision_removed", revision.reason, now, out)
        for worker in list(revision.workers.values()):
            if worker.idle or worker.state is WorkerState.STARTING:
                self._supply.stop(worker, revision.reason, out)
            elif worker.state is WorkerState.READY and not worker.leaving:
                revision.room.remove(worker)
                worker.leaving = True
                revision.leaving[worker] = None
        self._supply.environments.disuse(revision, self._supply.capacity.agents.values(), out)
        self._supply.retry_short(now, out)
        return out

    # -- agents ------------------------------------------------------------------------------------------

    def _agent_reported(self, event: AgentReported, now: float) -> list[Command]:
        out: list[Command] = []
        supply = self._supply
        agent = supply.capacity.offer(event.agent, event.slices)
        supply.environments.reported(agent, event.environments, out)
        gone = adoption.not_held(agent, event.workers)
        names = {worker.name for worker in gone}
        adoption.stop_orphans(gone, out)
        touched = self._bury(gone, now)
        supply.capacity.forget_withdrawn(agent)
        adopted: dict[Revision, None] = {}
        for held in event.workers:
            if held.worker in names:
                continue
            worker = adoption.adopt(held, agent, self._revisions, supply, now, out)
            if worker is not None:
                self._serve(worker, now, out)
                adopted[worker.revision] = None
        for revision in adopted:
            scaling.after_adoption(revision, self.params, now)
        for revision in {**touched, **adopted}:
            self._after_end(revision, now, out)
        supply.retry_short(now, out)
        return out

    def _agent_lost(self, event: AgentLost, now: float) -> list[Command]:
        out: list[Command] = []
        agent = self._supply.capacity.agents.get(event.agent)
        if agent is not None:
            touched = self._bury(list(agent.workers.values()), now)
            del self._supply.capacity.agents[event.agent]
            for revision in touched:
                self._after_end(revision, now, out)
        return out

    def _environment_loaded(self, event: EnvironmentLoaded, now: float) -> list[Command]:
        out: list[Command] = []
        agent = self._supply.capacity.agents.get(event.agent)
        if agent is not None:
            self._supply.environments.loaded(agent, event.environment, event.forkable, out)
        return out

    def _environment_failed(self, event: EnvironmentFailed, now: float) -> list[Command]:
        agent = self._supply.capacity.agents.get(event.agent)
        if agent is not None:
            self._supply.environments.failed(agent, event.environment, now)
        return []
