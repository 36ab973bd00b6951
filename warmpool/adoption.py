"""Making the books agree with what an agent says it holds: after a restart, or when it dialled again.

Workers that the agent holds and the pool can use are adopted as ready; those it cannot use are stopped; those that
the pool thought were there and are not, are lost. A worker that is still starting is not held yet, and stays.
"""

from __future__ import annotations

from collections.abc import Iterable

from warmpool.capacity import Agent
from warmpool.commands import Command, StopWorker
from warmpool.events import HeldWorker
from warmpool.ledger import Revision, Worker
from warmpool.supply import Supply
from warmpool.values import StartKind, WorkerState

#: Reason for lost workers that an agent does not mention, or that sit in a slice that is no more.
NOT_HELD = "its agent does not hold it any more"


def not_held(agent: Agent, held: Iterable[HeldWorker]) -> list[Worker]:
    """Workers in the books of this agent that it does not hold, or whose slice it does not offer any more."""
    names = {one.worker for one in held}
    return [
        worker
        for worker in agent.workers.values()
        if agent.slices[worker.slice_id].withdrawn or (worker.name not in names and _was_up(worker))
    ]


def _was_up(worker: Worker) -> bool:
    return worker.state is not WorkerState.STARTING


def stop_orphans(workers: Iterable[Worker], out: list[Command]) -> None:
    """Should one of these be alive all the same, it must not stay."""
    for worker in workers:
        if worker.state is not WorkerState.DRAINING:
            out.append(StopWorker(worker.name, worker.agent, NOT_HELD))


def adopt(
    held: HeldWorker, agent: Agent, revisions: dict[str, Revision], supply: Supply, now: float, out: list[Command]
) -> Worker | None:
    """A worker about to serve, entered as starting; None when there is nothing to adopt."""
    known = supply.workers.get(held.worker)
    if known is not None:
        if known.agent != agent.name:
            return None  # somebody else's worker by name; the books are right
        if known.state is WorkerState.STARTING:
            supply.capacity.started(known)
            return known
        if known.state is WorkerState.DRAINING:
            out.append(StopWorker(known.name, agent.name, "was told to stop before"))
        return None
    revision = revisions.get(held.revision)
    refusal = _refusal(held, revision, agent, supply)
    if refusal or revision is None:
        out.append(StopWorker(held.worker, agent.name, f"found running, not adopted: {refusal}"))
        return None
    # Its first callers find it ready: hot, however it was started.
    worker = Worker(held.worker, revision, agent.name, held.slice_id, revision.spec.need, StartKind.HOT, now)
    supply.enlist(worker, starting=False)
    revision.meter.resume(now)
    return worker


def _refusal(held: HeldWorker, revision: Revision | None, agent: Agent, supply: Supply) -> str:
    if revision is None:
        return "its revision is not known"
    use = agent.slices.get(held.slice_id)
    if use is None or use.withdrawn:
        return "its slice is not known"
    free = use.free()
    if free.workers < 1 or free.memory_bytes < revision.spec.need.memory_bytes:
        return "its slice is full"
    most = revision.spec.scale.max_workers
    if most and revision.alive + revision.draining >= most:
        return "its revision has as many workers as it may have"
    if len(supply.workers) >= supply.params.max_workers:
        return "the pool has as many workers as it may have"
    return ""
