"""What one revision should have now: the autoscaler's want and the keep-alive's, put together.

`decide` changes only the revision's own decision fields; starting and stopping is the business of `warmpool.supply`.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from warmpool.autoscaler import Demand, ScalerState, desired_workers, window_seconds, within_bounds
from warmpool.keepalive import IdleHistory, KeepDecision, keep_until
from warmpool.ledger import Revision
from warmpool.values import PoolParams, ScaleParams
from warmpool.windows import ConcurrencyMeter

#: Retry-After is kept within these, seconds.
RETRY_AFTER_MIN_S = 1.0
RETRY_AFTER_MAX_S = 60.0


class Outcome(NamedTuple):
    """What `decide` found. `binding`: surplus workers may be taken away on the strength of it."""

    binding: bool
    changed: bool


def floor_of(revision: Revision, now: float) -> int:
    """Workers to have even without calls."""
    scale = revision.spec.scale
    if revision.removed:
        return 0
    least = scale.min_workers if revision.spec.reachable else 0
    if now < revision.asked_until:
        least = max(least, 1)
    return within_bounds(least, 0, scale.max_workers)


def keep_of(revision: Revision, now: float) -> KeepDecision:
    """How long the revision's idle workers stay."""
    spec = revision.spec
    history = IdleHistory(revision.meter.level > 0, revision.last_activity, spec.reachable, revision.held_until)
    return keep_until(history, spec.scale, now)


def decide(revision: Revision, params: PoolParams, now: float) -> Outcome:
    """Bring `want` and `floor` up to date."""
    before = revision.want
    revision.floor = floor = floor_of(revision, now)
    keep = keep_of(revision, now)
    if now >= keep.until:
        _fall_asleep(revision, floor, keep, now)
        return Outcome(True, revision.want != before)
    if now < revision.next_decision:
        revision.want = within_bounds(max(before, floor), 0, revision.spec.scale.max_workers)
        return Outcome(False, False)
    revision.next_decision = now + params.evaluate_every_s
    _rate(revision, now)
    averages = revision.meter.averages(now)
    stable, panic = averages if averages is not None else (None, 0.0)
    spec = revision.spec
    demand = Demand(revision.ready, stable, panic, revision.concurrency, spec.reachable)
    decision = desired_workers(demand, revision.scaler, spec.scale, now)
    revision.scaler = decision.state
    if decision.want is None:
        revision.want = within_bounds(max(before, floor), 0, spec.scale.max_workers)
        return Outcome(False, False)
    revision.reason = decision.reason
    want = max(decision.want, floor)
    if want < 1 and (revision.meter.level or revision.alive):
        want = 1
        revision.reason = f"{decision.reason}; the last worker stays: {keep.reason}"
    revision.want = within_bounds(want, 0, spec.scale.max_workers)
    return Outcome(True, revision.want != before)


def _fall_asleep(revision: Revision, floor: int, keep: KeepDecision, now: float) -> None:
    """Back to the minimum, and begin anew: a remembered burst must not raise workers for the next single call."""
    revision.want = floor
    revision.reason = f"{keep.reason}: keep {floor}"
    revision.scaler = ScalerState()
    revision.meter.clear(now)


def _rate(revision: Revision, now: float) -> None:
    """Calls ended per second since the last decision."""
    passed = now - revision.rated_at
    if passed > 0.0:
        revision.rate = (revision.finished - revision.rated_finished) / passed
        revision.rated_at, revision.rated_finished = now, revision.finished


def next_date(revision: Revision, missing: int, params: PoolParams, now: float) -> float:
    """When there will be something to decide or do; infinity: not before something happens."""
    if revision.removed:
        return inf
    due = inf
    if revision.meter.level:
        due = revision.next_decision
    elif revision.ready > revision.floor:
        due = keep_of(revision, now).until
        if revision.alive > max(1, revision.floor):
            due = min(due, revision.next_decision)
    if revision.unmet:
        due = min(due, now + params.shortage_retry_s)
    if missing > 0 and revision.retry_at > now:
        due = min(due, revision.retry_at)
    if revision.asked_until > now:
        due = min(due, revision.asked_until)
    return due


def renew_windows(revision: Revision, old: ScaleParams, now: float) -> None:
    """If the windows' lengths changed, begin new ones; lost history must not scale a live revision down."""
    lengths = window_seconds(revision.spec.scale)
    if lengths == window_seconds(old):
        return
    level, paused = revision.meter.level, revision.meter.paused
    revision.meter = ConcurrencyMeter(*lengths)
    revision.meter.level = level
    if not paused:
        revision.meter.resume(now)
    revision.scaler = ScalerState.after_restart(revision.ready, now)


def after_adoption(revision: Revision, params: PoolParams, now: float) -> None:
    """Workers were found running: hold them, whatever the (lost) history would say."""
    revision.scaler = ScalerState.after_restart(revision.ready, now)
    revision.want = within_bounds(max(revision.want, revision.alive), 0, revision.spec.scale.max_workers)
    revision.reason = f"{revision.ready} workers found running: none is taken away for lack of history"
    revision.next_decision = now + params.evaluate_every_s


def retry_after_s(revision: Revision, now: float) -> float:
    """When a rejected caller may try again: when the queue will have been served at the present rate."""
    if revision.retry_at > now and not revision.alive:
        wait_s = revision.retry_at - now
    elif revision.rate > 0.0:
        wait_s = len(revision.waiting) / revision.rate
    else:
        wait_s = RETRY_AFTER_MIN_S
    return min(max(wait_s, RETRY_AFTER_MIN_S), RETRY_AFTER_MAX_S)
