"""The connection to one worker: calls out, answers back. One hop, and the hot path of every call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from gateway.call import Call
from gateway.errors import SamovarError
from gateway.links.listener import LinkConnection
from runtime import messages as wire
from runtime.codec import FrameError

#: After a call was answered without its worker (timeout, oversized body): how long the worker has to end it.
ABANDON_GRACE_S = 1.0
#: A caller who left: the worker may run on to the call's own limits, which the call's timer keeps.


class Supervisor(Protocol):
    """The controller, as a worker's link sees it."""

    def worker_ready(self, worker: str, ready: wire.Ready) -> None:
        """Its handler is loaded."""

    def worker_start_failed(self, worker: str, failure: wire.StartFailed) -> None:
        """Its handler could not be loaded."""

    def call_ended(self, call: Call) -> None:
        """The worker is done with this call."""

    def replace_worker(self, worker: str, reason: str) -> None:
        """Have it killed: it does not yield."""

    def link_lost(self, worker: str, calls: list[Call]) -> None:
        """The connection is gone, with these calls on it."""


class WorkerLink:
    """See the module. Implements `gateway.call.Link` and `gateway.links.listener.Receiver`."""

    def __init__(self, worker: str, connection: LinkConnection, supervisor: Supervisor) -> None:
        self.worker = worker
        self._connection = connection
        self._supervisor = supervisor
        self._calls: dict[int, Call] = {}
        self._next = 0
        self._handlers: dict[type, Callable[..., None]] = {
            wire.Response: self._on_response,
            wire.Body: self._on_body,
            wire.Credit: self._on_credit,
            wire.Failed: self._on_failed,
            wire.Ready: self._on_ready,
            wire.StartFailed: self._on_start_failed,
        }

    # -- to the worker -----------------------------------------------------------------------------------

    def dispatch(self, call: Call, start_kind: str, start_us: int, init_us: int) -> None:
        """Hand a call over."""
        self._next += 1
        call.number = self._next
        self._calls[self._next] = call
        self._connection.gathers = len(self._calls) > 1
        request = call.dispatched(self, start_kind, start_us, init_us)
        self._connection.send(request)
        if not request.last:
            call.flush_body()

    def send_body(self, call: int, data: bytes, last: bool) -> None:
        """Pass on more of a request."""
        if call in self._calls:
            self._connection.send(wire.Body(call, data, last, []))

    def send_credit(self, call: int, amount: int) -> None:
        """So much of the answer was passed on."""
        if call in self._calls:
            self._connection.send(wire.Credit(call, amount))

    def send_cancel(self, call: int, reason: str) -> None:
        """Nobody waits for this answer any more."""
        if call in self._calls:
            self._connection.send(wire.Cancel(call, reason))

    def abandon(self, call: int, reason: str, why: str) -> None:
        """The call was answered without the worker; see `gateway.call.Link`."""
        if call not in self._calls:
            return
        self._connection.send(wire.Cancel(call, reason))
        asyncio.get_running_loop().call_later(ABANDON_GRACE_S, self._replace_if_running, call, why)

    def _replace_if_running(self, call: int, why: str) -> None:
        if call in self._calls and not self._connection.closed:
            self._supervisor.replace_worker(self.worker, why)

    def close(self) -> None:
        """End the connection."""
        self._connection.close()

    # -- from the worker ---------------------------------------------------------------------------------

    def on_message(self, message: wire.Message) -> None:
        """One message of the worker."""
        handler = self._handlers.get(type(message))
        if handler is None:
            raise FrameError(f"{type(message).__name__} from worker {self.worker}")
        handler(message)

    def on_closed(self) -> None:
        """The connection is gone."""
        self._supervisor.link_lost(self.worker, self.take_calls())

    def take_calls(self) -> list[Call]:
        """The calls that were on this link; they are the taker's to end now."""
        calls = list(self._calls.values())
        self._calls.clear()
        return calls

    def _on_response(self, message: wire.Response) -> None:
        call = self._calls.get(message.call)
        if call is None:
            return
        if message.last:
            del self._calls[message.call]
            call.on_response(message)
            self._supervisor.call_ended(call)
        else:
            call.on_response(message)

    def _on_body(self, message: wire.Body) -> None:
        call = self._calls.get(message.call)
        if call is None:
            return
        if message.last:
            del self._calls[message.call]
            call.on_body_piece(message)
            self._supervisor.call_ended(call)
        else:
            call.on_body_piece(message)

    def _on_credit(self, message: wire.Credit) -> None:
        call = self._calls.get(message.call)
        if call is not None:
            call.on_credit(message.amount)

    def _on_failed(self, message: wire.Failed) -> None:
        call = self._calls.pop(message.call, None)
        if call is not None:
            call.on_failed(message)
            self._supervisor.call_ended(call)

    def _on_ready(self, message: wire.Ready) -> None:
        self._supervisor.worker_ready(self.worker, message)

    def _on_start_failed(self, message: wire.StartFailed) -> None:
        self._supervisor.worker_start_failed(self.worker, message)


def fail_calls(calls: list[Call], error: SamovarError) -> None:
    """Tell these callers that their worker is gone."""
    for call in calls:
        call.on_worker_lost(error)
