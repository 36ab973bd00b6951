"""The agent's side of its connection to the gateway, and how it dials for workers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from runtime.codec import Decoder, FrameError, encode
from runtime.messages import Message

DIAL_TIMEOUT_S = 10.0
#: Above this many unsent bytes reports still go out, but logs are dropped.
CONGESTED_BYTES = 4 * 1024 * 1024


class BadAddress(ValueError):
    """An address that is neither "unix:/path" nor "tcp:host:port"."""


def parse_address(connect: str) -> tuple[str, int] | str:
    """(host, port), or the path of a Unix socket. Raises BadAddress."""
    kind, _, rest = connect.partition(":")
    if kind == "unix" and rest:
        return rest
    host, _, port = rest.rpartition(":")
    if kind == "tcp" and host and port.isdigit() and 0 < int(port) < 65536:
        return host.strip("[]"), int(port)
    raise BadAddress(f"address {connect!r} is neither unix:/path nor tcp:host:port")


async def dial(connect: str) -> socket.socket:
    """A connected, non-blocking socket. Raises BadAddress, OSError (TimeoutError after DIAL_TIMEOUT_S)."""
    address = parse_address(connect)
    return await asyncio.wait_for(_dial(address), DIAL_TIMEOUT_S)


async def _dial(address: tuple[str, int] | str) -> socket.socket:
    loop = asyncio.get_running_loop()
    if isinstance(address, str):
        return await _connect(socket.AF_UNIX, address)
    error: OSError = OSError(f"{address[0]} has no address")
    for family, _, _, _, resolved in await loop.getaddrinfo(*address, type=socket.SOCK_STREAM):
        try:
            sock = await _connect(family, resolved)
        except OSError as failed:
            error = failed
            continue
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return sock
    raise error


async def _connect(family: int, address: object) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        # A full backlog of a Unix socket says EAGAIN instead of making us wait.
        for pause_s in (0.01, 0.05, 0.25, 1.0, 2.0):
            try:
                await asyncio.get_running_loop().sock_connect(sock, address)  # type: ignore[arg-type]
                return sock
            except BlockingIOError:
                await asyncio.sleep(pause_s)
        raise OSError("the gateway does not take connections")
    except BaseException:
        sock.close()
        raise


class GatewayLink(asyncio.Protocol):
    """The agent's one connection: reports out, orders in."""

    def __init__(self, on_message: Callable[[Message], None]) -> None:
        self._on_message = on_message
        self._decoder = Decoder()
        self._transport: asyncio.Transport | None = None
        #: Set when the connection has ended, with why.
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """The gateway is gone."""
        self._end(str(exc) if exc else "the gateway closed the connection")

    def _end(self, why: str) -> None:
        if not self.ended.done():
            self.ended.set_result(why)

    def data_received(self, data: bytes) -> None:
        """Frames."""
        try:
            for message in self._decoder.feed(data):
                self._on_message(message)
        except FrameError as error:
            self._end(f"the gateway sent what is no frame: {error}")
            if self._transport is not None:
                self._transport.abort()

    @property
    def congested(self) -> bool:
        """Too much is waiting to be sent for more logs."""
        return self._transport is None or self._transport.get_write_buffer_size() > CONGESTED_BYTES

    def send(self, message: Message) -> None:
        """Report; nothing happens when the gateway is gone."""
        if self._transport is not None and not self.ended.done():
            self._transport.write(encode(message))

    def close(self) -> None:
        """Send what is waiting and hang up."""
        if self._transport is not None:
            self._transport.close()
