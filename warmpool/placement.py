"""Which slice a new worker goes to: the tightest fit, so that large holes stay large.

A slice is looked at as what is left of it; nothing here knows how a slice came to be, so that slices cut from a GPU
are one more kind with the same rule. CPU is a share, not a reservation: a slice with less CPU than the worker's share
is the last choice, but a choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from warmpool.values import Need

MIB = 1024 * 1024


class FreeSlice(NamedTuple):
    """What is left of one slice."""

    agent: str
    slice_id: str
    kind: str
    memory_bytes: int
    workers: int
    cpu_millis: int
    #: Its agent can fork a worker of the environment in question.
    forkable: bool = False


class Placement(NamedTuple):
    """Where to, and why there."""

    agent: str
    slice_id: str
    reason: str


@dataclass(frozen=True)
class PlacementParams:
    """What placement prefers."""

    #: A slice whose agent has the environment ready comes before one that fits more tightly.
    prefer_forkable: bool = True


def fits(need: Need, free: FreeSlice) -> bool:
    """A worker with this need can be put there now."""
    return free.kind == need.slice_kind and free.memory_bytes >= need.memory_bytes and free.workers > 0


def choose_slice(need: Need, free: Sequence[FreeSlice], params: PlacementParams) -> Placement | None:
    """The smallest adequate slice; None when no slice is adequate. Equal ones go by name, so the choice is stable."""
    best: FreeSlice | None = None
    best_rank: tuple[bool, bool, int, str, str] | None = None
    for one in free:
        if not fits(need, one):
            continue
        rank = (
            one.cpu_millis < need.cpu_millis,
            params.prefer_forkable and not one.forkable,
            one.memory_bytes,
            one.agent,
            one.slice_id,
        )
        if best_rank is None or rank < best_rank:
            best, best_rank = one, rank
    if best is None:
        return None
    left = (best.memory_bytes - need.memory_bytes) // MIB
    return Placement(best.agent, best.slice_id, f"tightest fit of {len(free)} slices, {left} MiB left")
