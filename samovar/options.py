"""Options that every command shares: `--json`, and for those that speak to a gateway `--url` and `--token`."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from samovar.client import Client
from samovar.discovery import Target, find_target
from samovar.output import note

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True)
class Asked:
    """How a command was asked: which gateway, and whether the answer is for a script."""

    url: str | None
    token: str | None
    as_json: bool

    def target(self) -> Target:
        """The gateway to speak to. Raises Unreachable."""
        return find_target(self.url, self.token, Path.cwd(), os.environ, lambda text: note(f"warning: {text}"))

    def client(self) -> Client:
        """A client of that gateway; use as a context manager."""
        return Client(self.target())


def json_option(command: Command) -> Command:
    """`--json`, as the parameter `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Answer with one JSON value, for scripts.")(command)


def asks_gateway(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the shared options and gives the command an `Asked` as its first argument."""

    @click.option("--url", envvar="SAMOVAR_URL", metavar="URL", help="The gateway [SAMOVAR_URL; else your local one].")
    @click.option("--token", envvar="SAMOVAR_TOKEN", metavar="TOKEN", help="The token to show it [SAMOVAR_TOKEN].")
    @json_option
    @functools.wraps(command)
    def wrapper(*args: Any, url: str | None, token: str | None, as_json: bool, **more: Any) -> Any:
        return command(Asked(url, token, as_json), *args, **more)

    return wrapper
