"""A front on a real port, a real activator, and a worker at the other end of a real link, all on one uvloop loop.

The pool is a double that gives every call to the one worker as long as it has room; the worker is a script of the
test's that speaks `runtime.codec`.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop
from aiohttp import web

from gateway.activator import Activator, ActivatorParams
from gateway.call import Call
from gateway.catalog import Timeouts
from gateway.errors import Unauthorized, WorkerBroke
from gateway.identifiers import Uuid7
from gateway.links.listener import Desk, LinkParams, listen_unix
from gateway.links.worker import WorkerLink, fail_calls
from gateway.metering.record import MeteringRecord
from gateway.routes import Route
from gateway.web.http1 import Front, FrontParams
from runtime import messages as wire
from runtime.codec import Decoder, encode

PATIENCE_S = 20.0


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop that the gateway runs on."""
    return {"uvloop": uvloop.new_event_loop}


async def until(condition: Callable[[], Any], what: str) -> None:
    """Wait for something that no event tells; fails the test when it never comes."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > end:
            pytest.fail(f"{what}: not within {PATIENCE_S:g} s")
        await asyncio.sleep(0.002)


class Worker:
    """The worker's end of its link. `serve` is called, as a task, for every request."""

    def __init__(self, serve: Callable[[Worker, wire.Request], Awaitable[None]]) -> None:
        self.serve = serve
        self.requests: dict[int, wire.Request] = {}
        self.inboxes: dict[int, asyncio.Queue[Any]] = {}
        #: Body bytes that came, and that were credited, for each call.
        self.received: dict[int, int] = {}
        self.credited: dict[int, int] = {}
        self.cancelled: list[tuple[int, str]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def dial(self, path: Path, token: str) -> None:
        self._reader, self._writer = await asyncio.open_unix_connection(str(path))
        self.say(wire.Hello("worker", "w-1", token, wire.PROTOCOL_VERSION, 1))
        self.say(wire.Ready(1, "event", []))
        self._spawn(self._read())

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def say(self, message: Any) -> None:
        """Anything, to the gateway."""
        self._writer.write(encode(message))

    async def _read(self) -> None:
        decoder = Decoder()
        while data := await self._reader.read(65536):
            for message in decoder.feed(data):
                number = message.call  # type: ignore[union-attr]
                if isinstance(message, wire.Request):
                    self.requests[number] = message
                    self.inboxes[number] = asyncio.Queue()
                    self.received[number], self.credited[number] = len(message.body), 0
                    self._spawn(self.serve(self, message))
                else:
                    if isinstance(message, wire.Body):
                        self.received[number] += len(message.data)
                        assert self.received[number] - self.credited[number] <= wire.WINDOW_BYTES
                        assert len(message.data) <= wire.CHUNK_BYTES
                    if isinstance(message, wire.Cancel):
                        self.cancelled.append((number, message.reason))
                    self.inboxes[number].put_nowait(message)

    async def body(self, request: wire.Request) -> bytes:
        """All of a request's body, crediting what was taken."""
        pieces, last = [request.body], request.last
        while not last:
            message = await self.inboxes[request.call].get()
            if isinstance(message, wire.Body):
                pieces.append(message.data)
                last = message.last
                self.credited[request.call] += len(message.data)
                self.say(wire.Credit(request.call, len(message.data)))
        return b"".join(pieces)

    def answer(
        self, request: wire.Request, body: bytes, status: int = 200, headers: Any = (), last: bool = True
    ) -> None:
        """Head and body in one."""
        stats = [10, 5, 4096] if last else []
        self.say(wire.Response(request.call, status, [list(h) for h in headers], body, last, stats))

    async def stream(self, request: wire.Request, size: int) -> None:
        """`size` bytes within the window."""
        self.answer(request, b"", last=False)
        window, sent = wire.WINDOW_BYTES, 0
        while sent < size:
            piece = min(wire.CHUNK_BYTES, size - sent)
            while window < piece:
                message = await self.inboxes[request.call].get()
                if isinstance(message, wire.Credit):
                    window += message.amount
                if isinstance(message, wire.Cancel):
                    self.say(wire.Failed(request.call, "cancelled", "Cancelled", "", "", [1, 2, 3]))
                    return
            self.say(wire.Body(request.call, b"z" * piece, False, []))
            window -= piece
            sent += piece
        self.say(wire.Body(request.call, b"", True, [1, 2, 3]))

    def die(self) -> None:
        """As a crash does."""
        self._writer.transport.abort()

    def stop(self) -> None:
        self._writer.close()
        for task in self._tasks:
            task.cancel()


class Pool:
    """Gives calls to the one worker in order, as many at once as it has room for; also its supervisor."""

    def __init__(self) -> None:
        self.link: WorkerLink | None = None
        self.room = 100
        self.running: set[Call] = set()
        self.waiting: deque[Call] = deque()
        self.replaced: list[str] = []
        self.ready = asyncio.Event()

    def arrive(self, call: Call) -> None:
        self.waiting.append(call)
        self.pump()

    def leave(self, call: Call) -> None:
        with contextlib.suppress(ValueError):
            self.waiting.remove(call)

    def pump(self) -> None:
        while self.waiting and self.link is not None and len(self.running) < self.room:
            call = self.waiting.popleft()
            self.running.add(call)
            self.link.dispatch(call, "hot", 0, 0)

    def worker_ready(self, worker: str, ready: wire.Ready) -> None:
        self.ready.set()

    def worker_start_failed(self, worker: str, failure: wire.StartFailed) -> None:
        raise AssertionError(failure)

    def call_ended(self, call: Call) -> None:
        self.running.remove(call)
        self.pump()

    def replace_worker(self, worker: str, reason: str) -> None:
        self.replaced.append(reason)

    def link_lost(self, worker: str, calls: list[Call]) -> None:
        self.link = None
        self.running -= set(calls)
        fail_calls(calls, WorkerBroke("the worker died while it ran this call: killed by signal 9"))


class Client:
    """A client's socket, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await asyncio.wait_for(self.writer.drain(), PATIENCE_S)

    async def rest(self) -> bytes:
        """Until the gateway closes."""
        return await asyncio.wait_for(self.reader.read(), PATIENCE_S)

    async def answer(self) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        """One answer with a content-length, or chunked."""
        head = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), PATIENCE_S)
        line, *lines = head[:-4].split(b"\r\n")
        headers = [(n.lower(), v) for n, _, v in (text.partition(b": ") for text in lines)]
        named = dict(headers)
        status = int(line.split()[1])
        if b"content-length" in named:
            body = await asyncio.wait_for(self.reader.readexactly(int(named[b"content-length"])), PATIENCE_S)
        elif named.get(b"transfer-encoding") == b"chunked":
            body = b""
            while size := int(await asyncio.wait_for(self.reader.readline(), PATIENCE_S), 16):
                body += await asyncio.wait_for(self.reader.readexactly(size), PATIENCE_S)
                await self.reader.readexactly(2)
            await self.reader.readexactly(2)
        else:
            body = b""
        return status, headers, body

    def reset(self) -> None:
        """Leave at once, as a killed client with unread data does."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    def leave(self) -> None:
        self.writer.close()


class House:
    """All of it."""

    def __init__(self) -> None:
        self.pool = Pool()
        self.records: list[MeteringRecord] = []
        self.timeouts = Timeouts()
        self.max_body_bytes = 8 * 1024 * 1024
        self.worker: Worker
        self.front: Front
        self.faults: list[dict[str, Any]] = []

    def route(self, namespace: str, function: str) -> Route | None:
        if (namespace, function) != ("lab", "f"):
            return None
        return Route(
            namespace="lab",
            function="f",
            number=1,
            revision="lab/f@1",
            mount=b"/fn/lab/f",
            public=True,
            timeouts=self.timeouts,
            max_body_bytes=self.max_body_bytes,
            revision_line=b"x-samovar-revision: lab/f@1\r\n",
            account="",
            slice_kind="cpu",
            price_version=1,
        )

    def authenticate(self, header: Any, now: float) -> Any:
        raise Unauthorized("no token is good here")

    def append(self, record: MeteringRecord) -> None:
        self.records.append(record)

    async def client(self) -> Client:
        return Client(*await asyncio.open_connection("127.0.0.1", self.port))

    async def open(self, directory: Path) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: self.faults.append(context))
        desk = Desk(LinkParams())
        self._links = await listen_unix(desk, directory / "links.sock")
        self.activator = Activator(self.route, self, self.pool, self, Uuid7(), lambda record: None, ActivatorParams())

        def linked(connection: Any) -> WorkerLink:
            self.pool.link = WorkerLink("w-1", connection, self.pool)
            return self.pool.link

        desk.expect("worker", "w-1", "secret", linked)
        self.worker = Worker(echo)
        await self.worker.dial(directory / "links.sock", "secret")
        await asyncio.wait_for(self.pool.ready.wait(), PATIENCE_S)
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._api)
        self._runner = web.AppRunner(app, handle_signals=False)
        await self._runner.setup()
        server = self._runner.server
        assert server is not None
        self.front = Front(self.activator.begin, server, FrontParams(), time.monotonic)
        self._server = await loop.create_server(self.front, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _api(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        answer = web.Response(text=f"{request.method} {request.path_qs} {len(body)}")
        answer.force_close()
        return answer

    async def close(self) -> None:
        self.worker.stop()
        self._server.close()
        self._links.close()
        await self._runner.cleanup()
        for connection in list(self.front.connections):
            connection.abort()
        await until(lambda: not self.front.connections, "every connection ends")
        await until(lambda: not self.activator.running(), "every call ends")
        assert not self.faults


async def echo(worker: Worker, request: wire.Request) -> None:
    """Answers with what came."""
    body = await worker.body(request)
    worker.answer(request, body, headers=[(b"x-method", request.method.encode()), (b"x-target", request.target)])


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    made = House()
    await made.open(tmp_path)
    yield made
    await made.close()


@pytest.fixture(scope="session")
def patiently() -> Callable[..., Awaitable[None]]:
    """Waits for a condition, within bounds."""
    return until
