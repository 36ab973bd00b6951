"""A client's connection without a socket: the front's protocol on a transport that remembers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from gateway.web.exchange import Exchange
from gateway.web.http1 import Front, FrontParams


class Transport(asyncio.Transport):
    """Remembers what it was told; writes go nowhere."""

    def __init__(self) -> None:
        super().__init__({"peername": ("192.0.2.7", 4711)})
        self.written = b""
        self.closed = self.aborted = self.ended = self.paused = False

    def write(self, data: Any) -> None:
        assert not self.ended, "written after the end"
        assert not self.closed, "written after the close"
        self.written += bytes(data)

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True

    def is_closing(self) -> bool:
        return self.closed

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.ended = True

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False


class Sink:
    """What hangs behind an exchange in these tests: remembers, and answers when it is told to."""

    def __init__(self, exchange: Exchange, answer: Callable[[Sink], None] | None) -> None:
        self.exchange = exchange
        self._answer = answer
        self.body = exchange.body
        self.complete = exchange.body_complete
        self.gone = False
        self.broken = ""
        self.drains = 0
        exchange.attach(self)

    def on_body(self, data: bytes) -> None:
        self.body += data

    def on_body_end(self) -> None:
        self.complete = True
        if self._answer is not None:
            self._answer(self)

    def on_broken(self, why: str) -> None:
        self.broken = why
        self.exchange.respond(400, b"", b"broken")

    def on_gone(self) -> None:
        self.gone = True

    def on_drain(self) -> None:
        self.drains += 1


class Api(asyncio.Protocol):
    """The control API's server: remembers what it is given."""

    def __init__(self) -> None:
        self.received = b""
        self.transport: Any = None
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True


class Client:
    """One client of one front; `now` is the front's clock."""

    def __init__(self, answer: Callable[[Sink], None] | None = None, **params: Any) -> None:
        self.now = 1000.0
        self.sinks: list[Sink] = []
        self.apis: list[Api] = []
        self._answer = answer
        self.front = Front(self._begin, self._api, FrontParams(**params), lambda: self.now)
        self.transport = Transport()
        self.connection: Any = self.front()
        self.connection.connection_made(self.transport)

    def _begin(self, exchange: Exchange) -> None:
        sink = Sink(exchange, self._answer)
        self.sinks.append(sink)
        if self._answer is not None:
            self._answer(sink)

    def _api(self) -> Api:
        self.apis.append(Api())
        return self.apis[-1]

    def send(self, *pieces: bytes) -> bytes:
        """Send, and give all that came back so far."""
        for piece in pieces:
            self.connection.data_received(piece)
        return self.transport.written

    @property
    def first(self) -> Exchange:
        return self.sinks[0].exchange

    @property
    def status(self) -> int:
        """Of the first answer."""
        return int(self.transport.written.split(b" ", 2)[1])


@pytest.fixture(scope="session")
def client() -> type[Client]:
    """Makes clients; each has a front of its own."""
    return Client
