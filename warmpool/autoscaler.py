"""How many workers a revision wants: the Knative pod autoscaler's decision as a plain function.

Two averages of the calls queued or running are looked at. The *stable* one (60 s) decides in quiet times. When the
*panic* one (6 s) asks for twice the ready workers or more, the revision panics: for a stable window it follows the
larger of the two and never goes down. Each decision moves at most `max_scale_up_rate` times up and
`max_scale_down_rate` times down. Minimum and maximum are applied last.

What idleness does (scale to zero) is not decided here but in `warmpool.keepalive`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, floor

from warmpool.values import ScaleParams

#: Hard limit assumed for a revision without one.
UNLIMITED_CONCURRENCY = 100.0
#: No target below this: the division needs one.
TARGET_MIN = 0.01
#: `scale_down_delay_s` remembers the largest want of each stretch of this length.
DELAY_BUCKET_S = 2
#: The least stable window, and the least panic window.
STABLE_WINDOW_MIN_S = 6
PANIC_WINDOW_MIN_S = 1


@dataclass(frozen=True)
class Demand:
    """What the autoscaler sees of one revision."""

    ready: int
    #: Averages of calls queued or running; None when nothing was reported within the stable window.
    stable: float | None
    panic: float
    #: Calls that one worker serves at once; 0: unlimited.
    concurrency: int
    #: In some route. Others may go down at any rate.
    reachable: bool = True


@dataclass(frozen=True)
class ScalerState:
    """What one decision leaves to the next."""

    #: When the panic began or was last extended; None: calm.
    panic_since: float | None = None
    #: The most that was wanted in this panic.
    panic_want: int = 0
    #: (bucket, largest want in it), oldest first, for the scale-down delay.
    recent: tuple[tuple[int, int], ...] = ()

    @staticmethod
    def after_restart(ready: int, now: float) -> ScalerState:
        """The state to begin with when workers are found running: lost history must not scale them down."""
        return ScalerState(panic_since=now, panic_want=ready) if ready > 1 else ScalerState()


@dataclass(frozen=True)
class ScaleDecision:
    """Workers wanted, and why. `want` None: no data, so leave things as they are."""

    want: int | None
    reason: str
    state: ScalerState
    panicking: bool = False
    #: What each average alone asks for, after the rate limits.
    want_stable: int = 0
    want_panic: int = 0
    #: Panic average over ready workers, in multiples of the target, before the rate limits.
    panic_ratio: float = 0.0


def target_of(concurrency: int, params: ScaleParams) -> float:
    """Wanted calls per worker."""
    limit = float(concurrency) if concurrency else UNLIMITED_CONCURRENCY
    if params.target:
        limit = min(params.target, limit) if concurrency else params.target
    return max(TARGET_MIN, limit * params.target_utilisation)


def window_seconds(params: ScaleParams) -> tuple[int, int]:
    """Length of the stable and the panic window."""
    stable = max(STABLE_WINDOW_MIN_S, ceil(params.stable_window_s))
    panic = max(PANIC_WINDOW_MIN_S, floor(stable * params.panic_window_pct / 100.0 + 0.5))
    return stable, panic


def desired_workers(demand: Demand, state: ScalerState, params: ScaleParams, now: float) -> ScaleDecision:
    """One decision; to be taken every two seconds."""
    if demand.stable is None:
        return ScaleDecision(None, "no reports within the stable window: nothing is changed", state)
    target = target_of(demand.concurrency, params)
    ready = max(1, demand.ready)
    up = ceil(params.max_scale_up_rate * ready)
    down = floor(ready / params.max_scale_down_rate) if demand.reachable else 0
    ask_stable = ceil(demand.stable / target)
    ask_panic = ceil(demand.panic / target)
    want_stable = min(max(ask_stable, down), up)
    want_panic = min(max(ask_panic, down), up)
    if params.activation_scale > 1:
        want_stable = max(want_stable, params.activation_scale) if ask_stable > 0 else want_stable
        want_panic = max(want_panic, params.activation_scale) if ask_panic > 0 else want_panic
    ratio = ask_panic / ready
    state = _panic(state, ratio >= params.panic_threshold_pct / 100.0, now, params)
    want = want_stable
    if state.panic_since is not None:
        want = max(want_stable, want_panic, state.panic_want)  # never down in a panic
        state = replace(state, panic_want=want)
    if demand.reachable and params.scale_down_delay_s > 0:
        state = replace(state, recent=_remember(state.recent, want, params.scale_down_delay_s, now))
        want = max(largest for _, largest in state.recent)
    bounded = within_bounds(want, params.min_workers if demand.reachable else 0, params.max_workers)
    panicking = state.panic_since is not None
    reason = (
        f"{'panic' if panicking else 'stable'}: averages {demand.stable:g} stable, {demand.panic:g} panic, "
        f"target {target:g} a worker, {demand.ready} ready: want {bounded}"
    )
    if bounded != want:
        reason += f" (bounded from {want})"
    return ScaleDecision(bounded, reason, state, panicking, want_stable, want_panic, ratio)


def within_bounds(want: int, least: int, most: int) -> int:
    """`want` between the minimum and the maximum (0: none); the maximum wins."""
    want = max(want, least)
    return min(want, most) if most else want


def excess_burst(ready: int, concurrency: int, burst: float, panic: float) -> int:
    """Calls that could come at once beyond `burst` and the present ones; negative: the queue must stay in the path.

    `burst` 0: 0, `burst` below 0: -1. Uses the hard limit, not the target.
    """
    if burst == 0:
        return 0
    if burst < 0:
        return -1
    limit = concurrency if concurrency else UNLIMITED_CONCURRENCY
    return floor(ready * limit - burst - panic)


def _panic(state: ScalerState, over: bool, now: float, params: ScaleParams) -> ScalerState:
    """Enter, extend or leave the panic."""
    if over:
        return replace(state, panic_since=now)
    if state.panic_since is not None and state.panic_since + params.stable_window_s < now:
        return replace(state, panic_since=None, panic_want=0)
    return state


def _remember(
    recent: tuple[tuple[int, int], ...], want: int, delay_s: float, now: float
) -> tuple[tuple[int, int], ...]:
    """The largest wants of the last `delay_s`, this one included."""
    bucket = floor(now / DELAY_BUCKET_S)
    oldest = bucket - ceil(delay_s / DELAY_BUCKET_S)
    kept = tuple((b, largest) for b, largest in recent if oldest < b < bucket)
    same = max((largest for b, largest in recent if b == bucket), default=want)
    return (*kept, (bucket, max(same, want)))
