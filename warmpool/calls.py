"""The calls: who waits, who runs where, and which worker takes which. Three events of every four end up here.

One first-come queue for each revision. The next worker that has room takes the next call; a call is never bound to
a worker before that.
"""

from __future__ import annotations

from collections.abc import Iterable

from warmpool import scaling
from warmpool.commands import Command, Dispatch, Reject
from warmpool.events import InvocationArrived, InvocationCancelled, InvocationFinished
from warmpool.ledger import Revision, Worker
from warmpool.supply import Supply
from warmpool.values import StartKind

# Reasons of the hot path are constants: building text would cost more than the decision.
HAD_ROOM = "a ready worker had room"
GOT_ROOM = "first in the queue when a worker got room"
BECAME_READY = "first in the queue when a worker became ready"

HOT = StartKind.HOT
#: A named tuple made straight from its fields takes half the time of calling its class.
_new = tuple.__new__


class Calls:
    """Every call that is queued or running."""

    def __init__(self, revisions: dict[str, Revision], supply: Supply) -> None:
        self._revisions = revisions
        self._supply = supply
        self._every_s = supply.params.evaluate_every_s
        #: A call is held by its worker, or by its revision while it waits.
        self.holders: dict[str, Worker | Revision] = {}
        self.waiting = 0
        #: Workers that ever became ready.
        self.ready_count = 0

    # -- events ------------------------------------------------------------------------------------------

    def arrived(self, event: InvocationArrived, now: float) -> list[Command]:
        """A ready worker with room takes it at once; else it waits, and workers are started for it."""
        invocation, name = event
        holders = self.holders
        if invocation in holders:
            return []
        revision = self._revisions.get(name)
        if revision is None:
            return [Reject(invocation, "unknown_revision", "the pool does not know this revision", 0.0)]
        worker = revision.room.take()
        if worker is None and (not revision.leaving or (worker := self._take_leaving(revision)) is None):
            return self._wait(revision, invocation, now)
        holders[invocation] = worker
        revision.meter.enter(now)
        if revision.due > now + self._every_s:
            self._wake(revision, now)
        return [_new(Dispatch, (invocation, worker.name, HOT, HAD_ROOM))]

    def finished(self, event: InvocationFinished, now: float) -> list[Command]:
        """The worker takes the next call, or is idle."""
        invocation = event[0]
        worker = self.holders.pop(invocation, None)
        if type(worker) is not Worker:
            if worker is not None:  # it still waits: nothing of it can have finished
                self.holders[invocation] = worker
            return []
        revision = worker.revision
        revision.meter.leave(now)
        revision.finished += 1
        if revision.waiting:
            return [self._next(revision, worker, GOT_ROOM)]
        if worker.leaving:
            return self._finished_on_leaving(worker, now)
        revision.room.give(worker)
        if not worker.in_flight:
            worker.idle_since = now
            if not revision.meter.level:
                self._asleep(revision, now)
        return []

    def cancelled(self, event: InvocationCancelled, now: float) -> list[Command]:
        """A waiting call leaves the queue; the workers that were started for it start on."""
        revision = self.holders.get(event.invocation)
        if type(revision) is not Revision:
            return []
        del self.holders[event.invocation]
        del revision.waiting[event.invocation]
        self.waiting -= 1
        self._left(revision, now)
        out: list[Command] = []
        self._supply.fill(revision, now, out)
        return out

    # -- waiting -----------------------------------------------------------------------------------------

    def _wait(self, revision: Revision, invocation: str, now: float) -> list[Command]:
        spec = revision.spec
        queued = len(revision.waiting)
        if queued >= spec.queue_limit or self.waiting >= self._supply.params.max_queued:
            which = "revision" if queued >= spec.queue_limit else "pool"
            reason = f"the {which}'s queue is full: {queued} calls of the revision wait, {self.waiting} in all"
            return [Reject(invocation, "queue_full", reason, scaling.retry_after_s(revision, now))]
        away_s = revision.retry_at - now
        if revision.backed_off_by_function and not revision.alive and away_s > self._supply.params.start_backoff_wait_s:
            reason = f"{revision.failures} starts failed in a row; the next is tried in {away_s:.3g} s"
            return [Reject(invocation, "start_failed", reason, away_s)]
        self.holders[invocation] = revision
        revision.waiting[invocation] = self.ready_count
        self.waiting += 1
        revision.meter.enter(now)
        out: list[Command] = []
        self._supply.fill(revision, now, out)
        if revision.due > now + self._every_s:
            self._wake(revision, now)
        if revision.unmet or revision.retry_at > now:
            self._supply.plan(revision, now)
        return out

    def _next(self, revision: Revision, worker: Worker, reason: str) -> Dispatch:
        invocation, seen = revision.waiting.popitem(last=False)
        self.waiting -= 1
        if revision.unmet:
            self._supply.recount(revision)
        self.holders[invocation] = worker
        return Dispatch(invocation, worker.name, HOT if worker.ready_order <= seen else worker.start_kind, reason)

    def serve(self, worker: Worker, out: list[Command]) -> None:
        """A worker that just became ready takes as many calls as it serves at once, then has its place in the room."""
        revision = worker.revision
        self.ready_count += 1
        worker.ready_order = self.ready_count
        while revision.waiting and worker.in_flight < revision.concurrency:
            worker.in_flight += 1
            out.append(self._next(revision, worker, BECAME_READY))
        revision.room.add(worker)

    def reject_waiting(self, revision: Revision, code: str, reason: str, now: float, out: list[Command]) -> None:
        """Answer every waiting call of a revision so."""
        retry_s = scaling.retry_after_s(revision, now)
        self.waiting -= len(revision.waiting)
        for invocation in revision.waiting:
            del self.holders[invocation]
            self._left(revision, now)
            out.append(Reject(invocation, code, reason, retry_s))
        revision.waiting.clear()

    # -- leaving workers ---------------------------------------------------------------------------------

    def _take_leaving(self, revision: Revision) -> Worker | None:
        for worker in revision.leaving:
            if worker.in_flight < revision.concurrency:
                self._supply.keep(worker)
                return revision.room.take()
        return None

    def _finished_on_leaving(self, worker: Worker, now: float) -> list[Command]:
        worker.in_flight -= 1
        if worker.in_flight:
            return []
        worker.idle_since = now
        revision = worker.revision
        if not revision.meter.level:
            self._asleep(revision, now)
        out: list[Command] = []
        self._supply.stop(worker, f"surplus and idle now: {revision.reason}", out)
        return out

    # -- lost workers ------------------------------------------------------------------------------------

    def drop(self, workers: Iterable[Worker], now: float) -> None:
        """Their calls count as finished; whoever carries the calls has answered them."""
        lost = {worker for worker in workers if worker.in_flight}
        if not lost:
            return
        gone = [invocation for invocation, holder in self.holders.items() if holder in lost]
        for invocation in gone:
            worker = self.holders.pop(invocation)
            assert isinstance(worker, Worker)
            worker.in_flight -= 1
            worker.revision.finished += 1
            self._left(worker.revision, now)

    # -- sleep and wake ----------------------------------------------------------------------------------

    def _left(self, revision: Revision, now: float) -> None:
        revision.meter.leave(now)
        if not revision.meter.level:
            self._asleep(revision, now)

    def _asleep(self, revision: Revision, now: float) -> None:
        """The last call is gone: have a Tick look when the idle timeout has passed."""
        revision.last_activity = now
        due = now + revision.idle_timeout_s
        if due < revision.due and not revision.removed:
            self._supply.agenda.set(revision, due)
        if not revision.workers:
            revision.meter.pause(now)

    def _wake(self, revision: Revision, now: float) -> None:
        """Calls came after a rest: have the autoscaler look one period from now."""
        if revision.next_decision <= now:
            revision.next_decision = now + self._every_s
        self._supply.agenda.set(revision, min(revision.due, revision.next_decision))
