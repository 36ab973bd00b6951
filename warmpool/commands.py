"""What to do, as values. Each carries the reason it was decided for."""

from __future__ import annotations

from typing import NamedTuple

from warmpool.values import StartKind


class Dispatch(NamedTuple):
    """Send this call to this worker now."""

    invocation: str
    worker: str
    start_kind: StartKind
    reason: str


class Reject(NamedTuple):
    """Answer this call without running it.

    `code`: queue_full | no_capacity | start_failed | unknown_revision | revision_removed | duplicate.
    """

    invocation: str
    code: str
    reason: str
    retry_after_s: float


class StartWorker(NamedTuple):
    """Start a worker of this revision on this slice. `start_kind` is what its first callers will be told."""

    worker: str
    revision: str
    agent: str
    slice_id: str
    start_kind: StartKind
    reason: str


class StopWorker(NamedTuple):
    """End a worker that serves nothing any more."""

    worker: str
    agent: str
    reason: str


class LoadEnvironment(NamedTuple):
    """Have a zygote of this environment on this agent, with these modules imported."""

    agent: str
    environment: str
    preload: tuple[str, ...]
    reason: str


class DropEnvironment(NamedTuple):
    """This environment's zygote is not needed on this agent any more."""

    agent: str
    environment: str
    reason: str


class Note(NamedTuple):
    """A decision worth showing in `samovar explain` that asks for nothing (scaling held, nothing fits, ...)."""

    revision: str
    decision: str
    reason: str


Command = Dispatch | Reject | StartWorker | StopWorker | LoadEnvironment | DropEnvironment | Note
