"""`samovar up`: a whole Samovar in the foreground, for this user, on this machine."""

from __future__ import annotations

import os
from pathlib import Path

import click

from samovar.discovery import DATA_NAME
from samovar.names import FunctionName
from samovar.options import json_option
from samovar.output import note, say, say_json, table_width
from samovar.tables import Column, render
from samovar.up.child import GatewayOptions, GatewayProcess
from samovar.up.port import DEFAULT_HOST, DEFAULT_PORT, check_free
from samovar.up.samples import Sample, curl_line, find_samples
from samovar.up.start import Ended, bring_samples_up, client_of, wait_ready


@click.command(short_help="Run everything in the foreground on this machine.")
@click.option("--data", type=click.Path(path_type=Path, file_okay=False), default=DATA_NAME, show_default=True,
              help="Where everything is kept.")  # fmt: skip
@click.option("--port", type=click.IntRange(0, 65535), help=f"Port to listen on [{DEFAULT_PORT}; 0: any free one].")
@click.option("--host", help=f"Address to listen on [{DEFAULT_HOST}].")
@click.option("--config", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="A samovar.toml.")
@click.option("--samples", is_flag=False, flag_value="", metavar="[DIR]", help="Deploy the sample functions, too.")
@json_option
def up(data: Path, port: int | None, host: str | None, config: Path | None, samples: str | None, as_json: bool) -> int:
    """Run the gateway, its database and a pool on this machine, in the foreground.

    Ctrl-C stops all of it in good order, a second one at once. Ends with the gateway's exit code.
    """
    parent = None if samples is None else find_samples(samples)
    if config is None or port is not None:
        check_free(host or DEFAULT_HOST, DEFAULT_PORT if port is None else port)
    data = data.absolute()
    child = GatewayProcess(GatewayOptions(data, port, host, config.absolute() if config else None))
    child.pass_signals_on()
    try:
        _bring_up(child, data, parent, as_json)
    except Ended:
        pass
    except BaseException:
        child.stop()
        child.wait()
        raise
    return child.wait()


def _bring_up(child: GatewayProcess, data: Path, parent: Path | None, as_json: bool) -> None:
    announced = wait_ready(child, data)
    shown: list[Sample] = []
    if parent is not None:
        note(f"deploying the sample functions of {parent}")
        with client_of(announced) as client:
            shown = bring_samples_up(child, client, parent, data)
    urls = {sample.name: f"{announced.url}/fn/{sample.name.path}" for sample in shown}
    lines = {s.name: curl_line(s, urls[s.name], data / "token") for s in shown if s.outcome != "failed"}
    if as_json:
        rows = [
            {"function": str(s.name), "outcome": s.outcome, "url": urls[s.name], "curl": lines.get(s.name)}
            | ({"problem": s.problem} if s.problem else {})
            for s in shown
        ]
        say_json({"url": announced.url, "data": str(data), "pid": os.getpid(), "samples": rows})
        return
    if shown:
        _show(shown, urls, lines)
    say(f"ready: {announced.url} (data in {data}; Ctrl-C stops it)")


def _show(samples: list[Sample], urls: dict[FunctionName, str], lines: dict[FunctionName, str]) -> None:
    columns = (
        Column("FUNCTION", lambda row: row["name"]),
        Column("OUTCOME", lambda row: row["outcome"]),
        Column("URL", lambda row: row["url"], flexible=True),
    )
    rows = [{"name": str(s.name), "outcome": s.outcome, "url": urls[s.name]} for s in samples]
    say()
    for line in render(columns, rows, table_width()):
        say(line)
    say()
    for sample in samples:
        say(f"# {sample.name}" + (f": {sample.problem}" if sample.problem else ""))
        if sample.name in lines:
            say(lines[sample.name])
    say()
