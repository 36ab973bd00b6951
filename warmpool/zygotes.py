"""What the pool knows of one environment on one agent."""

from __future__ import annotations

from enum import StrEnum


class ZygoteState(StrEnum):
    """Where an environment stands on an agent that was told to load it."""

    LOADING = "loading"
    FORKABLE = "forkable"
    #: Loaded, but it may not be forked: workers are spawned.
    SPAWN = "spawn"
    FAILED = "failed"


class Zygote:
    """An environment on an agent."""

    __slots__ = ("failures", "preload", "retry_at", "state", "used")

    def __init__(self, preload: tuple[str, ...], state: ZygoteState, used: int) -> None:
        #: What the agent was last told to import.
        self.preload = preload
        self.state = state
        #: Number of the last start from it, for choosing the one unused longest.
        self.used = used
        self.failures = 0
        self.retry_at = 0.0

    @property
    def forkable(self) -> bool:
        """Workers can be forked from it now."""
        return self.state is ZygoteState.FORKABLE
