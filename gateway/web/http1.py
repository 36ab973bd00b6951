"""The lean HTTP/1.1 front: bytes of a client's connection in, `Exchange`s out.

Parsing is httptools' (llhttp); this module adds what a server owes its clients around it: limits, keep-alive,
pipelining in order, `100 Continue`, back-pressure and a lingering close. Requests outside `/fn/` are handed, with
their connection, to the control API's own server (aiohttp), which closes after each answer, so every connection
comes back here. Why not aiohttp for all of it: docs/decisions/0001-lean-front.md.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from typing import cast

import httptools

from gateway.web.answers import plain_error
from gateway.web.exchange import Exchange
from gateway.web.front_params import FrontParams as FrontParams
from gateway.web.heads import BadHead, Head, Headers, read_head, whose

log = logging.getLogger("gateway.front")

_NEVER = float("inf")
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


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
        #: The control API's protocol, once the connection is its own.
        self._api: asyncio.Protocol | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._exchanges: deque[Exchange] = deque()
        #: A request has begun and is not whole.
        self._parsing = False
        #: Its exchange, once its head is there.
        self._incoming: Exchange | None = None
        self._target = b""
        #: The last head that came whole with its body, and what was read from it.
        self._remembered: tuple[bytes, Head] | None = None
        #: Bytes of the head, or since the last piece of the body; -1: begun among other bytes, not counted yet.
        self._unfinished_bytes = 0
        self._counted = True
        #: The head that is being parsed is within its bound whatever is in it.
        self._small = True
        #: Headers of that head; then trailers, which nobody gets.
        self._headers: Headers = []
        #: Pieces of the body of `_incoming` found in the bytes that are being parsed.
        self._pieces: list[bytes] = []
        #: The first exchange was given to the activator.
        self._begun = False
        #: Start of a request whose server is not known yet, or of a head for the control API.
        self._held = b""
        #: Said when the exchanges before it are answered, for a request that never became one.
        self._refusal = b""
        self._writable = True
        self._reading_held = False
        #: Nothing more that the client sends is looked at.
        self._deaf = False
        #: It has ended its sending.
        self._ended = False
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
        # uvloop's transports are no subclasses of asyncio's, they only behave as such.
        self._transport = cast(asyncio.Transport, transport)
        transport = self._transport
        front = self._front
        if len(front.connections) >= front.params.connections_max or front.draining:
            front.refused += 1
            self.abort()
            return
        front.connections.add(self)
        self.expires_at = front.clock() + front.params.head_timeout_s
        peer = transport.get_extra_info("peername")
        self._peer = peer[0] if isinstance(peer, tuple) else ""

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone; whatever it waited for is told."""
        self._front.connections.discard(self)
        self._closing = self._deaf = True
        if self._api is not None:
            self._api.connection_lost(exc)
        exchanges = list(self._exchanges)
        self._exchanges.clear()
        for exchange in exchanges:
            exchange.gone()

    def eof_received(self) -> bool | None:
        """The client has ended its sending: it may still wait for its answer, or be gone altogether."""
        if self._api is not None:
            return self._api.eof_received()
        self._ended = True
        if self._closing or not self._exchanges or self._parsing or self._exchanges[-1].http10:
            return False
        self._deaf = True
        self._exchanges[-1].close_after = True
        self._probe(0)
        return True

    def _probe(self, attempt: int) -> None:
        """Find out whether a client that ended its sending still listens: only writing tells. An interim answer is
        something that every HTTP/1.1 client reads over; the connection of one that is gone breaks by it."""
        if self._closing or not self._exchanges:
            return
        if not self._exchanges[0].started:
            self._transport.write(_CONTINUE)
        delays = self._front.params.probe_after_s
        if attempt + 1 < len(delays):
            delay = delays[attempt + 1] - delays[attempt]
            asyncio.get_running_loop().call_later(delay, self._probe, attempt + 1)

    def pause_writing(self) -> None:
        """Our write buffer is above its mark."""
        self._writable = False
        if self._api is not None:
            self._api.pause_writing()

    def resume_writing(self) -> None:
        """It has room again."""
        self._writable = True
        if self._api is not None:
            self._api.resume_writing()
        elif self._begun and self._exchanges:
            self._exchanges[0].drained()
        else:
            self._update_reading()
            self._begin_next()

    def data_received(self, data: bytes) -> None:
        """Bytes from the client."""
        if self._deaf:
            return
        at_start = not self._parsing and not self._exchanges
        if at_start:
            if self._api is not None:
                self._api.data_received(data)
                return
            if self._held:
                data = self._held + data
            elif self._remembered is not None and self._comes_again(data, *self._remembered):
                return
            if not self._is_ours(data):
                return
        self._small = self._counted and self._unfinished_bytes + len(data) <= self._front.params.head_bytes_max
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # An upgrade is an offer that we do not take up: the request is answered as it stands.
            self._deaf = True
            self._exchanges[-1].close_after = True
        except httptools.HttpParserError as error:
            self._parsing_failed(error)
            return
        if self._parsing:
            self._check_unfinished(len(data))
        elif at_start and len(self._exchanges) == 1 and self._small:
            self._remember(data, self._exchanges[0].head)
        if not self._begun:
            self._begin_next()

    def _comes_again(self, data: bytes, remembered: bytes, head: Head) -> bool:
        """Clients repeat themselves: a head that is byte for byte the one before it is not read again. The parser is
        between two requests then, and stays there."""
        if not data.startswith(remembered) or len(data) - len(remembered) != (head.content_length or 0):
            return False
        exchange = Exchange(self, self._peer, head)
        exchange.close_after = self._front.draining
        exchange.body = data[len(remembered) :]
        exchange.body_complete = True
        self.expires_at = _NEVER
        self._exchanges.append(exchange)
        self._begin_next()
        return True

    def _remember(self, data: bytes, head: Head) -> None:
        if not head.keep_alive or head.expect_continue or self._deaf or b"transfer-encoding" in head.names:
            return
        size = data.find(b"\r\n\r\n") + 4
        # Only what is head and body and nothing else; line ends may have stood before or after.
        if size + (head.content_length or 0) == len(data) and size <= self._front.params.remembered_head_bytes_max:
            self._remembered = data[:size], head

    def _check_unfinished(self, received: int) -> None:
        """A request that is not whole yet: its body goes on its way, and the rest is bounded."""
        incoming = self._incoming
        if incoming is not None and self._pieces:
            self._feed(incoming)
            self._unfinished_bytes = 0
            return
        if self._unfinished_bytes < 0:
            self._counted = not self._exchanges
            self._unfinished_bytes = received if self._counted else 0
        else:
            self._unfinished_bytes += received
        bound = self._front.params.head_bytes_max
        if self._unfinished_bytes > bound:
            where = "request line and headers" if incoming is None else "between the pieces of the body"
            self._refuse(
                431, f"more than {bound} bytes in {where}" if incoming is None else f"more than {bound} bytes {where}"
            )

    def _feed(self, exchange: Exchange) -> None:
        pieces = self._pieces
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        exchange.feed(data)

    def _is_ours(self, data: bytes) -> bool:
        """At the start of a request: is it for a function? Hands the connection over when it isn't, head and all."""
        if data.startswith(b"\r\n"):
            data = data.lstrip(b"\r\n")
        server = whose(data)
        if server == "function":
            self._held = b""
            return True
        if len(data) > self._front.params.head_bytes_max and b"\r\n\r\n" not in data:
            self._refuse(431, "request line and headers are too large")
            return False
        if server == "api" and b"\r\n\r\n" in data:
            self.expires_at, self._held = _NEVER, b""
            self._api = self._front.api()
            self._api.connection_made(self._transport)
            self._api.data_received(data)
            return False
        if data and not self._held:
            self._wait(self._front.params.head_timeout_s)
        self._held = data
        return False

    def _wait(self, seconds: float) -> None:
        self.expires_at = self._front.clock() + seconds

    # -- httptools callbacks -----------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """A request starts."""
        if len(self._exchanges) > self._front.params.pipelined_max:
            raise _Enough
        self._parsing = True
        self._target = b""
        self._headers.clear()
        self._unfinished_bytes = -1
        self._counted = True
        if not self._exchanges:
            self._wait(self._front.params.head_timeout_s)

    def on_url(self, url: bytes) -> None:
        """The request target, possibly in pieces."""
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header; those after a chunked body are dropped."""
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """The head is whole."""
        parser, front = self._parser, self._front
        headers, self._headers = self._headers, []
        if len(headers) > front.params.headers_max:
            raise BadHead(431, f"more than {front.params.headers_max} headers")
        head = read_head(
            parser.get_method().decode("ascii"),
            self._target,
            parser.get_http_version(),
            headers,
            parser.should_keep_alive(),
            None if self._small else front.params.head_bytes_max,
        )
        self._incoming = exchange = Exchange(self, self._peer, head)
        if front.draining:
            exchange.close_after = True
        self._unfinished_bytes = 0
        self.expires_at = _NEVER
        self._exchanges.append(exchange)
        if len(self._exchanges) > 1:
            self._update_reading()

    def on_body(self, data: bytes) -> None:
        """A piece of the body."""
        self._pieces.append(data)

    def on_message_complete(self) -> None:
        """The request is whole."""
        self._parsing = False
        exchange, self._incoming = self._incoming, None
        if exchange is not None:
            if self._pieces:
                self._feed(exchange)
            exchange.feed_end()

    # -- exchanges ---------------------------------------------------------------------------------------

    def _begin_next(self) -> None:
        if not self._exchanges or self._begun or self._closing or not self._writable:
            return
        exchange = self._exchanges[0]
        if not exchange.head.target.startswith(b"/fn/"):
            # Pipelined behind a function's call: not answered, so a client repeats it on a new connection.
            self._close(unread=True)
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
        if self._closing or self._ended:
            return
        if self._reading_held or len(self._exchanges) > 1 or not (self._writable or self._begun):
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def exchange_done(self, exchange: Exchange) -> None:
        """An answer is complete: go on with the next request, or close."""
        exchanges = self._exchanges
        if not exchanges or exchanges[0] is not exchange:
            return
        exchanges.popleft()
        self._begun = False
        if exchange.close_after:
            self._close(unread=not exchange.body_complete or self._deaf or bool(exchanges))
            return
        if self._refusal and not exchanges:
            self._say_refusal()
            return
        params = self._front.params
        self._wait(params.head_timeout_s if self._parsing else params.idle_timeout_s)
        if self._reading_held or exchanges or not self._writable:
            self._reading_held = False
            self._update_reading()
        if exchanges:
            asyncio.get_running_loop().call_soon(self._begin_next)

    # -- the end -----------------------------------------------------------------------------------------

    def _close(self, unread: bool = False) -> None:
        """No more from either side. `unread`: the client may be sending still, and a close would reset the
        connection and could destroy the answer on its way. So say that we are done, throw away what comes for a
        moment, and close then."""
        self._closing = self._deaf = True
        self._exchanges.clear()
        transport = self._transport
        if unread and not self._ended and transport.can_write_eof() and not transport.is_closing():
            self._wait(self._front.params.linger_s)
            transport.resume_reading()
            transport.write_eof()
        else:
            self._close_now()

    def _close_now(self) -> None:
        self._wait(self._front.params.flush_timeout_s)
        self._transport.close()

    def abort(self) -> None:
        """Cut the connection, so that the client sees that its answer is not complete."""
        self._closing = self._deaf = True
        self._transport.abort()

    def expire(self) -> None:
        """Idle for too long, or a head that never came, or an end that never ends."""
        if self._closing:
            if self._transport.is_closing():
                self._transport.abort()
            else:
                self._close_now()
        elif self._exchanges:
            return
        elif self._parsing or self._held:
            self._refuse(408, "the request's head did not arrive in time")
        else:
            self._close()

    def close_if_idle(self) -> None:
        """For shutdown."""
        if self._api is not None:
            return
        if self._exchanges:
            self._exchanges[-1].close_after = True
        elif not self._closing:
            self._close()

    def _parsing_failed(self, error: httptools.HttpParserError) -> None:
        cause = error.__context__ if isinstance(error, httptools.HttpParserCallbackError) else error
        if isinstance(cause, _Enough):
            self._deaf = True
            self._exchanges[-1].close_after = True
            self._begin_next()
        elif isinstance(cause, BadHead):
            self._refuse(cause.status, cause.message)
        elif isinstance(error, httptools.HttpParserCallbackError):
            raise error  # a fault of our own
        else:
            self._refuse(400, f"not an HTTP/1.1 request: {error}")

    def _refuse(self, status: int, message: str) -> None:
        """Not a request that we read further. Those before it on this connection are answered first."""
        self._deaf = True
        self._pieces.clear()
        self._held = b""
        exchanges = self._exchanges
        incoming, self._incoming, self._parsing = self._incoming, None, False
        if incoming is not None:  # its body is what is wrong
            if not exchanges or exchanges[-1] is not incoming:
                return  # it is answered already
            if self._begun and len(exchanges) == 1:
                incoming.broken(message)
                return
            exchanges.pop()
        elif exchanges and exchanges[-1].close_after:
            # Bytes after the request that was announced as the last.
            self._begin_next()
            return
        self._refusal = plain_error(status, message, time.time())
        if exchanges:
            self._begin_next()
        else:
            self._say_refusal()

    def _say_refusal(self) -> None:
        self._transport.write(self._refusal)
        self._close(unread=True)


class _Enough(Exception):
    """More pipelined requests than are held."""
