"""What the gateway holds of each worker between the order to start it and the news of its exit."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from gateway.call import Call
from gateway.catalog import Revision
from gateway.errors import SamovarError
from gateway.links.worker import WorkerLink
from runtime import messages as wire


@dataclass
class LiveWorker:
    """What the controller holds of one worker, from the order to start it until its exit is known."""

    revision: Revision
    agent: str
    slice_id: str
    ordered_at: float
    link: WorkerLink | None = None
    deadline: asyncio.TimerHandle | None = None
    pid: int = 0
    how: str = ""
    #: Time from the order to Ready, less the handler's own initialisation.
    start_us: int = 0
    init_us: int = 0
    ready: wire.Ready | None = None
    failure: wire.StartFailed | None = None
    #: Calls that were on its link when that ended, until the exit code is known.
    orphans: list[Call] = field(default_factory=list)
    stopping: str = ""


def ending_of(message: wire.Exited) -> str:
    if message.signal:
        return f"killed by signal {message.signal}" + (f" ({message.note})" if message.note else "")
    return f"exited with code {message.code}" + (f" ({message.note})" if message.note else "")


def for_callers(error: SamovarError) -> SamovarError:
    """A start's error as its waiting callers may see it: without the traceback."""
    return type(error)(f"the function could not start: {error.message}", retry_after_s=error.retry_after_s)
