"""What must hold after every event, said as checks. Costs a walk over all books: for tests and simulation."""

from __future__ import annotations

from collections import Counter
from math import inf

from warmpool import scaling
from warmpool.calls import Calls
from warmpool.capacity import Agent
from warmpool.ledger import Revision, Worker
from warmpool.supply import Supply
from warmpool.values import WorkerState


class BrokenInvariant(AssertionError):
    """The books contradict themselves; the message begins with the invariant's name."""

    def __init__(self, name: str, detail: str) -> None:
        super().__init__(f"{name}: {detail}")
        self.name = name


def check_books(revisions: dict[str, Revision], calls: Calls, supply: Supply) -> None:
    """Raises BrokenInvariant."""
    known = dict.fromkeys([*revisions.values(), *(worker.revision for worker in supply.workers.values())])
    _check_calls(known, calls, supply)
    for revision in known:
        _check_revision(revision, supply)
        _check_room(revision)
        if not revision.removed:
            _check_date(revision, supply)
    _check_caps(supply)
    for agent in supply.capacity.agents.values():
        _check_agent(agent, supply)
    _check_shortages(supply)


def _require(holds: bool, name: str, detail: str) -> None:
    if not holds:
        raise BrokenInvariant(name, detail)


def _check_calls(revisions: dict[Revision, None], calls: Calls, supply: Supply) -> None:
    """Each call is held exactly once, by a queue or by a live worker."""
    running: Counter[Worker] = Counter()
    waiting = 0
    for invocation, holder in calls.holders.items():
        if isinstance(holder, Worker):
            running[holder] += 1
            _require(
                supply.workers.get(holder.name) is holder and holder.state is WorkerState.READY,
                "calls run on ready workers",
                f"{invocation} on {holder.name}, which is {holder.state}",
            )
        else:
            waiting += 1
            _require(invocation in holder.waiting, "a held call is in its queue", invocation)
    queued = sum(len(revision.waiting) for revision in revisions)
    _require(waiting == queued == calls.waiting, "queues hold what waits", f"{waiting} {queued} {calls.waiting}")
    _require(waiting <= supply.params.max_queued, "queues are bounded", f"{waiting} wait")
    for worker in supply.workers.values():
        _require(worker.in_flight == running[worker], "in-flight is what runs", f"{worker.name}: {worker.in_flight}")
        most = worker.revision.concurrency
        _require(0 <= worker.in_flight <= most, "in-flight within concurrency", f"{worker.name}: {worker.in_flight}")
    for revision in revisions:
        there = len(revision.waiting) + sum(running[worker] for worker in revision.workers.values())
        _require(revision.meter.level == there, "the meter's level is the load", f"{revision.name}: {there}")


def _check_revision(revision: Revision, supply: Supply) -> None:
    """Counters agree with states; caps hold."""
    states = Counter(worker.state for worker in revision.workers.values())
    counted = (revision.starting, revision.ready, revision.draining)
    found = tuple(states[s] for s in (WorkerState.STARTING, WorkerState.READY, WorkerState.DRAINING))
    _require(counted == found, "worker counters", f"{revision.name}: {counted}, found {found}")
    for name, worker in revision.workers.items():
        _require(supply.workers.get(name) is worker, "one book of workers", name)


def _check_room(revision: Revision) -> None:
    """Nobody waits while a worker has room, and the room holds exactly those that have."""
    open_workers = [
        worker
        for worker in revision.workers.values()
        if worker.state is WorkerState.READY and worker.in_flight < revision.concurrency
    ]
    if not revision.removed:
        free = bool(revision.waiting and open_workers)
        _require(not free, "nobody waits while there is room", f"{revision.name}: {len(revision.waiting)} wait")
    by_rule = [worker for worker in open_workers if not worker.leaving]
    held = list(revision.room)
    same = len(held) == len(by_rule) and set(held) == set(by_rule)
    _require(same, "the room holds those with room", f"{revision.name}: {[w.name for w in held]}")
    for worker in revision.workers.values():
        _require(worker.leaving == (worker in revision.leaving), "leaving workers", worker.name)
        gone = worker.leaving and not worker.in_flight
        _require(not gone, "an idle leaving worker is stopped", worker.name)


def _check_date(revision: Revision, supply: Supply) -> None:
    """Whoever is not at rest has a date, so that without events everything returns to its minimum."""
    at_rest = (
        not revision.meter.level
        and revision.ready <= revision.floor
        and not revision.unmet
        and (supply.missing(revision) <= 0)
    )
    _require(at_rest or revision.due < inf, "who is not at rest has a date", revision.name)
    asleep = revision.meter.paused and not revision.workers and not revision.meter.level
    awake = not revision.meter.paused and bool(revision.workers or revision.meter.level)
    _require(asleep or awake, "the meter reports while there is something", revision.name)
    most = revision.spec.scale.max_workers
    _require(not most or revision.want <= most, "want within the maximum", f"{revision.name}: {revision.want}")
    known = scaling.floor_of(revision, revision.asked_until)
    _require(revision.want >= 0 and known >= 0, "counts are not negative", revision.name)


def _check_caps(supply: Supply) -> None:
    _require(len(supply.workers) <= supply.params.max_workers, "the pool's cap", f"{len(supply.workers)} workers")


def _check_agent(agent: Agent, supply: Supply) -> None:
    """Slices: used is what is in them, and used + free = held; starting and zygotes within their bounds."""
    for slice_id, use in agent.slices.items():
        inside = [worker for worker in agent.workers.values() if worker.slice_id == slice_id]
        memory = sum(worker.need.memory_bytes for worker in inside)
        used = (use.memory_used, use.workers_used)
        _require(used == (memory, len(inside)), "slices: used is what is in them", f"{slice_id}: {used}")
        free = use.free()
        whole = free.memory_bytes + memory == use.offer.memory_bytes and free.workers + len(inside) == (
            use.offer.max_workers
        )
        _require(whole, "slices: used + free = held", slice_id)
        over = free.memory_bytes < 0 or free.workers < 0
        _require(not over or use.shrunk, "slices are not overfilled", f"{slice_id}: {free}")
    for name, worker in agent.workers.items():
        _require(supply.workers.get(name) is worker, "nobody is placed on a lost agent", name)
        _require(worker.slice_id in agent.slices, "workers sit in slices", name)
    starting = sum(worker.state is WorkerState.STARTING for worker in agent.workers.values())
    _require(starting == agent.starting, "starting slots", f"{agent.name}: {agent.starting}, found {starting}")
    _require(starting <= supply.params.max_starting_per_agent, "starting within its bound", agent.name)
    zygotes = len(agent.zygotes)
    _require(zygotes <= supply.params.max_environments_per_agent, "zygotes within their bound", f"{zygotes}")


def _check_shortages(supply: Supply) -> None:
    on_agents = sum(len(agent.workers) for agent in supply.capacity.agents.values())
    _require(on_agents == len(supply.workers), "every worker is on an agent", f"{on_agents}")
    by_calls = 0
    for revision in supply.shortages:
        by_calls += revision.unmet_by_calls
        _require(revision.unmet > 0 and not revision.removed, "shortages are of the living", revision.name)
    _require(by_calls == supply.shortages.by_calls, "what waiting calls lack", f"{supply.shortages.by_calls}")
