from __future__ import annotations

import pytest

from loadtests.bench.samples import Paired, in_turn, latencies, percentile


def test_percentile_of_sorted_values() -> None:
    values = list(range(1, 101))
    assert percentile(values, 0.5) == 51
    assert percentile(values, 0.99) == 100
    assert percentile(values, 1.0) == 100
    assert percentile([7], 0.9) == 7


def test_no_values_have_no_percentile() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)


def test_latencies_are_told_in_microseconds() -> None:
    told = latencies([3_000, 1_000, 2_000])
    assert (told.count, told.median_us, told.max_us) == (3, 2.0, 3.0)


def test_in_turn_changes_who_goes_first_and_keeps_neighbours_together() -> None:
    order: list[str] = []

    def measure(who: str) -> int:
        order.append(who)
        return len(order)

    pairs = in_turn(lambda: measure("a"), lambda: measure("b"), 3)
    assert order == ["a", "b", "b", "a", "a", "b"]
    assert pairs == Paired((1, 4, 5), (2, 3, 6))


def test_a_disturbance_that_both_met_does_not_change_the_comparison() -> None:
    pairs = Paired((60.0, 6.0, 60.0), (100.0, 10.0, 100.0))
    assert pairs.ratio(float) == pytest.approx(0.6)
    assert pairs.medians(float) == (60.0, 100.0)
    assert Paired((5.0, 50.0), (3.0, 48.0)).difference(float) == pytest.approx(2.0)
