"""What a call needs of those on its two sides: the link to its worker, and the floor that keeps its record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from gateway.deadlines import Deadlines
from gateway.metering.record import MeteringRecord

if TYPE_CHECKING:
    from gateway.call import Call


class Link(Protocol):
    """What a call needs of the connection to its worker."""

    def send_body(self, call: int, data: bytes, last: bool) -> None:
        """Pass on more of the request."""

    def send_credit(self, call: int, amount: int) -> None:
        """Say that so much of the answer was passed on."""

    def send_cancel(self, call: int, reason: str) -> None:
        """Say that nobody waits for the answer any more."""

    def abandon(self, call: int, reason: str, why: str) -> None:
        """The call was answered without the worker: send Cancel (`reason`), give the worker a moment to end the
        call, then have it killed; `why` is for the log."""


class Floor(Protocol):
    """What a call needs of the activator."""

    deadlines: Deadlines

    def leave_queue(self, call: Call) -> None:
        """The call does not wait for a worker any more."""

    def conclude(self, call: Call, record: MeteringRecord) -> None:
        """The call has its answer; keep its record."""
