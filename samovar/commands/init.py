"""`samovar init`: a new function's folder to start from."""

from __future__ import annotations

from pathlib import Path

import click

from samovar.folder import create_folder
from samovar.names import check_new_name, parse_name
from samovar.options import json_option
from samovar.output import say, say_json


@click.command(short_help="Make a new function's folder.")
@click.argument("name")
@json_option
def init(name: str, as_json: bool) -> None:
    """Make a folder NAME with function.toml, handler.py and a test request. Nothing is overwritten."""
    full = parse_name(name)
    check_new_name("function's name", full.function)
    check_new_name("namespace", full.namespace)
    files = create_folder(full, Path())
    if as_json:
        say_json({"name": str(full), "folder": full.function, "files": [str(file) for file in files]})
        return
    for file in files:
        say(f"wrote {file}")
    say(f"next: samovar deploy {full.function} && samovar invoke {full.short} -d @{files[-1]}")
