"""Framing of the journal: what is read back from files with any kind of end."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.metering.segments import ENTRY_MAX_BYTES, FIRST_POSITION, HEAD_BYTES, MAGIC, frame, parse, read_entries

PAYLOADS = st.lists(st.binary(min_size=1, max_size=300), max_size=20)
MANY = 1_000_000


@given(PAYLOADS, st.integers(1, 30))
def test_payloads_come_back_in_order_in_pieces_of_any_size(payloads: list[bytes], at_most: int) -> None:
    data = b"".join(map(frame, payloads))
    position, found = 0, []
    while True:
        entries = parse(data[position:], position, at_most)
        found += entries.payloads
        position = entries.position
        if entries.end != "more":
            break
    assert (found, entries.end, position) == (payloads, "whole", len(data))


@given(PAYLOADS.filter(bool), st.data())
def test_a_file_cut_anywhere_gives_the_whole_entries_before_the_cut(payloads: list[bytes], data: st.DataObject) -> None:
    written = b"".join(map(frame, payloads))
    cut = data.draw(st.integers(0, len(written)))
    entries = parse(written[:cut], 0, MANY)
    ends = [0]
    for payload in payloads:
        ends.append(ends[-1] + HEAD_BYTES + len(payload))
    whole = max(n for n, end in enumerate(ends) if end <= cut)
    assert entries.payloads == payloads[:whole]
    assert entries.position == ends[whole]
    assert entries.end == ("whole" if cut == ends[whole] else "torn")


@given(PAYLOADS.filter(bool), st.data())
def test_a_changed_bit_never_gives_a_record_that_was_not_written(payloads: list[bytes], data: st.DataObject) -> None:
    written = bytearray(b"".join(map(frame, payloads)))
    written[data.draw(st.integers(0, len(written) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    entries = parse(bytes(written), 0, MANY)
    assert entries.payloads == payloads[: len(entries.payloads)]
    assert len(entries.payloads) < len(payloads)
    assert entries.end in {"torn", "damaged"}


def test_zeros_after_a_power_failure_are_damage() -> None:
    entries = parse(frame(b"record") + bytes(64), 100, MANY)
    assert (entries.payloads, entries.position, entries.end) == ([b"record"], 100 + HEAD_BYTES + 6, "damaged")


def segment(directory: Path, data: bytes) -> Path:
    path = directory / "one.journal"
    path.write_bytes(data)
    return path


def test_a_segment_is_read_from_any_position_in_bounded_pieces(tmp_path: Path) -> None:
    payloads = [bytes([n]) * 50 for n in range(1, 40)]
    path = segment(tmp_path, MAGIC + b"".join(map(frame, payloads)))
    size = path.stat().st_size
    position, found, pieces = 0, [], 0
    while True:
        entries = read_entries(path, position, size, bytes_max=200, records_max=MANY)
        found += entries.payloads
        position = entries.position
        pieces += 1
        if entries.end != "more":
            break
    assert (found, entries.end, position) == (payloads, "whole", size)
    assert pieces > 10


def test_an_entry_larger_than_a_piece_is_read_all_the_same(tmp_path: Path) -> None:
    payloads = [b"x" * 5000, b"y", b"z" * ENTRY_MAX_BYTES]
    path = segment(tmp_path, MAGIC + b"".join(map(frame, payloads)))
    position, found = 0, []
    for _ in payloads:
        entries = read_entries(path, position, path.stat().st_size, bytes_max=100, records_max=1)
        found += entries.payloads
        position = entries.position
    assert found == payloads


def test_what_was_appended_after_the_size_was_taken_is_not_read(tmp_path: Path) -> None:
    first = MAGIC + frame(b"first")
    path = segment(tmp_path, first + frame(b"later"))
    assert read_entries(path, FIRST_POSITION, len(first), MANY, MANY).payloads == [b"first"]


@pytest.mark.parametrize(
    ("data", "end"), [(b"", "torn"), (MAGIC[:3], "torn"), (b"another format", "damaged"), (MAGIC, "whole")]
)
def test_a_segment_without_its_first_bytes_holds_nothing(tmp_path: Path, data: bytes, end: str) -> None:
    entries = read_entries(segment(tmp_path, data), 0, len(data), MANY, MANY)
    assert (entries.payloads, entries.end) == ([], end)
