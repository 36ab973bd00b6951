"""Whose idle workers make room for calls that wait: the fewest that suffice, and of these the longest idle.

Only workers above their revision's minimum are looked at. This reads every worker once, so it runs only when
nothing fits, and not again before something changed.
"""

from __future__ import annotations

from warmpool.capacity import Agent, Capacity, SliceUse
from warmpool.ledger import Revision, Worker
from warmpool.values import Need


def cheapest_victims(need: Need, capacity: Capacity, anywhere: bool) -> list[Worker]:
    """Idle workers to stop so that `need` fits somewhere; empty: there are none.

    `anywhere`: it is the number of workers in the pool that is exhausted, so any one will do.
    """
    best: list[Worker] = []
    best_rank: tuple[int, float] | None = None
    for agent in capacity.agents.values():
        idle = _idle_by_slice(agent)
        for slice_id, workers in idle.items():
            use = agent.slices[slice_id]
            chosen = workers[:1] if anywhere else _enough(need, use, workers)
            if not chosen:
                continue
            rank = (len(chosen), max(worker.idle_since for worker in chosen))
            if best_rank is None or rank < best_rank:
                best, best_rank = chosen, rank
    return best


def _idle_by_slice(agent: Agent) -> dict[str, list[Worker]]:
    """The agent's workers that may be stopped, longest idle first, never more of a revision than it can spare."""
    idle = [worker for worker in agent.workers.values() if worker.idle]
    idle.sort(key=lambda worker: worker.idle_since)
    spare: dict[Revision, int] = {}
    by_slice: dict[str, list[Worker]] = {}
    for worker in idle:
        revision = worker.revision
        left = spare.get(revision, revision.alive - revision.floor)
        if left > 0:
            spare[revision] = left - 1
            by_slice.setdefault(worker.slice_id, []).append(worker)
    return by_slice


def _enough(need: Need, use: SliceUse, workers: list[Worker]) -> list[Worker]:
    """The first workers whose leaving lets `need` in; empty when all of them are not enough."""
    offer = use.offer
    if offer.kind != need.slice_kind or offer.memory_bytes < need.memory_bytes:
        return []
    free = use.free()
    memory, places = free.memory_bytes, free.workers
    for count, worker in enumerate(workers, start=1):
        memory += worker.need.memory_bytes
        places += 1
        if memory >= need.memory_bytes and places > 0:
            return workers[:count]
    return []
