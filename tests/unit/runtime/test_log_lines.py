"""Lines and their bounds, apart from any pipe."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from runtime.log_lines import CUT_NOTE, LineCutter, LogBudget, LogRate


def test_lines_are_cut_at_their_ends_whatever_the_pieces() -> None:
    cutter = LineCutter()
    assert cutter.feed(b"one\ntw") == [b"one"]
    assert cutter.feed(b"o\r\n\nthree") == [b"two", b""]
    assert cutter.finish() == [b"three"]
    assert cutter.finish() == []


def test_a_line_over_the_limit_is_cut_with_a_note_and_its_rest_dropped() -> None:
    cutter = LineCutter(limit=4)
    assert cutter.feed(b"abcdefgh") == [b"abcd" + CUT_NOTE]
    assert cutter.feed(b"ijkl" * 1000) == []
    assert cutter.feed(b"mn\nnext\n") == [b"next"]


def test_a_line_of_exactly_the_limit_is_whole() -> None:
    cutter = LineCutter(limit=4)
    assert cutter.feed(b"abcd") == []
    assert cutter.feed(b"\nabcd\n") == [b"abcd", b"abcd"]


@given(st.binary(max_size=300), st.integers(1, 50), st.integers(1, 20))
def test_memory_is_bounded_and_pieces_do_not_matter(data: bytes, piece: int, limit: int) -> None:
    whole, pieces = LineCutter(limit), LineCutter(limit)
    expected = whole.feed(data) + whole.finish()
    got: list[bytes] = []
    for start in range(0, len(data), piece):
        got += pieces.feed(data[start : start + piece])
    got += pieces.finish()
    assert got == expected
    assert all(len(line) <= limit + len(CUT_NOTE) for line in got)


def test_what_is_over_the_rate_is_dropped_and_counted() -> None:
    budget = LogBudget(LogRate(bytes_per_s=10, burst_bytes=20), now=0.0)
    assert budget.admit([b"x" * 9] * 5, now=0.0) == [b"x" * 9] * 2
    assert budget.admit([b"later"], now=0.5) == ["… [30 bytes of log dropped]".encode(), b"later"]
    assert budget.note() == b""


def test_lines_with_nowhere_to_go_are_counted_too() -> None:
    budget = LogBudget(LogRate(), now=0.0)
    budget.drop([b"abc", b"de"])
    assert budget.note() == "… [7 bytes of log dropped]".encode()
