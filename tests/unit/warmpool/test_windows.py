from __future__ import annotations

import pytest

from warmpool.windows import ConcurrencyMeter, Window


def test_a_full_window_forgets_second_by_second_when_reports_stop() -> None:
    window = Window(6)
    for second in range(10):
        window.record(second, float(second))
    assert [window.average(second) for second in (9, 10, 12, 14, 15)] == [6.5, 7.0, 8.0, 9.0, 0.0]


def test_a_partial_window_averages_over_what_was_reported() -> None:
    window = Window(60)
    for second in range(5):
        window.record(second, 10.0)
    assert [window.average(second) for second in (4, 20, 63, 64)] == [10.0, 10.0, 10.0, 0.0]
    assert not window.is_empty(63)
    assert window.is_empty(64)


def test_a_gap_inside_the_data_counts_as_zero() -> None:
    window = Window(60)
    for second in range(5):
        window.record(second, 10.0)
    window.record(10, 10.0)
    assert window.average(10) == 5.454545


def test_a_value_after_a_silence_of_a_whole_window_starts_the_average_again() -> None:
    window = Window(6)
    window.record(0, 100.0)
    window.record(6, 3.0)
    assert window.average(6) == 3.0
    window.record(7, 5.0)
    assert window.average(7) == 4.0


def test_values_of_one_second_add_up_and_too_old_ones_are_dropped() -> None:
    window = Window(6)
    window.record(10, 1.0)
    window.record(10, 2.0)
    window.record(9, 4.0)
    window.record(4, 100.0)
    assert window.average(10) == 7.0


def test_an_empty_window_averages_zero() -> None:
    window = Window(6)
    assert window.average(3) == 0.0
    assert window.is_empty(3)
    window.record(3, 1.0)
    window.clear()
    assert window.is_empty(3)


def test_two_half_second_calls_in_a_second_make_one() -> None:
    meter = ConcurrencyMeter(60, 6)
    meter.resume(10.0)
    for start in (10.0, 10.5):
        meter.enter(start)
        meter.leave(start + 0.5)
    assert meter.averages(11.0) == (1.0, 1.0)


def test_the_first_partial_second_is_averaged_over_its_own_length() -> None:
    meter = ConcurrencyMeter(60, 6)
    meter.enter(10.75)
    assert meter.averages(10.9) is None
    assert meter.averages(11.0) == (1.0, 1.0)


def test_a_level_held_through_seconds_without_events_is_reported_for_each() -> None:
    meter = ConcurrencyMeter(60, 6)
    meter.resume(10.0)
    for _ in range(4):
        meter.enter(10.0)
    for _ in range(2):
        meter.leave(14.0)
    # Four seconds of 4, then two of 2.
    assert meter.averages(16.0) == (pytest.approx(20 / 6, abs=1e-6), pytest.approx(20 / 6, abs=1e-6))


def test_zero_is_reported_while_awake_and_nothing_while_paused() -> None:
    meter = ConcurrencyMeter(6, 1)
    meter.resume(0.0)
    meter.enter(0.0)
    meter.leave(3.0)
    assert meter.averages(6.0) == (0.5, 0.0)
    meter.pause(6.0)
    # The average stays where it was until the window has passed.
    assert meter.averages(7.0) is not None
    assert meter.averages(12.0) is None
    meter.enter(20.5)
    assert meter.averages(21.0) == (1.0, 1.0)


def test_a_clock_that_steps_back_does_not_corrupt_the_average() -> None:
    meter = ConcurrencyMeter(60, 6)
    meter.enter(10.5)
    meter.enter(10.2)
    meter.leave(10.1)
    meter.leave(10.5)
    averages = meter.averages(11.0)
    assert averages == (0.0, 0.0)
    assert meter.level == 0


def test_a_silence_longer_than_the_window_costs_no_more_than_the_window() -> None:
    meter = ConcurrencyMeter(60, 6)
    meter.enter(0.0)
    assert meter.averages(1e9) == (1.0, 1.0)


def test_clearing_forgets_the_past_and_keeps_the_level() -> None:
    meter = ConcurrencyMeter(60, 6)
    meter.enter(0.0)
    meter.clear(10.5)
    assert meter.averages(10.9) is None
    assert meter.level == 1
    assert meter.averages(11.0) == (1.0, 1.0)
