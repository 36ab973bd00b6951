"""`python -m gateway`: one gateway process in the foreground, until a signal ends it."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import signal
import sys

import uvloop

from gateway.composition import House
from gateway.embedded.data_directory import DataDirectoryBusy, DataDirectoryUnusable
from gateway.embedded.identity import NoIdentity
from gateway.embedded.processes import ServerFailed
from gateway.errors import SamovarError
from gateway.logformat import set_up_logging
from gateway.settings import BadSettings, Settings, read_settings

_PR_SET_PDEATHSIG = 1

#: Exit codes: what a person can mend, and what they cannot.
EXIT_USAGE, EXIT_FAILED = 2, 1

#: What a start can meet, each with a message that says what to do.
_EXPECTED = (DataDirectoryBusy, DataDirectoryUnusable, NoIdentity, ServerFailed, SamovarError, OSError)


def _die_with_parent(parent: int) -> None:
    """Have the kernel end this process (politely) when its parent ends, however that ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)


async def _serve(settings: Settings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with House(settings) as house:
        starting = asyncio.create_task(house.open(), name="start")
        stopping = asyncio.create_task(stop.wait(), name="wait for a signal")
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            return
        starting.result()
        # What was made up to here stays: collections need not walk it again.
        gc.collect()
        gc.freeze()
        await stopping


def main() -> int:
    """Read the settings, run, say in one line what went wrong."""
    try:
        settings = read_settings(sys.argv[1:])
    except BadSettings as error:
        print(f"samovar: {error}", file=sys.stderr)
        return EXIT_USAGE
    if settings.die_with_parent:
        _die_with_parent(os.getppid())
    set_up_logging()
    try:
        uvloop.run(_serve(settings))
    except _EXPECTED as error:
        print(f"samovar: {error}", file=sys.stderr)
        return EXIT_FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
