"""Which environments have a zygote on which agent, and what is imported in it.

An environment is loaded on an agent with the first worker that starts there, with the modules that all its revisions
like to have imported; told again when that set grows; dropped when no revision uses it, or when the agent has as many
as it may have and another is needed (the one unused longest goes, never one from which a worker is just starting).
"""

from __future__ import annotations

from collections.abc import Iterable

from warmpool.capacity import Agent
from warmpool.commands import Command, DropEnvironment, LoadEnvironment
from warmpool.ledger import Revision
from warmpool.values import PoolParams, StartKind, WorkerState
from warmpool.zygotes import Zygote, ZygoteState


class Environments:
    """The environments of all known revisions."""

    def __init__(self, params: PoolParams) -> None:
        self._params = params
        self._users: dict[str, dict[str, Revision]] = {}
        self._starts = 0

    def use(self, revision: Revision, agents: Iterable[Agent], out: list[Command]) -> None:
        """A revision uses its environment, maybe with new modules to import."""
        name = revision.spec.environment
        self._users.setdefault(name, {})[revision.name] = revision
        for agent in agents:
            zygote = agent.zygotes.get(name)
            if zygote is None or zygote.state is ZygoteState.FAILED:
                continue
            union = tuple(dict.fromkeys((*zygote.preload, *revision.spec.preload)))
            if union != zygote.preload:
                zygote.preload = union
                out.append(LoadEnvironment(agent.name, name, union, f"{revision.name} brings modules to import"))

    def disuse(self, revision: Revision, agents: Iterable[Agent], out: list[Command]) -> None:
        """A revision is gone; its environment with it if it was the last."""
        name = revision.spec.environment
        users = self._users.get(name, {})
        users.pop(revision.name, None)
        if users:
            return
        self._users.pop(name, None)
        for agent in agents:
            if agent.zygotes.pop(name, None) is not None:
                out.append(DropEnvironment(agent.name, name, "no revision uses it any more"))

    def preload(self, name: str) -> tuple[str, ...]:
        """What its revisions want imported, in order of first mention."""
        users = self._users.get(name, {})
        return tuple(dict.fromkeys(module for revision in users.values() for module in revision.spec.preload))

    def may_host(self, agent: Agent, name: str) -> bool:
        """The environment is on this agent or can be brought there."""
        zygotes = agent.zygotes
        if name in zygotes or len(zygotes) < self._params.max_environments_per_agent:
            return True
        return self._least_used(agent) is not None

    def start(self, agent: Agent, name: str, now: float, out: list[Command]) -> StartKind:
        """A worker starts from this environment there; loads it if it is not. Call only if it may be hosted."""
        self._starts += 1
        zygote = agent.zygotes.get(name)
        if zygote is None:
            self._make_room(agent, out)
            zygote = agent.zygotes[name] = Zygote((), ZygoteState.FAILED, self._starts)
        zygote.used = self._starts
        if zygote.state is ZygoteState.FAILED and now >= zygote.retry_at:
            zygote.state = ZygoteState.LOADING
            zygote.preload = self.preload(name)
            out.append(LoadEnvironment(agent.name, name, zygote.preload, "a worker starts and it is not loaded there"))
        return StartKind.WARM if zygote.forkable else StartKind.COLD

    def loaded(self, agent: Agent, name: str, forkable: bool, out: list[Command]) -> None:
        """An agent has it."""
        zygote = agent.zygotes.get(name)
        if zygote is None:
            full = len(agent.zygotes) >= self._params.max_environments_per_agent
            if full or name not in self._users:
                out.append(DropEnvironment(agent.name, name, "not wanted there any more"))
                return
            zygote = agent.zygotes[name] = Zygote(self.preload(name), ZygoteState.LOADING, self._starts)
        zygote.state = ZygoteState.FORKABLE if forkable else ZygoteState.SPAWN
        zygote.failures = 0

    def failed(self, agent: Agent, name: str, now: float) -> None:
        """An agent cannot load it: not tried again for a while, which doubles each time."""
        zygote = agent.zygotes.get(name)
        if zygote is None:
            return
        params = self._params
        wait_s = min(params.start_backoff_s * 2.0 ** min(zygote.failures, 30), params.start_backoff_max_s)
        zygote.state = ZygoteState.FAILED
        zygote.retry_at = now + wait_s
        zygote.failures += 1

    def reported(self, agent: Agent, names: tuple[str, ...], out: list[Command]) -> None:
        """The agent has exactly these."""
        before, agent.zygotes = agent.zygotes, {}
        for name in dict.fromkeys(names):
            if name not in self._users or len(agent.zygotes) >= self._params.max_environments_per_agent:
                out.append(DropEnvironment(agent.name, name, "no revision uses it"))
                continue
            zygote = before.get(name) or Zygote(self.preload(name), ZygoteState.FORKABLE, self._starts)
            if zygote.state is not ZygoteState.SPAWN:
                zygote.state = ZygoteState.FORKABLE
            agent.zygotes[name] = zygote

    def _make_room(self, agent: Agent, out: list[Command]) -> None:
        if len(agent.zygotes) < self._params.max_environments_per_agent:
            return
        name = self._least_used(agent)
        assert name is not None, "asked to load an environment where it may not be hosted"
        del agent.zygotes[name]
        limit = self._params.max_environments_per_agent
        out.append(DropEnvironment(agent.name, name, f"unused longest of the {limit} that an agent may have"))

    def _least_used(self, agent: Agent) -> str | None:
        busy = {w.revision.spec.environment for w in agent.workers.values() if w.state is WorkerState.STARTING}
        free = [(zygote.used, name) for name, zygote in agent.zygotes.items() if name not in busy]
        return min(free)[1] if free else None
