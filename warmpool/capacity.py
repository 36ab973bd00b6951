"""What agents offer and what is taken of it: slices, starting slots, and where a worker can go.

The books are exact: a worker takes its share of a slice from the order to start it until it is known to be gone.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from warmpool.ledger import Worker
from warmpool.placement import FreeSlice, Placement, PlacementParams, choose_slice
from warmpool.values import Need, Slice
from warmpool.zygotes import Zygote


class Refusal(StrEnum):
    """Why there is no place."""

    NO_AGENT = "no node agent is connected"
    NO_KIND = "no agent has a slice of that kind"
    TOO_LARGE = "it needs more memory than any slice has"
    FULL = "every slice is full"
    STARTING = "as many workers are starting as may start at once"
    POOL_FULL = "the pool has as many workers as it may have"


class SliceUse:
    """A slice and what is taken of it."""

    __slots__ = ("memory_used", "offer", "shrunk", "withdrawn", "workers_used")

    def __init__(self, offer: Slice) -> None:
        self.offer = offer
        self.memory_used = 0
        self.workers_used = 0
        #: The agent reported less of it than before: for a while more than all may be taken.
        self.shrunk = False
        #: No more on offer; stays in the books until the workers in it are out of them.
        self.withdrawn = False

    def add(self, need: Need, sign: int) -> None:
        """Take (1) or give back (-1) a worker's share."""
        self.memory_used += sign * need.memory_bytes
        self.workers_used += sign

    def free(self, forkable: bool = False) -> FreeSlice:
        """What is left."""
        offer = self.offer
        return FreeSlice(
            offer.agent,
            offer.slice_id,
            offer.kind,
            offer.memory_bytes - self.memory_used,
            offer.max_workers - self.workers_used,
            offer.cpu_millis,
            forkable,
        )


class Agent:
    """A node agent: its slices, its zygotes and the workers on it."""

    __slots__ = ("name", "slices", "starting", "workers", "zygotes")

    def __init__(self, name: str) -> None:
        self.name = name
        self.slices: dict[str, SliceUse] = {}
        self.zygotes: dict[str, Zygote] = {}
        self.workers: dict[str, Worker] = {}
        self.starting = 0


class Capacity:
    """All agents."""

    def __init__(self, starting_max: int) -> None:
        self.agents: dict[str, Agent] = {}
        self._starting_max = starting_max
        self._params = PlacementParams()

    def offer(self, name: str, slices: tuple[Slice, ...]) -> Agent:
        """The agent's slices are exactly these from now on; others are withdrawn until `forget_withdrawn`."""
        agent = self.agents.get(name)
        if agent is None:
            agent = self.agents[name] = Agent(name)
        for use in agent.slices.values():
            use.withdrawn = True
        for one in slices:
            use = agent.slices.setdefault(one.slice_id, SliceUse(one))
            use.offer = one._replace(agent=name)
            use.shrunk = use.memory_used > one.memory_bytes or use.workers_used > one.max_workers
            use.withdrawn = False
        return agent

    @staticmethod
    def forget_withdrawn(agent: Agent) -> None:
        """Drop the slices that are no more, now that nobody is in them."""
        agent.slices = {name: use for name, use in agent.slices.items() if not use.withdrawn}

    def occupy(self, worker: Worker, starting: bool) -> None:
        """A worker takes its share."""
        agent = self.agents[worker.agent]
        agent.workers[worker.name] = worker
        agent.slices[worker.slice_id].add(worker.need, 1)
        agent.starting += starting

    def started(self, worker: Worker) -> None:
        """A worker does not hold a starting slot any more."""
        self.agents[worker.agent].starting -= 1

    def release(self, worker: Worker) -> None:
        """A worker is gone: its share is free."""
        agent = self.agents[worker.agent]
        del agent.workers[worker.name]
        agent.slices[worker.slice_id].add(worker.need, -1)

    def place(self, need: Need, environment: str, may_host: Callable[[Agent, str], bool]) -> Placement | Refusal:
        """Where a worker can start now, or why it cannot."""
        free: list[FreeSlice] = []
        held_back = False
        for agent in self.agents.values():
            if agent.starting < self._starting_max and may_host(agent, environment):
                zygote = agent.zygotes.get(environment)
                forkable = zygote is not None and zygote.forkable
                free += [use.free(forkable) for use in agent.slices.values() if not use.withdrawn]
            else:
                held_back = True
        chosen = choose_slice(need, free, self._params)
        if chosen is not None:
            return chosen
        return self._refusal(need, held_back)

    def _refusal(self, need: Need, held_back: bool) -> Refusal:
        if not self.agents:
            return Refusal.NO_AGENT
        uses = [use for agent in self.agents.values() for use in agent.slices.values()]
        kind = [use for use in uses if use.offer.kind == need.slice_kind and not use.withdrawn]
        if not kind:
            return Refusal.NO_KIND
        if all(use.offer.memory_bytes < need.memory_bytes or use.offer.max_workers < 1 for use in kind):
            return Refusal.TOO_LARGE
        if held_back and choose_slice(need, [use.free() for use in kind], self._params) is not None:
            return Refusal.STARTING
        return Refusal.FULL
