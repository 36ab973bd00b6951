"""Commands that look and change nothing: list, show, ps, explain."""

from __future__ import annotations

import time
from typing import Any

import click

from samovar.names import parse_name
from samovar.options import Asked, asks_gateway
from samovar.output import note, say, say_json, table_width
from samovar.tables import Column, Row, duration, field, moment, render, text_of

_namespace = click.option("-n", "--namespace", metavar="NS", help="Only this namespace.")


@click.command("list", short_help="List the functions.")
@_namespace
@asks_gateway
def list_functions(asked: Asked, namespace: str | None) -> None:
    """List the functions, with how many workers each has now."""
    with asked.client() as client:
        rows = client.get("functions", namespace=namespace)
        base = client.absolute
    if asked.as_json:
        say_json(rows)
        return
    now = time.time()
    columns = (
        Column("FUNCTION", _function),
        field("REVISION", "live", right=True),
        field("STATE", "state"),
        field("WORKERS", "workers", right=True),
        field("PUBLIC", "public"),
        Column("UPDATED", lambda row: moment(row.get("updated_at"), now)),
        Column("URL", lambda row: base(text_of(row.get("url"))), flexible=True),
    )
    _table(columns, rows, "no functions yet: `samovar init NAME`, then `samovar deploy NAME`")


@click.command(short_help="Show one function: its revisions and settings.")
@click.argument("name")
@asks_gateway
def show(asked: Asked, name: str) -> None:
    """Show one function: its revisions, newest first, and its settings."""
    with asked.client() as client:
        function = client.get(f"functions/{parse_name(name).path}")
        url = client.absolute(str(function.get("url", "")))
    if asked.as_json:
        say_json(function)
        return
    say(f"{_function(function)}  {text_of(function.get('state'))}, {text_of(function.get('workers'))} workers")
    say(f"  {url}")
    now = time.time()
    say()
    columns = (
        field("REVISION", "number", right=True),
        field("STATE", "state"),
        Column("SERVES", lambda row: "yes" if row.get("live") else "-"),
        field("SHAPE", "shape"),
        Column("ENVIRONMENT", lambda row: text_of(row.get("environment"))[:12]),
        Column("CREATED", lambda row: moment(row.get("created_at"), now)),
        Column("ERROR", lambda row: text_of((str(row.get("error") or "").strip().splitlines() or [""])[-1]),
               flexible=True),
    )  # fmt: skip
    _table(columns, sorted(function.get("revisions") or [], key=lambda row: -int(row["number"])), "no revisions")
    if isinstance(function.get("manifest"), dict):
        say()
        for line in _settings(function["manifest"], "  "):
            say(line)


@click.command(short_help="List the workers.")
@_namespace
@asks_gateway
def ps(asked: Asked, namespace: str | None) -> None:
    """List the workers: what each serves, how it was started, and what it does now."""
    with asked.client() as client:
        rows = client.get("workers", namespace=namespace)
    if asked.as_json:
        say_json(rows)
        return
    columns = (
        field("WORKER", "worker", flexible=True),
        Column("FUNCTION", _function),
        field("REVISION", "revision", right=True),
        field("STATE", "state"),
        field("START", "start_kind"),
        Column("CALLS", lambda row: f"{row.get('in_flight', 0)}/{row.get('concurrency', 0)}", right=True),
        Column("AGE", lambda row: duration(row.get("age_s")), right=True),
        Column("IDLE", lambda row: duration(row.get("idle_s")), right=True),
        field("PID", "pid", right=True),
        field("SLICE", "slice", flexible=True),
        field("AGENT", "agent", flexible=True),
    )
    _table(columns, rows, "no workers: every function is at zero")


@click.command(short_help="Show the pool's latest decisions for a function.")
@click.argument("name")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="How many at most.")
@asks_gateway
def explain(asked: Asked, name: str, limit: int) -> None:
    """Show the pool's latest decisions for the function, newest first, each with its reason."""
    with asked.client() as client:
        rows = client.get(f"functions/{parse_name(name).path}/explain", limit=limit)
    if asked.as_json:
        say_json(rows)
        return
    now = time.time()
    columns = (
        Column("AT", lambda row: moment(row.get("at"), now)),
        field("REVISION", "revision", right=True),
        field("DECISION", "decision"),
        field("WORKER", "worker"),
        field("REASON", "reason", flexible=True),
    )
    _table(columns, rows, "no decisions yet: nobody has called it")


def _function(row: Row) -> str:
    return f"{row.get('namespace', '')}/{row.get('name') or row.get('function') or ''}"


def _table(columns: tuple[Column, ...], rows: list[Row], nothing: str) -> None:
    if not rows:
        note(nothing)
        return
    for line in render(columns, rows, table_width()):
        say(line)


def _settings(values: dict[str, Any], indent: str) -> list[str]:
    """A manifest as indented lines; what is empty is left out."""
    lines = []
    for key, value in values.items():
        if value is None or value in ("", [], {}):
            continue
        if isinstance(value, dict):
            lines += [f"{indent}{key}", *_settings(value, indent + "  ")]
        elif isinstance(value, list):
            lines.append(f"{indent}{key:<18} {', '.join(map(text_of, value))}")
        else:
            lines.append(f"{indent}{key:<18} {text_of(value)}")
    return lines
