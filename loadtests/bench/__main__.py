"""`python -m loadtests.bench`: measures, prints one table, exits with 1 when a row could not be measured.

A bound that is missed is said in the table and is no failure of the run: an exit code does not judge a machine.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from loadtests.bench import machine
from loadtests.bench.plan import MEASURES, measure
from loadtests.bench.stage import BenchParams, Stage, progress
from loadtests.bench.table import Row, as_json, inserted, markdown, text


def read_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line; ends the process with 2 when it cannot be used."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.bench", description=__doc__)
    parser.add_argument(
        "--only", action="extend", nargs="+", choices=list(MEASURES), metavar="ROW", help=f"of {', '.join(MEASURES)}"
    )
    parser.add_argument("--seconds", type=float, default=BenchParams.slice_s, help="length of one measured slice")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything measured as JSON")
    parser.add_argument(
        "--markdown", type=Path, metavar="FILE", help="also write the table, between the marks of an existing document"
    )
    given = parser.parse_args(arguments)
    if not 0 < given.seconds <= 600:
        parser.error("--seconds: more than 0 and at most 600")
    return given


def write_files(rows: list[Row], environment: dict[str, str], given: argparse.Namespace) -> None:
    """The table's other forms, where they are asked for. Raises OSError."""
    if given.json:
        given.json.write_text(json.dumps(as_json(rows, environment), indent=1) + "\n")
    if given.markdown:
        before = given.markdown.read_text() if given.markdown.exists() else ""
        given.markdown.write_text(inserted(before, markdown(rows, machine.line(environment))))


def main() -> int:
    """The exit code."""
    given = read_arguments()
    # SIGTERM ends what was started, as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    environment = machine.environment()
    names = [name for name in MEASURES if not given.only or name in given.only]
    with tempfile.TemporaryDirectory(prefix="samovar-bench-") as directory:
        stage = Stage(Path(directory), replace(BenchParams(), slice_s=given.seconds))
        try:
            rows = measure(stage, names)
        finally:
            progress("stopping what was started")
            stage.close()
    print(f"{machine.line(environment)}\n\n{text(rows)}")
    write_files(rows, environment, given)
    return 1 if any(row.error for row in rows) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
