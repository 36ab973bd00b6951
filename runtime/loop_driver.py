"""Serves calls on an asyncio loop: ASGI applications, `async def` handlers, and several calls at once."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Awaitable, Callable
from typing import Protocol

from runtime.answers import CallCancelled
from runtime.call_stream import CallStream
from runtime.codec import Decoder, FrameError, encode
from runtime.cpu_share import CpuShare
from runtime.messages import Body, Cancel, Credit, Message, Request

#: The loop wakes at least this often.
BEAT_S = 2.0
#: A caller left: how long its call may notice by itself before it is cancelled. Below the gateway's own patience.
CANCEL_GRACE_S = 0.5


class Service(Protocol):
    """A shape, as this driver sees it."""

    #: A running call can be cancelled (a thread cannot).
    cancellable: bool

    async def start(self) -> None:
        """Once, before the first call. Raises runtime.loading.LoadError."""

    async def serve(self, stream: CallStream) -> None:
        """One call. What it raises ends the call."""

    async def stop(self) -> None:
        """Once, after the last call."""


class LoopDriver(asyncio.Protocol):
    """See the module."""

    def __init__(self, connection: socket.socket, service: Service, bundle_dir: str) -> None:
        self._connection = connection
        self._service = service
        self._bundle_dir = bundle_dir
        self._decoder = Decoder()
        self._cpu = CpuShare()
        self._calls: dict[int, tuple[CallStream, asyncio.Task[None]]] = {}
        #: Applications may go on after their answer; they are waited for when the worker is told to stop.
        self._running: set[asyncio.Task[None]] = set()
        self._transport: asyncio.Transport | None = None
        #: Frames of this turn of the loop: one system call takes them all, and wakes the gateway once.
        self._outbox: list[bytes] = []
        self._stopping = False
        self._pid = os.getpid()
        self._over = asyncio.Event()

    async def serve(self, ready: Callable[[], None]) -> None:
        """Start the service, call `ready`, serve until told to stop or the gateway is gone."""
        await self._service.start()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._stop)
        ready()
        self._connection.setblocking(False)
        await loop.create_connection(lambda: self, sock=self._connection)
        self._beat()
        await self._over.wait()
        self._flush()
        for task in self._running:
            task.cancel()
        await self._service.stop()

    def _beat(self) -> None:
        """Keeps a timer set. A handler's thread may close the loop's own descriptors while the loop sleeps on them:
        nothing would ever wake it, but at the timer it finds them closed, and the worker ends."""
        asyncio.get_running_loop().call_later(BEAT_S, self._beat)

    def _stop(self) -> None:
        self._stopping = True
        if not self._running:
            self._over.set()

    # -- asyncio.Protocol --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Attached to the gateway."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """The gateway is gone: there is nobody to serve."""
        self._over.set()

    def data_received(self, data: bytes) -> None:
        """Frames."""
        try:
            for message in self._decoder.feed(data):
                self._take(message)
        except FrameError:
            self._over.set()

    def _send(self, message: Message) -> None:
        self._outbox.append(encode(message))
        if len(self._outbox) == 1:
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        if self._outbox and self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(self._outbox))
        self._outbox.clear()

    def _take(self, message: Message) -> None:
        if isinstance(message, Request):
            stream = CallStream(message, self._send, self._cpu, self._ended)
            task = asyncio.get_running_loop().create_task(self._run(stream))
            self._calls[message.call] = (stream, task)
            self._running.add(task)
            task.add_done_callback(self._done)
        elif isinstance(message, (Body, Credit, Cancel)):
            running = self._calls.get(message.call)
            if running is None:
                return  # ended meanwhile
            stream, task = running
            if isinstance(message, Body):
                stream.on_body(message.data, message.last)
            elif isinstance(message, Credit):
                stream.on_credit(message.amount)
            else:
                self._cancel(stream, task, message.reason)

    def _cancel(self, stream: CallStream, task: asyncio.Task[None], reason: str) -> None:
        stream.on_cancel()
        if self._service.cancellable:
            grace_s = 0.0 if reason == "timeout" else CANCEL_GRACE_S
            asyncio.get_running_loop().call_later(grace_s, lambda: None if stream.ended else task.cancel())

    async def _run(self, stream: CallStream) -> None:
        try:
            await self._service.serve(stream)
            error: BaseException = CallCancelled("the caller is gone")
        except asyncio.CancelledError as cancelled:
            error = CallCancelled("the call was cancelled") if stream.gone else cancelled
        except BaseException as raised:  # SystemExit and KeyboardInterrupt end the call, not the worker
            error = raised
        if os.getpid() != self._pid:
            os._exit(0)  # a child that the handler forked and that came back here must not speak for the worker
        stream.fail(error, self._bundle_dir)

    def _ended(self, stream: CallStream) -> None:
        self._calls.pop(stream.request.call, None)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if self._stopping and not self._running:
            self._over.set()


def run(main: Awaitable[None]) -> None:
    """Run a loop until `main` is over; what is left running is left to the end of the process."""

    async def until_over() -> None:
        await main

    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    loop.run_until_complete(until_over())
