"""CPU time divided among overlapping calls."""

from __future__ import annotations

from runtime.cpu_share import CpuShare


def test_a_lone_call_gets_what_was_used_while_it_ran() -> None:
    share = CpuShare()
    entered = share.enter(1_000)
    assert share.leave(entered, 1_500) == 500
    entered = share.enter(9_000)  # what was used with no call at all is nobody's
    assert share.leave(entered, 9_100) == 100


def test_overlapping_calls_share_evenly_and_add_up() -> None:
    share = CpuShare()
    first = share.enter(0)
    second = share.enter(100)
    assert share.leave(first, 300) == 200
    assert share.leave(second, 400) == 200
