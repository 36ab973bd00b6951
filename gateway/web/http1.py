"""The lean HTTP/1.1 front: bytes of a client's connection in, `Exchange`s out.

Parsing is httptools' (llhttp); this module adds what a server owes its clients around it: limits, keep-alive,
pipelining in order, `100 Continue`, back-pressure and a lingering close. Requests outside `/fn/` are handed, with
their connection, to the control API's own server (aiohttp), which closes after each answer, so every connection
comes back here. Why not aiohttp for all of it: docs/decisions/0001-lean-front.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import httptools

from gateway.web.answers import plain_error
from gateway.web.exchange import Exchange

log = logging.getLogger("gateway.front")


@dataclass(frozen=True)
class FrontParams:
    """Bounds of one client connection."""

    #: Request line and headers together.
    head_bytes_max: int = 64 * 1024
    headers_max: int = 256
    #: Pipelined requests waiting behind the one being answered.
    pipelined_max: int = 64
    #: How long a connection may be idle between requests, and a head may take to arrive.
    idle_timeout_s: float = 75.0
    head_timeout_s: float = 30.0
    #: After an answer that left request bytes unread: how long they are thrown away before the close.
    linger_s: float = 2.0
    connections_max: int = 20_000


class Front:
    """All client connections: makes them, sweeps idle ones, closes them."""

    def __init__(
        self,
        begin: Callable[[Exchange], None],
        api: Callable[[], asyncio.Protocol],
        params: FrontParams,
        clock: Callable[[], float],
    ) -> None:
        self.begin = begin
        self.api = api
        self.params = params
        self.clock = clock
        self.connections: set[ClientConnection] = set()
        #: Connections refused because there were too many; a metric.
        self.refused = 0
        self.draining = False

    def __call__(self) -> asyncio.Protocol:
        return ClientConnection(self)

    def sweep(self) -> None:
        """Close what has been idle, or sending its head, for too long. Called every few seconds."""
        now = self.clock()
        for connection in [c for c in self.connections if c.expires_at < now]:
            connection.expire()

    def drain(self) -> None:
        """No new requests: idle connections close now, busy ones after their answer."""
        self.draining = True
        for connection in list(self.connections):
            connection.close_if_idle()

    def busy(self) -> int:
        """Connections with an exchange under way."""
        return sum(1 for connection in self.connections if connection.busy)


class ClientConnection(asyncio.Protocol):
    """One client's connection. Exactly one exchange, the first in `_exchanges`, is being answered."""

    def __init__(self, front: Front) -> None:
        self._front = front
        self._transport: asyncio.Transport
        self._parser = httptools.HttpRequestParser(self)
        self._exchanges: deque[Exchange] = deque()
        #: The exchange whose request is being parsed; None between requests.
        self._incoming: Exchange | None = None
        self._head_bytes = 0
        self._head_done = False
        self._begun = False
        #: Start of a request line that is not whole yet.
        self._held = b""
        self._writable = True
        self._reading_held = False
        self._closing = False
        self._peer = ""
        self.expires_at = 0.0

    @property
    def busy(self) -> bool:
        """An exchange is under way."""
        return bool(self._exchanges)

    # -- asyncio.Protocol --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client dialled."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        front = self._front
        if len(front.connections) >= front.params.connections_max or front.draining:
            front.refused += 1
            transport.abort()
            return
        front.connections.add(self)
        self.expires_at = front.clock() + front.params.head_timeout_s
        peer = transport.get_extra_info("peername")
        self._peer = peer[0] if isinstance(peer, tuple) else ""

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone; whatever it waited for is told."""
        self._front.connections.discard(self)
        self._closing = True
        exchanges = list(self._exchanges)
        self._exchanges.clear()
        for exchange in exchanges:
            exchange.gone()

    def eof_received(self) -> bool:
        """The client half-closed: it may still wait for its answer."""
        if not self._exchanges:
            return False
        if self._incoming is not None:
            return False  # it went away in the middle of a body
        self._exchanges[-1].close_after = True
        return True

    def pause_writing(self) -> None:
        """Our write buffer is above its mark."""
        self._writable = False

    def resume_writing(self) -> None:
        """It has room again."""
        self._writable = True
        if self._exchanges:
            self._exchanges[0].drained()

    def data_received(self, data: bytes) -> None:
        """Bytes from the client."""
        if self._closing:
            return
        if self._incoming is None and not self._exchanges:
            if self._held:
                data, self._held = self._held + data, b""
            if not self._is_ours(data):
                return
        if not self._head_done:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # An upgrade is an offer that we do not take up: the request is answered as it stands.
            if self._exchanges:
                self._exchanges[-1].close_after = True
        except (httptools.HttpParserError, _HeadTooLarge) as error:
            self._refuse(error)
            return
        if not self._head_done and self._head_bytes > self._front.params.head_bytes_max:
            self._refuse(_HeadTooLarge())
            return
        if self._exchanges and not self._begun:
            self._begin()

    def _is_ours(self, data: bytes) -> bool:
        """At the start of a request: is it for a function? Hands the connection over when it isn't."""
        start = 0
        while data.startswith(b"\r\n", start):
            start += 2
        space = data.find(b" ", start, start + 32)
        if space > 0:
            if data.startswith(b"/fn/", space + 1):
                return True
            end = data.find(b" ", space + 1)
            if end > 0 or b"\n" in data:
                if data.startswith((b"http://", b"https://"), space + 1):
                    path = data[space + 1 : end].split(b"/", 3)[3:]
                    if path and path[0].startswith(b"fn/"):
                        return True
                self._hand_over(data)
                return False
        elif b"\n" in data or len(data) - start > 32:
            return True  # no request line at all: the parser says what is wrong
        if len(data) > self._front.params.head_bytes_max:
            return True
        self._held = data
        return False

    def _hand_over(self, data: bytes) -> None:
        self._front.connections.discard(self)
        protocol = self._front.api()
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        protocol.data_received(data)

    # -- httptools callbacks -----------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """A request starts."""
        if len(self._exchanges) > self._front.params.pipelined_max:
            raise _HeadTooLarge("too many pipelined requests")
        self._incoming = Exchange(self, self._peer)
        self._head_done = False

    def on_url(self, url: bytes) -> None:
        """The request target, possibly in pieces."""
        assert self._incoming is not None
        self._incoming.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        assert self._incoming is not None
        headers = self._incoming.headers
        headers.append((name, value))
        if len(headers) > self._front.params.headers_max:
            raise _HeadTooLarge(f"more than {self._front.params.headers_max} headers")

    def on_headers_complete(self) -> None:
        """The head is whole."""
        exchange = self._incoming
        assert exchange is not None
        parser = self._parser
        exchange.method = parser.get_method().decode("ascii")
        exchange.http10 = parser.get_http_version() == "1.0"
        exchange.close_after = not parser.should_keep_alive() or self._front.draining
        target = exchange.target
        if not target.startswith(b"/") and b"://" in target:
            exchange.target = b"/" + (target.split(b"/", 3)[3:] or [b""])[0]
        for name, value in exchange.headers:
            size = len(name)
            if size == 14 and name.lower() == b"content-length":
                exchange.content_length = int(value)
            elif size == 6 and name.lower() == b"expect" and value.lower() == b"100-continue":
                exchange.expect_continue = not exchange.http10
        self._head_done = True
        self._head_bytes = 0
        self.expires_at = float("inf")
        self._exchanges.append(exchange)
        if len(self._exchanges) > 1:
            self._update_reading()

    def on_body(self, data: bytes) -> None:
        """A piece of the body."""
        if self._incoming is not None:
            self._incoming.feed(data)

    def on_message_complete(self) -> None:
        """The request is whole."""
        exchange, self._incoming = self._incoming, None
        if exchange is not None:
            exchange.feed_end()

    # -- exchanges ---------------------------------------------------------------------------------------

    def _begin(self) -> None:
        exchange = self._exchanges[0]
        if not exchange.target.startswith(b"/fn/"):
            # Pipelined behind a function's call: not answered, so a client repeats it on a new connection.
            self._close()
            return
        self._begun = True
        self._front.begin(exchange)

    def send(self, data: bytes) -> bool:
        """Write to the client; False when the buffer is above its mark."""
        if not self._closing:
            self._transport.write(data)
        return self._writable

    def hold_reading(self, held: bool) -> None:
        """Back-pressure from whoever takes the body."""
        self._reading_held = held
        self._update_reading()

    def _update_reading(self) -> None:
        if self._closing:
            return
        if self._reading_held or len(self._exchanges) > 1:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def exchange_done(self, exchange: Exchange) -> None:
        """An answer is complete: go on with the next request, or close."""
        if not self._exchanges or self._exchanges[0] is not exchange:
            return
        self._exchanges.popleft()
        self._begun = False
        if exchange.close_after:
            self._close_after_answer(exchange)
            return
        front = self._front
        self.expires_at = front.clock() + front.params.idle_timeout_s
        if self._reading_held or self._exchanges:
            self._reading_held = False
            self._update_reading()
        if self._exchanges:
            asyncio.get_running_loop().call_soon(self._begin_next)

    def _begin_next(self) -> None:
        if self._exchanges and not self._begun and not self._closing:
            self._begin()

    def _close_after_answer(self, exchange: Exchange) -> None:
        if exchange.body_complete:
            self._close()
            return
        # Closing with unread bytes would reset the connection and could destroy the answer on its way: say that
        # we are done, throw the rest away for a moment, then close.
        self._closing = True
        self._transport.resume_reading()
        if self._transport.can_write_eof():
            self._transport.write_eof()
        asyncio.get_running_loop().call_later(self._front.params.linger_s, self._transport.close)

    def _close(self) -> None:
        self._closing = True
        self._transport.close()

    def abort(self) -> None:
        """Cut the connection, so that the client sees that its answer is not complete."""
        self._closing = True
        self._transport.abort()

    def expire(self) -> None:
        """Idle for too long, or a head that never came."""
        if self._exchanges:
            return
        if self._head_bytes:
            self._answer_and_close(408, b"the request's head did not arrive in time")
        else:
            self._close()

    def close_if_idle(self) -> None:
        """For shutdown."""
        if not self._exchanges:
            self._close()
        else:
            self._exchanges[-1].close_after = True

    def _refuse(self, error: Exception) -> None:
        cause = error.__context__ if isinstance(error, httptools.HttpParserCallbackError) else error
        if isinstance(cause, _HeadTooLarge):
            self._answer_and_close(431, str(cause or "request line and headers are too large").encode())
        else:
            self._answer_and_close(400, f"not an HTTP/1.1 request: {error}".encode())

    def _answer_and_close(self, status: int, message: bytes) -> None:
        """For requests that never became an exchange. Those before it on this connection lose their answer's
        place in the order, so they are cut instead."""
        if self._exchanges:
            self.abort()
            return
        self._transport.write(plain_error(status, message))
        self._close()


class _HeadTooLarge(Exception):
    """The head broke a bound."""
