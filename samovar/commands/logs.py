"""`samovar logs`: what a function's workers wrote."""

from __future__ import annotations

import sys
import time

import click

from samovar.names import parse_name
from samovar.options import Asked, asks_gateway
from samovar.output import json_text, paint, printable, say, say_json
from samovar.tables import Row, moment


@click.command(short_help="Show what a function wrote.")
@click.argument("name")
@click.option(
    "-f", "--follow", is_flag=True, help="Stay and show new lines as they come (with --json: one row a line)."
)
@click.option("--tail", type=click.IntRange(0, 10_000), default=100, show_default=True, help="How many old lines.")
@asks_gateway
def logs(asked: Asked, name: str, follow: bool, tail: int) -> None:
    """Show what the function's workers wrote to stdout and stderr, oldest first."""
    path = f"functions/{parse_name(name).path}/logs"
    rows = []
    with asked.client() as client:
        read_s = client.waits.follow_s if follow else client.waits.answer_s
        for row in client.lines("GET", path, read_s=read_s, params={"tail": tail, "follow": int(follow)}):
            if not asked.as_json:
                say(_line(row, time.time()))
            elif follow:
                say(json_text(row))
            else:
                rows.append(row)
    if asked.as_json and not follow:
        say_json(rows)


def _line(row: Row, now: float) -> str:
    head = f"{moment(row.get('at'), now)} {row.get('worker', '')} @{row.get('revision', '')}"
    text = str(row.get("line", ""))
    if sys.stdout.isatty():
        text = printable(text)
    # stderr lines are told apart even where there are no colours.
    mark = paint("!", "yellow", sys.stdout) if row.get("stream") == "stderr" else "|"
    return f"{head} {mark} {text}"
