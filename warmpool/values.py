"""The small frozen values that events and commands speak of.

Identifiers are opaque strings made by the gateway (revisions, invocations, agents, slices, environments) or by
the pool (workers). Times are seconds of one monotonic clock, passed in as `now`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class StartKind(StrEnum):
    """How the worker that took a call came to be; see the words in docs/architecture.md."""

    HOT = "hot"
    WARM = "warm"
    COLD = "cold"
    FROZEN = "frozen"


class WorkerState(StrEnum):
    """STARTING -> READY -> DRAINING -> GONE; LOST from anywhere."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    GONE = "gone"
    LOST = "lost"


class Slice(NamedTuple):
    """A part of a node that workers get."""

    slice_id: str
    agent: str
    kind: str
    cpu_millis: int
    memory_bytes: int
    max_workers: int


class Need(NamedTuple):
    """What one worker of a revision takes from its slice. `cpu_millis` is a share, not a reservation."""

    cpu_millis: int = 0
    memory_bytes: int = 256 * 1024 * 1024
    slice_kind: str = "cpu"


@dataclass(frozen=True)
class ScaleParams:
    """Bounds and targets of one revision's autoscaler; defaults are Knative's."""

    #: Workers kept whatever happens (0: scale to zero).
    min_workers: int = 0
    #: 0: no bound but the pool's own.
    max_workers: int = 0
    #: Wanted calls per worker; 0: the revision's concurrency.
    target: float = 0.0
    target_utilisation: float = 0.7
    stable_window_s: float = 60.0
    panic_window_pct: float = 10.0
    panic_threshold_pct: float = 200.0
    max_scale_up_rate: float = 1000.0
    max_scale_down_rate: float = 2.0
    scale_down_delay_s: float = 0.0
    #: Workers wanted at least whenever any is wanted; 0 or 1: no such bound.
    activation_scale: int = 0
    #: Idle time after which the last workers go (scale to zero); the keep-alive policy may lengthen it.
    idle_timeout_s: float = 60.0
    #: "fixed" is the only policy so far.
    keep_alive: str = "fixed"


@dataclass(frozen=True)
class RevisionSpec:
    """What the pool knows of one revision."""

    revision: str
    #: Environments with the same name share a zygote on each agent.
    environment: str
    #: Calls one worker serves at once, at least 1.
    concurrency: int = 1
    need: Need = field(default_factory=Need)
    scale: ScaleParams = field(default_factory=ScaleParams)
    #: Waiting calls allowed; one more is rejected as `queue_full`.
    queue_limit: int = 10_000
    #: In some route. An unreachable revision finishes what it has and goes to zero.
    reachable: bool = True
    #: Modules worth importing before the fork; part of LoadEnvironment.
    preload: tuple[str, ...] = ()


@dataclass(frozen=True)
class PoolParams:
    """Bounds of the whole pool."""

    #: Prefix of worker names, unique per gateway process, so that names never repeat across restarts.
    worker_prefix: str = "w"
    max_workers: int = 2_000
    max_queued: int = 100_000
    #: Workers starting at the same time on one agent; the rest wait their turn.
    max_starting_per_agent: int = 64
    #: Zygotes kept per agent; the one unused longest goes first.
    max_environments_per_agent: int = 32
    evaluate_every_s: float = 2.0
    #: After a failed start, wait this long before the next, doubling up to the maximum.
    start_backoff_s: float = 1.0
    start_backoff_max_s: float = 60.0
    #: After a function's own code failed to start, calls wait for the next try if it is at most this far away.
    start_backoff_wait_s: float = 5.0
    #: A shortage (nothing fits) is looked at again this often, besides whenever capacity appears.
    shortage_retry_s: float = 0.25
    #: A requested worker that never became ready is not tried for longer than this.
    request_expires_s: float = 600.0
