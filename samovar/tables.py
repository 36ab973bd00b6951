"""Rows as plain aligned text, and numbers as people read them. Pure."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from samovar.output import printable

Row = Mapping[str, Any]

_GAP = "  "
#: A column is never cut below this.
_NARROWEST = 8


@dataclass(frozen=True)
class Column:
    """One column: its title and how a row fills it. `flexible` ones are cut when the table is too wide."""

    title: str
    value: Callable[[Row], str]
    right: bool = False
    flexible: bool = False


def field(title: str, key: str, *, right: bool = False, flexible: bool = False) -> Column:
    """A column that shows one key as it is."""
    return Column(title, lambda row: text_of(row.get(key)), right, flexible)


def text_of(value: Any) -> str:
    """A cell's text; nothing is a dash."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return printable(str(value))


def render(columns: Sequence[Column], rows: Sequence[Row], width: int | None) -> list[str]:
    """Lines of the table, titles first. A flexible last column is wrapped, other flexible ones are cut."""
    cells = [[column.value(row) for column in columns] for row in rows]
    widths = [max([len(c.title)] + [len(line[i]) for line in cells]) for i, c in enumerate(columns)]
    if width is not None:
        widths = _fit(columns, widths, width)
    lines = [_line(columns, [c.title for c in columns], widths)]
    for row in cells:
        lines += _wrapped(columns, row, widths)
    return lines


def _fit(columns: Sequence[Column], widths: list[int], width: int) -> list[int]:
    over = sum(widths) + len(_GAP) * (len(widths) - 1) - width
    fitted = list(widths)
    while over > 0:
        candidates = [i for i, c in enumerate(columns) if c.flexible and fitted[i] > _NARROWEST]
        if not candidates:
            break
        widest = max(candidates, key=lambda i: fitted[i])
        fitted[widest] -= 1
        over -= 1
    return fitted


def _wrapped(columns: Sequence[Column], cells: list[str], widths: list[int]) -> list[str]:
    if not columns[-1].flexible or len(cells[-1]) <= widths[-1]:
        return [_line(columns, cells, widths)]
    pieces = textwrap.wrap(cells[-1], widths[-1]) or [""]
    indent = " " * (sum(widths[:-1]) + len(_GAP) * (len(widths) - 1))
    return [_line(columns, [*cells[:-1], pieces[0]], widths)] + [indent + piece for piece in pieces[1:]]


def _line(columns: Sequence[Column], cells: list[str], widths: list[int]) -> str:
    parts = []
    for column, cell, width in zip(columns, cells, widths, strict=True):
        cut = cell if len(cell) <= width else cell[: width - 1] + "…"
        parts.append(cut.rjust(width) if column.right else cut.ljust(width))
    return _GAP.join(parts).rstrip()


def duration(seconds: float | None) -> str:
    """`0.4 ms`, `12 ms`, `3.2 s`, `4m 05s`, `2h 07m`, `3d 04h`."""
    if seconds is None:
        return "-"
    if seconds < 0.01:
        return f"{seconds * 1000:.1f} ms" if seconds else "0"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h {whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d {whole % 86400 // 3600:02d}h"


def size(count: float | None) -> str:
    """`512 B`, `3.4 KiB`, `12 MiB`."""
    if count is None:
        return "-"
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" or amount >= 10 else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def moment(at: float | None, now: float) -> str:
    """A time of today as `14:03:07`, another as `2026-01-31 14:03:07`; local time."""
    if at is None:
        return "-"
    local = time.localtime(at)
    same_day = time.strftime("%F", local) == time.strftime("%F", time.localtime(now))
    return time.strftime("%T" if same_day else "%F %T", local)
