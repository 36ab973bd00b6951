"""Commands that change what serves: delete and rollback."""

from __future__ import annotations

import sys

import click

from samovar.names import parse_name
from samovar.options import Asked, asks_gateway
from samovar.output import say, say_json


@click.command(short_help="Delete a function.")
@click.argument("name")
@click.option("-y", "--yes", is_flag=True, help="Do not ask (it asks on a terminal only).")
@asks_gateway
def delete(asked: Asked, name: str, yes: bool) -> None:
    """Delete a function with all its revisions; its metering stays."""
    full = parse_name(name)
    if not yes and not asked.as_json and sys.stdin.isatty() and sys.stdout.isatty():
        click.confirm(f"delete {full} and all its revisions?", abort=True)
    with asked.client() as client:
        answer = client.ask("DELETE", f"functions/{full.path}")
    if asked.as_json:
        say_json(answer)
    else:
        say(f"{full} is deleted")


@click.command(short_help="Let an earlier revision serve.")
@click.argument("name")
@click.argument("revision", type=click.IntRange(min=1), required=False)
@asks_gateway
def rollback(asked: Asked, name: str, revision: int | None) -> None:
    """Switch traffic back to REVISION, or to the ready one before the present."""
    full = parse_name(name)
    with asked.client() as client:
        body = {} if revision is None else {"revision": revision}
        answer = client.ask("POST", f"functions/{full.path}/rollback", body=body)
    if asked.as_json:
        say_json(answer)
    else:
        say(f"{full} revision {answer.get('revision')} serves now (before: {answer.get('previous')})")
