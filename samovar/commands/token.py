"""`samovar token`: who may call and deploy. Needs an administrator's token; a local `samovar up` gives you one."""

from __future__ import annotations

import getpass
import os
import time
from urllib.parse import quote

import click

from samovar.names import DEFAULT_NAMESPACE
from samovar.options import Asked, asks_gateway
from samovar.output import note, say, say_json, table_width
from samovar.tables import Column, field, moment, render, text_of
from samovar.when import parse_span


@click.group(short_help="Create, list and delete tokens.")
def token() -> None:
    """Create, list and delete tokens (needs an administrator's token)."""


@token.command(short_help="Create a token; it is shown this once.")
@click.option("-n", "--namespace", metavar="NS", help=f"What it opens [{DEFAULT_NAMESPACE}; with --admin every one].")
@click.option("--name", metavar="TEXT", help="A note on whom it is for [else who made it].")
@click.option("--expires-in", metavar="SPAN", help="Such as 12h or 90d [else it does not expire].")
@click.option("--admin", is_flag=True, help="May manage tokens.")
@asks_gateway
def create(asked: Asked, namespace: str | None, name: str | None, expires_in: str | None, admin: bool) -> None:
    """Create a token. It goes to stdout, alone, and is never shown again."""
    opens = namespace or (None if admin else DEFAULT_NAMESPACE)
    body: dict[str, object] = {"namespace": opens, "name": name or f"made by {_who()}"}
    if expires_in is not None:
        body["expires_in_s"] = parse_span("--expires-in", expires_in)
    if admin:
        body["admin"] = True
    with asked.client() as client:
        answer = client.ask("POST", "tokens", body=body)
    if asked.as_json:
        say_json(answer)
        return
    expiry = answer.get("expires_at")
    until = f"expires {moment(expiry, time.time())}" if expiry else "does not expire"
    note(f"token {answer.get('id')} for {answer.get('namespace') or 'every namespace'}, {until}:")
    say(str(answer.get("token", "")))


def _who() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in some containers
        return f"user {os.getuid()}"


@token.command("list", short_help="List the tokens, without their secrets.")
@asks_gateway
def list_tokens(asked: Asked) -> None:
    """List the tokens, without their secrets."""
    with asked.client() as client:
        rows = client.get("tokens")
    if asked.as_json:
        say_json(rows)
        return
    now = time.time()
    columns = (
        field("ID", "id"),
        Column("NAMESPACE", lambda row: text_of(row.get("namespace") or "every")),
        field("NAME", "name", flexible=True),
        field("ADMIN", "admin"),
        Column("EXPIRES", lambda row: moment(row.get("expires_at"), now)),
    )
    for line in render(columns, rows, table_width()):
        say(line)


@token.command(short_help="Delete a token; it opens nothing from then on.")
@click.argument("ident", metavar="ID")
@asks_gateway
def delete(asked: Asked, ident: str) -> None:
    """Delete a token by its ID; it opens nothing from then on."""
    with asked.client() as client:
        answer = client.ask("DELETE", f"tokens/{quote(ident, safe='')}")
    if asked.as_json:
        say_json(answer)
    else:
        say(f"token {ident} is deleted")
