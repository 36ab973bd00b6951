"""`samovar usage`: what was metered, summed by function."""

from __future__ import annotations

import time
from typing import Any

import click

from samovar.options import Asked, asks_gateway
from samovar.output import note, say, say_json, table_width
from samovar.tables import Column, Row, duration, field, render, size
from samovar.when import parse_moment


@click.command(short_help="Show what was used, by function.")
@click.option("-n", "--namespace", metavar="NS", help="Only this namespace.")
@click.option("--since", metavar="WHEN", help="From then on: 2026-01-31, 2026-01-31T14:00 (UTC) or 7d.")
@click.option("--until", metavar="WHEN", help="Up to then, likewise.")
@asks_gateway
def usage(asked: Asked, namespace: str | None, since: str | None, until: str | None) -> None:
    """Show the metered calls, summed by function: how they started, how long they ran, what they moved."""
    now = time.time()
    begin = None if since is None else parse_moment("--since", since, now)
    end = None if until is None else parse_moment("--until", until, now)
    with asked.client() as client:
        rows = client.get("usage", namespace=namespace, since=begin, until=end)
    if asked.as_json:
        say_json(rows)
        return
    if not rows:
        note("no calls in that time")
        return
    total: dict[str, Any] = {
        key: sum(row.get(key) or 0 for row in rows)
        for key in {k for row in rows for k, v in row.items() if isinstance(v, int | float)}
    }
    # Without a column of its own for the frozen starts, nor any other that holds nothing but zeros.
    columns = [c for key, c in _COLUMNS if key is None or total.get(key) or key in _ALWAYS]
    shown = [*rows, {"namespace": "", "function": "total", **total}] if len(rows) > 1 else rows
    for line in render(columns, shown, table_width()):
        say(line)


def _milliseconds(title: str, key: str) -> tuple[str, Column]:
    return key, Column(title, lambda row: duration((row.get(key) or 0) / 1000), right=True)


def _bytes(title: str, key: str) -> tuple[str, Column]:
    return key, Column(title, lambda row: size(row.get(key) or 0), right=True)


def _count(title: str, key: str) -> tuple[str, Column]:
    return key, field(title, key, right=True)


def _function(row: Row) -> str:
    return f"{row['namespace']}/{row['function']}" if row.get("namespace") else str(row.get("function", ""))


_ALWAYS = {"calls", "errors", "run_ms"}

_COLUMNS: tuple[tuple[str | None, Column], ...] = (
    (None, Column("FUNCTION", _function, flexible=True)),
    _count("CALLS", "calls"),
    _count("ERRORS", "errors"),
    _count("HOT", "hot"),
    _count("WARM", "warm"),
    _count("COLD", "cold"),
    _count("FROZEN", "frozen"),
    _milliseconds("WAITED", "queued_ms"),
    _milliseconds("RAN", "run_ms"),
    _milliseconds("SLICE", "slice_ms"),
    _milliseconds("CPU", "cpu_ms"),
    _bytes("IN", "bytes_in"),
    _bytes("OUT", "bytes_out"),
    _count("PLATFORM FAULTS", "platform_faults"),
    _count("LEFT", "client_gone"),
)
