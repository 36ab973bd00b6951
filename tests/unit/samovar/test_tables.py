"""Tables and numbers as people read them."""

from __future__ import annotations

import time

import pytest

from samovar.names import FunctionName, parse_name
from samovar.problems import WrongUsage
from samovar.tables import Column, duration, field, moment, render, size
from samovar.when import parse_moment, parse_span

COLUMNS = (
    field("NAME", "name", flexible=True),
    field("CALLS", "calls", right=True),
    field("WHY", "why", flexible=True),
)


def test_columns_are_aligned_and_lines_have_no_trailing_blanks() -> None:
    rows = [{"name": "a", "calls": 7, "why": "x"}, {"name": "longer", "calls": 1234, "why": None}]
    assert render(COLUMNS, rows, None) == [
        "NAME    CALLS  WHY",
        "a           7  x",
        "longer   1234  -",
    ]


def test_nothing_is_cut_where_there_is_no_terminal() -> None:
    rows = [{"name": "n" * 300, "calls": 1, "why": "w" * 300}]
    assert "n" * 300 in render(COLUMNS, rows, None)[1]


def test_on_a_terminal_the_last_column_wraps_and_others_are_cut_to_fit() -> None:
    rows = [{"name": "n" * 50, "calls": 1, "why": "because of a reason that takes many words to tell"}]
    lines = render(COLUMNS, rows, 40)
    assert all(len(line) <= 40 for line in lines)
    assert "…" in lines[1]
    told = " ".join(line.split("1  ")[-1].strip() for line in lines[1:])
    assert told == rows[0]["why"]


def test_control_characters_cannot_drive_the_terminal() -> None:
    lines = render((Column("A", lambda row: row["a"]), field("B", "b")), [{"a": "x", "b": "\x1b[2Jred\r\n"}], None)
    assert "\x1b" not in lines[1]
    assert "\\x1b[2Jred\\r\\n" in lines[1]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (0, "0"), (0.0004, "0.4 ms"), (0.012, "12 ms"), (3.21, "3.2 s"), (245, "4m 05s"),
     (7620, "2h 07m"), (273_600, "3d 04h")],
)  # fmt: skip
def test_durations(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (12 * 1024**2, "12 MiB"), (5e13, "45.5 TiB")]
)
def test_sizes(count: float, text: str) -> None:
    assert size(count) == text


def test_a_time_of_today_has_no_date() -> None:
    now = time.mktime((2026, 5, 4, 12, 0, 0, 0, 0, -1))
    assert moment(now - 60, now) == "11:59:00"
    assert moment(now - 86400, now) == "2026-05-03 12:00:00"
    assert moment(None, now) == "-"


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("1.5m", 90), ("36h", 129_600), ("7d", 604_800), ("2w", 1_209_600)]
)
def test_spans(text: str, seconds: float) -> None:
    assert parse_span("--x", text) == seconds
    assert parse_moment("--x", text, 2e6) == 2e6 - seconds


@pytest.mark.parametrize(
    ("text", "epoch"),
    [
        ("1970-01-02", 86400.0),
        ("1970-01-01T01:00", 3600.0),
        ("1970-01-01T01:00+01:00", 0.0),
        ("1970-01-01T00:00:01Z", 1.0),
    ],
)
def test_moments_are_utc_unless_they_name_their_zone(text: str, epoch: float) -> None:
    assert parse_moment("--since", text, 0.0) == epoch


@pytest.mark.parametrize("text", ["", "yesterday", "7", "-1d", "2026-13-01"])
def test_what_is_no_time_is_refused_with_the_options_name(text: str) -> None:
    with pytest.raises(WrongUsage, match="--since"):
        parse_moment("--since", text, 0.0)


def test_names() -> None:
    assert parse_name("hello") == FunctionName("default", "hello")
    assert parse_name("lab/hello") == FunctionName("lab", "hello")
    assert FunctionName("lab", "h").short == "lab/h"
    assert FunctionName("default", "h").short == "h"
    for bad in ("", "/", "a/b/c", "/a", "a/"):
        with pytest.raises(WrongUsage):
            parse_name(bad)
