"""`samovar deploy`: uploads a folder and shows how it becomes a serving revision."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from samovar.archive import Packed
from samovar.deployment import DeployFailed, Watcher, deploy_folder
from samovar.names import FunctionName
from samovar.options import Asked, asks_gateway
from samovar.output import note, paint, say, say_json
from samovar.spinner import Spinner
from samovar.tables import duration, size, text_of


@click.command(short_help="Upload a function's folder and put it into service.")
@click.argument("path", type=click.Path(path_type=Path), default=".")
@click.option("-n", "--namespace", metavar="NS", help="Deploy into this namespace [else function.toml's].")
@asks_gateway
def deploy(asked: Asked, path: Path, namespace: str | None) -> None:
    """Upload the folder PATH, build its environment, prove that it starts, and switch traffic to it.

    Left out: .git, __pycache__, .venv, node_modules, editor backups, and what a .samovarignore names (one pattern a
    line). When a step fails the revision that serves goes on serving.
    """
    with asked.client() as client, Spinner(sys.stderr, not asked.as_json) as spinner:
        watcher = Watcher() if asked.as_json else _shown(spinner)
        try:
            done = deploy_folder(client, path, namespace, watcher)
        except DeployFailed as problem:
            spinner.stop()
            if not asked.as_json:
                _show_detail(problem)
            raise
    event = done.event
    if asked.as_json:
        say_json(event)
        return
    took = duration(float(event.get("elapsed_ms", 0)) / 1000)
    say(f"{done.name} revision {event.get('revision')} serves now ({took})")
    say(f"  {client.absolute(str(event.get('url', '')))}")


def _shown(spinner: Spinner) -> Watcher:
    def packed(name: FunctionName, result: Packed) -> None:
        files = "1 file" if result.files == 1 else f"{result.files} files"
        sizes = f"{size(result.content_bytes)}, {size(result.archive_bytes)} packed"
        note(f"{name}: {files}, {sizes}")
        spinner.turn("uploading")

    def progress(event: dict[str, Any]) -> None:
        spinner.stop()
        at = duration(float(event.get("elapsed_ms", 0)) / 1000)
        phase = text_of(event.get("phase"))
        note(f"  {phase:<12} {at:>8}  {text_of(event.get('message'))}")
        spinner.turn(phase)

    return Watcher(packed, progress)


def _show_detail(problem: DeployFailed) -> None:
    """The researcher's own traceback, or what the installer said, as it is."""
    detail = problem.detail or {}
    for key in ("output", "traceback"):
        text = str(detail.get(key) or "").rstrip()
        if text:
            note(paint(text, "yellow", sys.stderr))
