from __future__ import annotations

import pytest

from warmpool.autoscaler import (
    Demand,
    ScalerState,
    desired_workers,
    excess_burst,
    target_of,
    window_seconds,
    within_bounds,
)
from warmpool.values import ScaleParams

CALM = ScalerState()
#: Targets of the vectors: 7 is a concurrency of 10 at 70 %, 1 is a concurrency of 1 at 100 %.
SEVEN = (10, ScaleParams())
ONE = (1, ScaleParams(target_utilisation=1.0, max_scale_up_rate=1.1))


@pytest.mark.parametrize(
    ("ready", "stable", "panic", "kind", "reachable", "want"),
    [
        (2, 3.0, 3.0, ONE, True, (3, 3, 1.5)),
        (10, 0.0, 0.0, SEVEN, True, (5, 5, 0.0)),
        (10, 0.0, 0.0, SEVEN, False, (0, 0, 0.0)),
        (1, 0.0, 0.0, SEVEN, True, (0, 0, 0.0)),
        (0, 35.0, 35.0, SEVEN, True, (5, 5, 5.0)),
        (5, 30.0, 80.0, SEVEN, True, (5, 12, 2.4)),
        (0, 0.5, 1.0, (10, ScaleParams(activation_scale=3)), True, (3, 3, 1.0)),
    ],
)
def test_the_decision_is_that_of_the_golden_vectors(ready, stable, panic, kind, reachable, want) -> None:
    concurrency, params = kind
    decision = desired_workers(Demand(ready, stable, panic, concurrency, reachable), CALM, params, 0.0)
    assert (decision.want_stable, decision.want_panic, decision.panic_ratio) == want
    assert decision.panicking == (want[2] >= 2.0)
    assert decision.want == (max(want[:2]) if decision.panicking else want[0])


@pytest.mark.parametrize(
    ("ready", "concurrency", "panic", "excess"),
    [(3, 100, 50.0, 39), (2, 100, 50.0, -61), (0, 10, 0.0, -211), (30, 10, 88.5, 0)],
)
def test_excess_burst_capacity_is_that_of_the_golden_vectors(ready, concurrency, panic, excess) -> None:
    assert excess_burst(ready, concurrency, 211.0, panic) == excess


def test_burst_capacity_zero_and_negative_are_special() -> None:
    assert excess_burst(5, 10, 0.0, 9.0) == 0
    assert excess_burst(5, 10, -1.0, 9.0) == -1
    assert excess_burst(3, 0, 211.0, 50.0) == 39


@pytest.mark.parametrize(
    ("concurrency", "params", "target"),
    [
        (10, ScaleParams(), 7.0),
        (0, ScaleParams(), 70.0),
        (0, ScaleParams(target=200.0), 140.0),
        (10, ScaleParams(target=5.0), 3.5),
        (10, ScaleParams(target=50.0), 7.0),
        (1, ScaleParams(target=0.001), 0.01),
    ],
)
def test_the_target_is_the_least_of_limit_and_wish_times_utilisation(concurrency, params, target) -> None:
    assert target_of(concurrency, params) == pytest.approx(target)


def test_windows_are_whole_seconds_within_their_least() -> None:
    assert window_seconds(ScaleParams()) == (60, 6)
    assert window_seconds(ScaleParams(stable_window_s=1.0)) == (6, 1)
    assert window_seconds(ScaleParams(stable_window_s=45.0)) == (45, 5)


def test_in_a_panic_the_want_never_goes_down() -> None:
    first = desired_workers(Demand(5, 30.0, 80.0, 10), CALM, ScaleParams(), 0.0)
    assert first.want == 12
    later = desired_workers(Demand(12, 7.0, 0.0, 10), first.state, ScaleParams(), 30.0)
    assert (later.want, later.panicking) == (12, True)
    # Exactly one stable window after the last excess it is still on; after that it is over.
    edge = desired_workers(Demand(12, 7.0, 0.0, 10), later.state, ScaleParams(), 60.0)
    assert edge.panicking
    over = desired_workers(Demand(12, 7.0, 0.0, 10), edge.state, ScaleParams(), 60.1)
    assert (over.want, over.panicking) == (6, False)


def test_another_excess_extends_the_panic() -> None:
    state = desired_workers(Demand(5, 30.0, 80.0, 10), CALM, ScaleParams(), 0.0).state
    state = desired_workers(Demand(5, 30.0, 80.0, 10), state, ScaleParams(), 50.0).state
    assert desired_workers(Demand(12, 0.0, 0.0, 10), state, ScaleParams(), 109.0).panicking
    assert not desired_workers(Demand(12, 0.0, 0.0, 10), state, ScaleParams(), 111.0).panicking


def test_after_a_restart_workers_found_running_are_held() -> None:
    state = ScalerState.after_restart(10, 1000.0)
    decision = desired_workers(Demand(10, 0.0, 0.0, 10), state, ScaleParams(), 1002.0)
    assert (decision.want, decision.panicking) == (10, True)
    calm = desired_workers(Demand(10, 0.0, 0.0, 10), decision.state, ScaleParams(), 1061.0)
    assert calm.want == 5
    assert ScalerState.after_restart(1, 1000.0) == CALM


def test_scale_down_waits_for_the_delay() -> None:
    params = ScaleParams(scale_down_delay_s=10.0)
    state, wants = CALM, []
    for now, stable in [(0.0, 70.0), (2.0, 0.0), (4.0, 0.0), (8.0, 0.0), (10.0, 0.0), (12.0, 0.0)]:
        decision = desired_workers(Demand(10, stable, 0.0, 10), state, params, now)
        state = decision.state
        wants.append(decision.want)
    assert wants == [10, 10, 10, 10, 5, 5]
    assert len(state.recent) <= 5


def test_without_reports_nothing_is_changed() -> None:
    state = ScalerState(panic_since=3.0, panic_want=4)
    decision = desired_workers(Demand(3, None, 0.0, 1), state, ScaleParams(), 10.0)
    assert decision.want is None
    assert decision.state is state


def test_bounds_come_last_and_the_reason_says_so() -> None:
    params = ScaleParams(min_workers=2, max_workers=4)
    high = desired_workers(Demand(1, 70.0, 0.0, 10), CALM, params, 0.0)
    assert high.want == 4
    assert "bounded from 10" in high.reason
    assert desired_workers(Demand(1, 0.0, 0.0, 10), CALM, params, 0.0).want == 2
    assert desired_workers(Demand(1, 0.0, 0.0, 10, reachable=False), CALM, params, 0.0).want == 0
    assert within_bounds(9, 5, 3) == 3
    assert within_bounds(9, 5, 0) == 9
