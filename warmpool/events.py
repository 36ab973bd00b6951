"""What happened, as values. Late, duplicate and unknown ones are legal: the pool ignores what no longer matters."""

from __future__ import annotations

from typing import NamedTuple

from warmpool.values import RevisionSpec, Slice


class InvocationArrived(NamedTuple):
    """A call wants a worker of this revision."""

    invocation: str
    revision: str


class InvocationFinished(NamedTuple):
    """A dispatched call no longer uses its worker."""

    invocation: str


class InvocationCancelled(NamedTuple):
    """The caller of a *waiting* call is gone or out of time; ignored when the call was dispatched already."""

    invocation: str


class WorkerReady(NamedTuple):
    """A started worker has loaded its handler and serves."""

    worker: str


class WorkerFailed(NamedTuple):
    """A start came to nothing. `by_function`: its own code failed, so waiting calls are told, not retried."""

    worker: str
    reason: str
    by_function: bool


class WorkerLost(NamedTuple):
    """A worker's process or connection is gone, whatever it was doing. Its calls count as finished."""

    worker: str
    reason: str


class WorkerRequested(NamedTuple):
    """Have at least one worker of this revision (a new revision proves itself so)."""

    revision: str
    reason: str


class HeldWorker(NamedTuple):
    """A worker that an agent reports holding, for adoption."""

    worker: str
    revision: str
    slice_id: str


class AgentReported(NamedTuple):
    """An agent joined or told again what it holds: its slices and environments are exactly these."""

    agent: str
    slices: tuple[Slice, ...]
    workers: tuple[HeldWorker, ...]
    environments: tuple[str, ...]


class AgentLost(NamedTuple):
    """An agent is gone with all it held."""

    agent: str


class EnvironmentLoaded(NamedTuple):
    """An agent has a zygote of this environment. `forkable` false: workers are spawned, and `note` says why."""

    agent: str
    environment: str
    forkable: bool
    note: str


class EnvironmentFailed(NamedTuple):
    """An agent could not load this environment."""

    agent: str
    environment: str
    reason: str


class RevisionChanged(NamedTuple):
    """A revision exists, or its settings (scale, reachability, preload) changed."""

    spec: RevisionSpec


class RevisionRemoved(NamedTuple):
    """A revision is gone: its waiting calls are rejected, its workers drained."""

    revision: str


class Tick(NamedTuple):
    """Time passed. Comes often (several times a second); the pool acts only when something is due."""


Event = (
    InvocationArrived | InvocationFinished | InvocationCancelled
    | WorkerReady | WorkerFailed | WorkerLost | WorkerRequested
    | AgentReported | AgentLost | EnvironmentLoaded | EnvironmentFailed
    | RevisionChanged | RevisionRemoved | Tick
)  # fmt: skip
