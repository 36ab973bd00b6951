"""Runs a program to its end, bounded in time and output; when it is not wanted any more its process group is killed."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from typing import NamedTuple

_READ_BYTES = 64 * 1024


class ProgramOverdue(Exception):
    """The program was killed because its time was over; `output` is what it wrote until then."""

    def __init__(self, output: str) -> None:
        super().__init__("the program's time was over")
        self.output = output


class Ended(NamedTuple):
    """How it ended: exit code (negative: the signal), and the last of its output."""

    code: int
    output: str


async def run_program(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    within_s: float,
    output_bytes_max: int,
    *,
    with_errors: bool = True,
) -> Ended:
    """Run it in "/", in a session of its own, with nothing on its standard input.

    `with_errors`: what it writes to standard error is part of the output, else thrown away.

    Raises ProgramOverdue, and OSError when it cannot be started. When cancelled the program is killed.
    """
    process = await asyncio.create_subprocess_exec(
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT if with_errors else asyncio.subprocess.DEVNULL,
        env=dict(environment),
        cwd="/",
        start_new_session=True,
    )
    written = bytearray()
    assert process.stdout is not None
    try:
        async with asyncio.timeout(within_s):
            while piece := await process.stdout.read(_READ_BYTES):
                written += piece
                del written[: max(0, len(written) - output_bytes_max)]
            code = await process.wait()
    except TimeoutError:
        raise ProgramOverdue(_text(written)) from None
    finally:
        if process.returncode is None:
            _kill(process.pid)
            await asyncio.shield(process.wait())
    return Ended(code, _text(written))


def _text(written: bytearray) -> str:
    return written.decode("utf-8", "replace").strip()


def _kill(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it ended in this moment
