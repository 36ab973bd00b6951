from __future__ import annotations

from math import inf

from warmpool.keepalive import IdleHistory, keep_until
from warmpool.values import ScaleParams

TEN = ScaleParams(idle_timeout_s=10.0)


def test_workers_stay_as_long_as_calls_are_there() -> None:
    assert keep_until(IdleHistory(busy=True, last_activity=0.0), TEN, 1e6).until == inf


def test_idle_workers_stay_for_the_idle_timeout_after_the_last_activity() -> None:
    decision = keep_until(IdleHistory(busy=False, last_activity=5.0), TEN, 8.0)
    assert decision.until == 15.0
    assert "within the idle timeout of 10 s" in decision.reason
    assert "past" in keep_until(IdleHistory(busy=False, last_activity=5.0), TEN, 15.0).reason


def test_an_unreachable_revision_goes_with_its_last_call() -> None:
    decision = keep_until(IdleHistory(busy=False, last_activity=5.0, reachable=False), TEN, 5.0)
    assert decision.until == 5.0


def test_a_requested_worker_of_an_unreachable_revision_is_held() -> None:
    history = IdleHistory(busy=False, last_activity=5.0, reachable=False, held_until=12.0)
    assert keep_until(history, TEN, 6.0).until == 12.0
    assert keep_until(history, TEN, 12.0).until == 5.0
