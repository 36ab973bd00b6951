"""The one table that the benchmark prints, and its other forms: Markdown for the docs, JSON for scripts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

HEADINGS = ("row", "measured", "control", "ratio", "bound", "met")
#: What a document holds around the table that a run replaces.
BEGIN = "<!-- bench:begin -->"
END = "<!-- bench:end -->"


@dataclass(frozen=True)
class Row:
    """One line of the table; numbers as people read them, and raw in `values`."""

    name: str
    measured: str
    control: str = ""
    ratio: str = ""
    bound: str = ""
    #: None: nothing is promised, the number is printed for the reader.
    met: bool | None = None
    #: Said below the table.
    note: str = ""
    #: Why there is no measurement; such a row makes the run fail.
    error: str = ""
    #: Raw numbers by name, with their unit in the name.
    values: dict[str, float] = field(default_factory=dict)


def failed(name: str, error: str) -> Row:
    """The row of a measurement that did not come about."""
    return Row(name, measured="error", error=error)


def _cells(row: Row) -> tuple[str, ...]:
    met = "error" if row.error else {None: "", True: "yes", False: "NO"}[row.met]
    return (row.name, row.measured, row.control, row.ratio, row.bound, met)


def text(rows: Sequence[Row]) -> str:
    """The table for a terminal, with errors and notes below."""
    lines = [HEADINGS, *map(_cells, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    printed = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    ]
    printed.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(printed + _remarks(rows, "  "))


def markdown(rows: Sequence[Row], environment: str) -> str:
    """The table for a document."""
    lines = ["| " + " | ".join(HEADINGS) + " |", "|" + "---|" * len(HEADINGS)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in _cells(row)) + " |" for row in rows]
    remarks = _remarks(rows, "- ")
    return "\n".join([f"Measured on {environment}.", "", *lines, *([""] if remarks else []), *remarks]) + "\n"


def _remarks(rows: Sequence[Row], bullet: str) -> list[str]:
    return [f"{bullet}{row.name}: {said}" for row in rows for said in (row.error, row.note) if said]


def inserted(document: str, table: str) -> str:
    """The document with `table` between its marks, or `table` alone where the document has none."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        return table
    return f"{before}{BEGIN}\n{table}{END}{after}"


def as_json(rows: Sequence[Row], environment: dict[str, str]) -> dict[str, Any]:
    """Everything, for scripts."""
    return {"environment": environment, "rows": [asdict(row) for row in rows]}
