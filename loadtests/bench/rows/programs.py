"""Benchmarks that are programs of their own, run here and read: the pure pool's simulator and the metering writer."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from loadtests.bench.machine import PROJECT
from loadtests.bench.stage import Stage, progress
from loadtests.bench.table import Row

POOL_MIN_PER_S = 200_000
WRITER_MIN_PER_S = 50_000
OUTPUT_TAIL_CHARACTERS = 1500


class ProgramFailed(Exception):
    """It ended badly or said nothing that can be read; the message quotes it."""


def run_program(module: str, *arguments: str, timeout_s: float) -> dict[str, Any]:
    """Run `python -m module` and give the JSON object on the last line of what it prints. Raises ProgramFailed."""
    command = [sys.executable, "-m", module, *arguments]
    try:
        done = subprocess.run(
            command,
            cwd=PROJECT,
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired as error:
        raise ProgramFailed(f"{module} did not end within {timeout_s:g} s") from error
    if done.returncode:
        raise ProgramFailed(f"{module} ended with {done.returncode}: {done.stderr[-OUTPUT_TAIL_CHARACTERS:].strip()}")
    return last_object(module, done.stdout)


def last_object(module: str, output: str) -> dict[str, Any]:
    """The JSON object on the last line, or the whole output when that is one. Raises ProgramFailed."""
    for text in (output.strip(), output.strip().rpartition("\n")[2]):
        try:
            said = json.loads(text)
        except ValueError:
            continue
        if isinstance(said, dict):
            return said
    raise ProgramFailed(f"{module} printed no JSON object: {output[-OUTPUT_TAIL_CHARACTERS:].strip()!r}")


def number(said: Mapping[str, Any], name: str) -> float:
    """A number that a program said. Raises ProgramFailed when it did not."""
    value = said.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ProgramFailed(f"no number {name!r} in {dict(said)!r}")
    return float(value)


def pool(stage: Stage) -> list[Row]:
    """Events a second that the pool handles in the simulator, one process."""
    progress("the pure pool in the simulator")
    said = run_program("loadtests.simulator", "--json", timeout_s=stage.params.program_timeout_s)
    return [rate_row("pure pool in the simulator", "events/s", number(said, "events_per_s"), POOL_MIN_PER_S)]


def writer(stage: Stage) -> list[Row]:
    """Metering records a second from the journal into PostgreSQL."""
    progress("the metering writer")
    records = str(stage.params.writer_records)
    said = run_program(
        "gateway.metering.bench", "--records", records, "--json", timeout_s=stage.params.program_timeout_s
    )
    row = rate_row("metering writer into PostgreSQL", "records/s", number(said, "records_per_s"), WRITER_MIN_PER_S)
    append_us = number(said, "append_us")
    return [replace(row, note=f"before that, appending a record to the journal takes {append_us:.1f} us")]


def rate_row(name: str, unit: str, rate: float, least: float) -> Row:
    """The row of something that must happen often enough."""
    return Row(
        name=name,
        measured=f"{rate:,.0f} {unit}",
        ratio=f"{rate / least:.1f} x the bound",
        bound=f">= {least:,.0f}",
        met=rate >= least,
        values={"per_s": rate},
    )
