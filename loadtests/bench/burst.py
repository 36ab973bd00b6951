"""The burst: calls that all begin at the same moment, each on a connection of its own, each timed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import cast

import httptools

from loadtests.bench.connect import connect
from loadtests.bench.requests import Address


@dataclass(frozen=True)
class Burst:
    """One request for each connection; the connections are made before the first is sent."""

    address: Address
    requests: tuple[bytes, ...]
    timeout_s: float = 60.0


@dataclass(frozen=True)
class Reply:
    """What became of one request. `status` 0: no whole answer came, and `error` says why."""

    status: int
    #: From the send to the end of the answer.
    nanoseconds: int
    #: Names in lower case; of repeated ones the last.
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    error: str = ""


class OneCall(asyncio.Protocol):
    """One request and its answer."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._transport: asyncio.Transport
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._pieces: list[bytes] = []
        self._sent_ns = 0
        self.reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        # uvloop's transports are no subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def send(self) -> None:
        """Begin the call."""
        self._sent_ns = perf_counter_ns()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Some of the answer."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.fail(f"unreadable answer: {error}: {data[:200]!r}")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Parser: one header."""
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, piece: bytes) -> None:
        """Parser: some of the body."""
        self._pieces.append(piece)

    def on_message_complete(self) -> None:
        """Parser: the answer is whole."""
        spent_ns = perf_counter_ns() - self._sent_ns
        self._end(Reply(self._parser.get_status_code(), spent_ns, self._headers, b"".join(self._pieces)))

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone, with or without an answer."""
        self.fail(f"connection lost: {exc or 'closed by the server'}")

    def fail(self, why: str) -> None:
        """End the call without an answer, if it has none."""
        self._end(Reply(0, perf_counter_ns() - self._sent_ns, error=why))

    def _end(self, reply: Reply) -> None:
        if not self.reply.done():
            self.reply.set_result(reply)
            self._transport.close()


async def run_burst(burst: Burst) -> list[Reply]:
    """Carry out a burst; a reply for every request, in their order. Raises OSError or TimeoutError when it cannot
    connect."""
    calls: list[OneCall] = []
    for request in burst.requests:
        call = OneCall(request)
        await connect(call, burst.address)
        calls.append(call)
    for call in calls:
        call.send()
    await asyncio.wait([call.reply for call in calls], timeout=burst.timeout_s)
    for call in calls:
        call.fail(f"no answer within {burst.timeout_s:g} s")
    return [call.reply.result() for call in calls]
