"""One HTTP request and its answer, as the rest of the gateway sees it: the seam behind which the front can change.

The front (`gateway.web.http1`) makes an `Exchange` when a request's head is there; the activator gives it a
`BodySink` and answers through it. Bodies and headers are bytes as they came; nothing here waits.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Protocol

from gateway.web.heads import Head

#: Never passed on, either way (RFC 9110 7.6.1); `trailer` and `te` too, since trailers are not relayed.
HOP_BY_HOP = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    )
)

_STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus if status >= 200
}


def status_line(status: int) -> bytes:
    """The first line of an answer, unknown codes included."""
    line = _STATUS_LINES.get(status)
    return line if line is not None else f"HTTP/1.1 {status} \r\n".encode()


def has_no_body(status: int) -> bool:
    """Statuses whose answers never carry a body (RFC 9110 6.4.1)."""
    return status in {204, 304} or status < 200


class UnreadableAnswer(ValueError):
    """A worker's answer that cannot be put on the wire; the message says why."""


class BodySink(Protocol):
    """What the activator hangs behind an exchange."""

    def on_body(self, data: bytes) -> None:
        """More of the request's body."""

    def on_body_end(self) -> None:
        """The request's body is complete."""

    def on_broken(self, why: str) -> None:
        """The rest of the request's body is unreadable; an answer can still be given."""

    def on_gone(self) -> None:
        """The client is gone; nothing can be answered any more."""

    def on_drain(self) -> None:
        """The answer's buffer has room again after `write` said False."""


class Connection(Protocol):
    """What an exchange needs of its connection."""

    def send(self, data: bytes) -> bool:
        """Write; False when the buffer is above its mark."""

    def exchange_done(self, exchange: Exchange) -> None:
        """The answer is complete; the next request may be served."""

    def abort(self) -> None:
        """Cut the connection."""

    def hold_reading(self, held: bool) -> None:
        """Stop or go on reading the request's body."""


class Exchange:
    """A request (fields) and the answer to it (methods)."""

    __slots__ = (
        "_chunked",
        "_connection",
        "_left",
        "_mute",
        "_sink",
        "body",
        "body_complete",
        "close_after",
        "done",
        "expect_continue",
        "head",
        "headers",
        "http10",
        "method",
        "peer",
        "started",
    )

    def __init__(self, connection: Connection, peer: str, head: Head) -> None:
        self._connection = connection
        self._sink: BodySink | None = None
        self._chunked = False
        #: Body bytes still announced; -1: not announced.
        self._left = -1
        #: An answer without a body (to HEAD, or 204 and 304): what the handler writes is dropped.
        self._mute = False
        self.head = head
        self.method = head.method
        #: Those that travel on.
        self.headers = head.headers
        self.http10 = head.http10
        self.peer = peer
        #: Body bytes that arrived before there was a sink.
        self.body = b""
        self.body_complete = False
        self.expect_continue = head.expect_continue
        #: The connection ends after this answer.
        self.close_after = not head.keep_alive
        self.started = False
        self.done = False

    # -- the request's body ------------------------------------------------------------------------------

    def attach(self, sink: BodySink) -> None:
        """From now on body pieces go to `sink`; what is in `body` is the caller's to take first."""
        self._sink = sink

    def feed(self, data: bytes) -> None:
        """A piece of the body, from the front."""
        if self._sink is None:
            self.body += data
        elif not self.done:
            self._sink.on_body(data)

    def feed_end(self) -> None:
        """The body is complete, from the front."""
        self.body_complete = True
        if self._sink is not None and not self.done:
            self._sink.on_body_end()

    def broken(self, why: str) -> None:
        """The rest of the body is unreadable, from the front."""
        if self._sink is not None and not self.done:
            self._sink.on_broken(why)

    def gone(self) -> None:
        """The client is gone, from the front."""
        if not self.done:
            self.done = True
            sink, self._sink = self._sink, None
            if sink is not None:
                sink.on_gone()

    def drained(self) -> None:
        """The write buffer has room again, from the front."""
        if self._sink is not None and not self.done:
            self._sink.on_drain()

    def want_body(self) -> None:
        """The body will be read: tells a client that waits for `100 Continue`."""
        if self.expect_continue:
            self.expect_continue = False
            if not self.body_complete and not self.body:
                self._connection.send(b"HTTP/1.1 100 Continue\r\n\r\n")

    def hold_body(self, held: bool) -> None:
        """Back-pressure on the client's sending."""
        self._connection.hold_reading(held)

    # -- the answer --------------------------------------------------------------------------------------

    def respond(self, status: int, lines: bytes, body: bytes, length: int | None = None) -> None:
        """The whole answer at once. Ignored when the exchange is done (the client went away).

        `lines`: the headers, each with its line end, without `content-length`. `length`: what the handler announced;
        of use only in an answer to HEAD and in 304, which may state a length that they do not send.
        """
        if self.done:
            return
        self.started = True
        if self.method == "HEAD" or status == 304:
            if length is None and body and status != 304:
                length = len(body)
            body = b""
        else:
            length = len(body)
        if status == 204:
            length, body = None, b""
        head = b"" if length is None else b"content-length: %d\r\n" % length
        if not self.body_complete or self.close_after or self.http10:
            head += self._connection_line()
        self._connection.send(b"%b%b%b\r\n%b" % (status_line(status), lines, head, body))
        self._finished()

    def start(self, status: int, lines: bytes, length: int | None = None) -> None:
        """Head of a streamed answer: `length` if the handler announced one, else chunked. `lines` as in `respond`."""
        if self.done:
            return
        self.started = True
        head = b"" if length is None or status == 204 else b"content-length: %d\r\n" % length
        if self.method == "HEAD" or has_no_body(status):
            self._mute = True
        elif length is not None:
            self._left = length
        elif self.http10:
            self.close_after = True
        else:
            self._chunked = True
            head = b"transfer-encoding: chunked\r\n"
        head += self._connection_line()
        self._connection.send(b"%b%b%b\r\n" % (status_line(status), lines, head))

    def misfit(self, size: int, last: bool) -> str:
        """Why `size` more bytes (`last`: and no more) do not fit what was announced; empty when they do."""
        left = self._left
        if left < 0 or self._mute or (size == left if last else size <= left):
            return ""
        return f"its body is {'longer' if size > left else 'shorter'} than its content-length"

    def write(self, data: bytes) -> bool:
        """A piece of a streamed answer that fits (see `misfit`); False asks to wait for `on_drain`."""
        if self.done or self._mute or not data:
            return True
        if self._chunked:
            return self._connection.send(b"%x\r\n%b\r\n" % (len(data), data))
        if self._left >= 0:
            self._left -= len(data)
        return self._connection.send(data)

    def finish(self) -> None:
        """End of a streamed answer."""
        if self.done:
            return
        if self._chunked:
            self._connection.send(b"0\r\n\r\n")
        self._finished()

    def abort(self) -> None:
        """Cut the connection: the answer cannot be completed."""
        if not self.done:
            self.done = True
            self._sink = None
            self._connection.abort()

    def _finished(self) -> None:
        self.done = True
        self._sink = None
        self._connection.exchange_done(self)

    def _connection_line(self) -> bytes:
        if not self.body_complete:
            # The rest of the request would stand before the next one: this connection ends here.
            self.close_after = True
        if self.close_after:
            return b"connection: close\r\n"
        return b"connection: keep-alive\r\n" if self.http10 else b""
