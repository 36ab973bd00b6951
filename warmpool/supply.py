"""Workers come and go here: what is missing is started, what is surplus is stopped, what is full is made room in.

A shortage (something is missing and has no place) is remembered and looked at again whenever a place appears, one
worker for each revision in turn, and at the next Tick. Idle workers of other revisions are stopped only for calls
that wait, never for spare workers.
"""

from __future__ import annotations

from math import inf

from warmpool import scaling
from warmpool.agenda import Agenda
from warmpool.capacity import Capacity, Refusal
from warmpool.commands import Command, Note, StartWorker, StopWorker
from warmpool.environments import Environments
from warmpool.eviction import cheapest_victims
from warmpool.ledger import Revision, Worker
from warmpool.placement import Placement
from warmpool.shortages import Shortages
from warmpool.values import PoolParams, WorkerState

#: Refusals that stopping somebody's idle workers can cure.
CURABLE = (Refusal.FULL, Refusal.POOL_FULL)


class Supply:
    """All workers, and the commands that change them."""

    def __init__(self, params: PoolParams) -> None:
        self.params = params
        self.workers: dict[str, Worker] = {}
        self.capacity = Capacity(params.max_starting_per_agent)
        self.environments = Environments(params)
        self.agenda = Agenda()
        self.shortages = Shortages()
        self._draining = 0
        self._barren = False
        self._named = 0

    # -- what is missing ---------------------------------------------------------------------------------

    def missing(self, revision: Revision) -> int:
        """Workers to start now, were there room: for waiting calls, for the autoscaler's want, for the minimum."""
        if revision.removed:
            return 0
        most = revision.spec.scale.max_workers
        missing = max(self.missing_by_calls(revision), self._held(revision) - revision.alive)
        return min(missing, most - revision.alive - revision.draining) if most else missing

    @staticmethod
    def missing_by_calls(revision: Revision) -> int:
        """Starting workers are counted on; each will take as many calls as it serves at once."""
        return -(-len(revision.waiting) // revision.concurrency) - revision.starting

    @staticmethod
    def _held_back(revision: Revision, now: float) -> bool:
        """A start came to nothing lately. (A worker that died idle holds back only those nobody waits for.)"""
        return now < revision.retry_at and (revision.failures > 0 or not revision.waiting)

    @staticmethod
    def _held(revision: Revision) -> int:
        # Without calls nothing is started for a want that only looks back.
        return revision.want if revision.meter.level else revision.floor

    def fill(self, revision: Revision, now: float, out: list[Command]) -> None:
        """Start what is missing, or remember the shortage."""
        missing = self.missing(revision)
        if missing <= 0 or self._held_back(revision, now):
            self._settle_shortage(revision)
            return
        if not revision.unmet:
            refusal: Refusal | None = None
            while missing > 0 and refusal is None:
                refusal = self._start_one(revision, now, out)
                missing -= refusal is None
            if refusal is None:
                return
            self._lacks(revision, missing, refusal, out)
        else:
            self._lacks(revision, missing, self.shortages.refusal(revision), out)
        self._make_room(revision, now, out)

    def retry_short(self, now: float, out: list[Command]) -> None:
        """A place may have appeared: one worker for each short revision in turn, those with waiting calls first."""
        for need in list(self.shortages.lines):
            while (revision := self.shortages.first(need)) is not None:
                missing = self.missing(revision)
                if missing <= 0 or self._held_back(revision, now):
                    self._settle_shortage(revision)
                    continue
                refusal = self._start_one(revision, now, out)
                if refusal is None or refusal is Refusal.STARTING:
                    # To the end of the line: it has had its turn, or what hinders it may not hinder the next.
                    self.shortages.remove(revision)
                if refusal is not None:
                    self._lacks(revision, missing, refusal, out)
                    break
                if missing > 1:
                    self._lacks(revision, missing - 1, revision.refusal, out)
                else:
                    self._settle_shortage(revision)

    def tick(self, now: float, out: list[Command]) -> None:
        """Victims may have become idle since the last time."""
        self._barren = False
        self.retry_short(now, out)

    def plan(self, revision: Revision, now: float) -> None:
        """Set the revision's date with the next Tick."""
        self.agenda.set(revision, scaling.next_date(revision, self.missing(revision), self.params, now))

    # -- starting ----------------------------------------------------------------------------------------

    def _start_one(self, revision: Revision, now: float, out: list[Command]) -> Refusal | None:
        if len(self.workers) >= self.params.max_workers:
            return Refusal.POOL_FULL
        spec = revision.spec
        spot = self.capacity.place(spec.need, spec.environment, self.environments.may_host)
        if isinstance(spot, Refusal):
            return spot
        self._start(revision, spot, now, out)
        return None

    def _start(self, revision: Revision, spot: Placement, now: float, out: list[Command]) -> None:
        spec = revision.spec
        agent = self.capacity.agents[spot.agent]
        kind = self.environments.start(agent, spec.environment, now, out)
        name = self._new_name()
        worker = Worker(name, revision, spot.agent, spot.slice_id, spec.need, kind, now)
        self.enlist(worker, starting=True)
        revision.meter.resume(now)
        waiting = len(revision.waiting)
        why = f"calls waiting: {waiting}" if waiting else f"{self._held(revision)} wanted: {revision.reason}"
        reason = f"{why}; {revision.ready} ready, {revision.starting} starting with this one; {spot.reason}"
        revision.want = max(revision.want, revision.alive)
        out.append(StartWorker(name, revision.name, spot.agent, spot.slice_id, kind, reason))

    def _new_name(self) -> str:
        """A name no worker has, not even one that an agent brought along."""
        while True:
            self._named += 1
            name = f"{self.params.worker_prefix}-{self._named}"
            if name not in self.workers:
                return name

    def enlist(self, worker: Worker, starting: bool) -> None:
        """A worker enters the books."""
        self.workers[worker.name] = worker
        worker.revision.workers[worker.name] = worker
        worker.revision.starting += 1
        self.capacity.occupy(worker, starting)

    # -- stopping ----------------------------------------------------------------------------------------

    def stop(self, worker: Worker, reason: str, out: list[Command]) -> None:
        """Order the end of a worker that runs nothing; it keeps its share until it is gone."""
        self._leave_state(worker)
        worker.move(WorkerState.DRAINING)
        worker.revision.draining += 1
        self._draining += 1
        out.append(StopWorker(worker.name, worker.agent, reason))

    def shed(self, revision: Revision, out: list[Command]) -> None:
        """Take surplus workers away: idle ones at once, longest idle first; busy ones leave when they are idle."""
        surplus = revision.alive - revision.want
        if surplus > 0 and revision.ready:
            idle = [worker for worker in revision.workers.values() if worker.idle]
            idle.sort(key=_idle_since)
            for worker in idle[:surplus]:
                self.stop(worker, f"{revision.alive} workers, {revision.want} wanted: {revision.reason}", out)
        self._choose_leaving(revision, min(revision.alive - revision.want, revision.ready - 1))

    def _choose_leaving(self, revision: Revision, count: int) -> None:
        """Have exactly `count` busy workers leave. One at a time per worker drains by itself."""
        leaving = revision.leaving
        if revision.concurrency == 1 or count <= 0:
            while leaving:
                self.keep(next(iter(leaving)))
            return
        while len(leaving) > count:
            self.keep(next(reversed(leaving)))
        if len(leaving) < count:
            ready = [w for w in revision.workers.values() if w.state is WorkerState.READY and not w.leaving]
            ready.sort(key=_in_flight)
            for worker in ready[: count - len(leaving)]:
                revision.room.remove(worker)
                worker.leaving = True
                leaving[worker] = None

    def keep(self, worker: Worker) -> None:
        """A leaving worker stays after all."""
        worker.leaving = False
        del worker.revision.leaving[worker]
        worker.revision.room.add(worker)

    def end(self, worker: Worker, state: WorkerState, now: float) -> None:
        """A worker is gone: out of every book. Its calls are the caller's business."""
        revision = worker.revision
        self._leave_state(worker)
        worker.move(state)
        del self.workers[worker.name]
        del revision.workers[worker.name]
        self.capacity.release(worker)
        if not revision.workers and not revision.meter.level:
            revision.meter.pause(now)

    def _leave_state(self, worker: Worker) -> None:
        revision = worker.revision
        if worker.state is WorkerState.STARTING:
            revision.starting -= 1
            self.capacity.started(worker)
        elif worker.state is WorkerState.READY:
            revision.ready -= 1
            if worker.leaving:
                worker.leaving = False
                del revision.leaving[worker]
            else:
                revision.room.remove(worker)
        elif worker.state is WorkerState.DRAINING:
            revision.draining -= 1
            self._draining -= 1

    # -- shortages ---------------------------------------------------------------------------------------

    def _settle_shortage(self, revision: Revision) -> None:
        self.shortages.remove(revision)
        revision.refusal = ""

    def recount(self, revision: Revision) -> None:
        """A short revision's queue became shorter."""
        missing = self.missing(revision)
        if missing > 0:
            self.shortages.put(revision, missing, self._curable(revision, missing))
        else:
            self._settle_shortage(revision)

    def _curable(self, revision: Revision, missing: int) -> int:
        """How many of the missing ones others' idle workers may be stopped for."""
        return max(0, min(missing, self.missing_by_calls(revision))) if revision.refusal in CURABLE else 0

    def _lacks(self, revision: Revision, missing: int, refusal: str, out: list[Command]) -> None:
        """So many workers have no place: remember it, and say why unless that was said."""
        if revision.refusal != refusal:
            revision.refusal = refusal
            need = revision.spec.need
            what = f"{need.memory_bytes // (1024 * 1024)} MiB on a {need.slice_kind!r} slice"
            out.append(Note(revision.name, "shortage", f"{missing} workers missing ({what} each): {refusal}"))
        self.shortages.put(revision, missing, self._curable(revision, missing))
        self.shortages.lines[revision.spec.need].refusal = refusal

    def _make_room(self, revision: Revision, now: float, out: list[Command]) -> None:
        """Stop idle workers of others for calls that wait, as many as are not on their way out already."""
        shortages = self.shortages
        while revision.unmet_by_calls and shortages.by_calls > self._draining and not self._barren:
            full = revision.refusal == Refusal.POOL_FULL
            victims = cheapest_victims(revision.spec.need, self.capacity, full)
            self._barren = not victims
            for worker in victims:
                idle_s = now - worker.idle_since
                reason = f"idle for {idle_s:.3g} s, and calls of {revision.name} wait for a place"
                self.stop(worker, reason, out)
                self.plan(worker.revision, now)

    def forget_date(self, revision: Revision) -> None:
        """A removed revision has nothing to do at any Tick."""
        self._settle_shortage(revision)
        self.agenda.set(revision, inf)


def _idle_since(worker: Worker) -> float:
    return worker.idle_since


def _in_flight(worker: Worker) -> int:
    return worker.in_flight
