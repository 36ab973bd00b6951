"""Where agents and workers dial in: checks the first frame, then hands the connection to whoever expects it.

Local agents come over a Unix socket, remote ones over TCP. A connection that does not introduce itself with a known
one-time token within `hello_timeout_s` is closed.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

from runtime import messages as wire
from runtime.codec import Decoder, FrameError, encode

log = logging.getLogger("gateway.links")


@dataclass(frozen=True)
class LinkParams:
    """Bounds of the links."""

    hello_timeout_s: float = 10.0
    #: Connections that have not introduced themselves yet.
    strangers_max: int = 4_096


class Receiver(Protocol):
    """Whoever takes a connection's messages after its Hello."""

    def on_message(self, message: wire.Message) -> None:
        """One message. Raises FrameError for one that has no place here."""

    def on_closed(self) -> None:
        """The connection is gone."""


class LinkConnection(asyncio.Protocol):
    """One connection of an agent or a worker."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._decoder = Decoder()
        self._transport: asyncio.Transport | None = None
        self._receiver: Receiver | None = None
        self._timer: asyncio.TimerHandle | None = None
        #: Several calls are on this link: what one turn of the loop sends is gathered, so that one system call takes
        #: it all and wakes the peer once. With a single call that would only cost it a turn.
        self.gathers = False
        self._outbox: list[bytes] = []
        #: The process that introduced itself.
        self.pid = 0
        self.closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody dialled."""
        # uvloop's transports are no subclasses of asyncio's, they only behave as such.
        self._transport = cast(asyncio.Transport, transport)
        transport = self._transport
        # Bodies are bounded by their windows; the transport's own mark only costs callbacks.
        transport.set_write_buffer_limits(high=64 * 1024 * 1024)
        if not self._desk.welcome(self):
            transport.abort()
            return
        delay = self._desk.params.hello_timeout_s
        self._timer = asyncio.get_running_loop().call_later(delay, self.close)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self.closed = True
        self._desk.gone(self)
        if self._timer is not None:
            self._timer.cancel()
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.on_closed()

    def data_received(self, data: bytes) -> None:
        """Frames."""
        try:
            for message in self._decoder.feed(data):
                receiver = self._receiver
                if receiver is not None:
                    receiver.on_message(message)
                elif not self.closed:
                    self._introduce(message)
        except FrameError as error:
            log.warning("a link is dropped: %s", error)
            self.close()
        except Exception:
            # Whatever a frame set off, the calls on this link are answered by its end.
            log.exception("a link is dropped by a fault of ours")
            self.close()

    def _introduce(self, message: wire.Message) -> None:
        if not isinstance(message, wire.Hello):
            raise FrameError(f"{type(message).__name__} before Hello")
        if message.version != wire.PROTOCOL_VERSION:
            raise FrameError(f"protocol {message.version} spoken; ours is {wire.PROTOCOL_VERSION}")
        self.pid = message.pid
        receiver = self._desk.claim(message, self)
        if receiver is None:
            raise FrameError(f"{message.role} {message.ident!r} is not expected")
        self._receiver = receiver
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def send(self, message: wire.Message) -> None:
        """Write one message, now or at the end of this turn of the loop; nothing happens when the connection is gone.

        Raises FrameError for a message that is too large.
        """
        if self.closed or self._transport is None:
            return
        outbox = self._outbox
        if outbox:
            outbox.append(encode(message))
        elif self.gathers:
            outbox.append(encode(message))
            asyncio.get_running_loop().call_soon(self._flush)
        else:
            self._transport.write(encode(message))

    def _flush(self) -> None:
        outbox = self._outbox
        if self._transport is not None and not self.closed:
            self._transport.write(outbox[0] if len(outbox) == 1 else b"".join(outbox))
        outbox.clear()

    def close(self) -> None:
        """End the connection."""
        if self._transport is not None:
            self._transport.abort()


#: Makes the receiver of an expected connection.
Expectation = Callable[[LinkConnection], Receiver]


class Desk:
    """Knows who is expected: (role, ident) -> one-time token and what to make of the connection."""

    def __init__(self, params: LinkParams) -> None:
        self.params = params
        self._expected: dict[tuple[str, str], tuple[str, Expectation]] = {}
        self._strangers: set[LinkConnection] = set()
        self._all: set[LinkConnection] = set()

    def __call__(self) -> LinkConnection:
        return LinkConnection(self)

    def expect(self, role: str, ident: str, token: str, make: Expectation) -> None:
        """Somebody will dial with this token, once."""
        self._expected[role, ident] = (token, make)

    def forget(self, role: str, ident: str) -> None:
        """They will not, after all."""
        self._expected.pop((role, ident), None)

    def welcome(self, connection: LinkConnection) -> bool:
        """Room for one more that has not introduced itself?"""
        if len(self._strangers) >= self.params.strangers_max:
            return False
        self._strangers.add(connection)
        self._all.add(connection)
        return True

    def claim(self, hello: wire.Hello, connection: LinkConnection) -> Receiver | None:
        """The receiver for who introduces itself so, or None."""
        expected = self._expected.get((hello.role, hello.ident))
        if expected is None or not hmac.compare_digest(expected[0].encode(), hello.token.encode()):
            return None
        del self._expected[hello.role, hello.ident]
        self._strangers.discard(connection)
        return expected[1](connection)

    def gone(self, connection: LinkConnection) -> None:
        """A connection ended."""
        self._strangers.discard(connection)
        self._all.discard(connection)

    def close_all(self) -> None:
        """For shutdown."""
        for connection in list(self._all):
            connection.close()


async def listen_unix(desk: Desk, path: Path) -> asyncio.Server:
    """Listen for local agents and workers at `path` (its directory is private)."""
    path.unlink(missing_ok=True)
    loop = asyncio.get_running_loop()
    server = await loop.create_unix_server(desk, str(path), backlog=1024)
    path.chmod(0o600)
    return server
