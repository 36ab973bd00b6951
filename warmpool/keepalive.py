"""How long idle workers stay.

The autoscaler and the keep-alive share the work (docs/decisions/0002-idle-timeout-and-kpa.md):

- while calls come, the autoscaler says how many workers there should be, and takes surplus ones away at its pace;
- before `idle_timeout_s` has passed since the last activity, one worker stays even if the autoscaler wants none;
- once it has passed, all go but the minimum, even if the autoscaler's window still remembers calls.

Activity is a call queued or running, a worker that became ready, or a request for one. An unreachable revision has
no idle timeout: it goes when its last call is answered, unless a worker was asked for (a new revision proves itself
before it is routed), which stays until `held_until`.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from warmpool.values import ScaleParams


class IdleHistory(NamedTuple):
    """What keep-alive knows of one revision. Times in seconds."""

    #: Calls are queued or running.
    busy: bool
    last_activity: float
    reachable: bool = True
    #: A requested worker stays at least until then.
    held_until: float = 0.0


class KeepDecision(NamedTuple):
    """Keep one worker at least until `until` (infinite while calls are there), then only the minimum."""

    until: float
    reason: str


def keep_until(history: IdleHistory, params: ScaleParams, now: float) -> KeepDecision:
    """The fixed policy."""
    if history.busy:
        return KeepDecision(inf, "calls are queued or running")
    if not history.reachable:
        if now < history.held_until:
            return KeepDecision(history.held_until, "not routed, but a worker was asked for")
        return KeepDecision(history.last_activity, "not routed and idle")
    until = history.last_activity + params.idle_timeout_s
    idle_s = max(0.0, now - history.last_activity)
    verb = "past" if now >= until else "within"
    return KeepDecision(until, f"idle for {idle_s:.3g} s, {verb} the idle timeout of {params.idle_timeout_s:g} s")
