"""The closed loop: every connection sends its next request when the answer to the last one is whole.

Every answer's status and body are checked; what is wrong is counted and never tried again. One
look at the bytes is enough for an answer that came in one piece and looks like the one before; everything else goes
through a real parser. It must need far less time per call than the servers that it measures: there is no task,
future or timer per call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any, cast

import httptools

from loadtests.bench.connect import connect
from loadtests.bench.requests import Address, ExpectedBytes, ExpectedJson
from loadtests.bench.samples import Latencies, latencies

#: How long answers may be outstanding when the time is over, before they count as errors.
GRACE_S = 10.0
ERRORS_KEPT = 5


@dataclass(frozen=True)
class Load:
    """A closed loop. Either `expected_json` or `expected_bytes` says what an answer must be."""

    address: Address
    request: bytes
    connections: int
    seconds: float
    warmup_s: float = 0.3
    expected_json: Any = None
    expected_bytes: bytes | None = None
    #: The server may close a connection after a right answer; the caller then dials again.
    redial: bool = False


@dataclass(frozen=True)
class LoadResult:
    """What was measured, after the warm-up. `errors` counts the warm-up's too."""

    calls: int
    seconds: float
    errors: int
    #: The first few, told.
    error_samples: tuple[str, ...]
    #: None when no call was answered.
    latencies: Latencies | None
    #: Right answers, the warm-up's too.
    answered: int = 0

    @property
    def per_second(self) -> float:
        """Right answers a second."""
        return self.calls / self.seconds


class Tally:
    """What all connections of one run count together."""

    def __init__(self, load: Load) -> None:
        self.request = load.request
        self.address = load.address
        self.may_redial = load.redial
        self.measuring = False
        self.stopping = False
        self.nanoseconds: list[int] = []
        self.answered = 0
        self.errors = 0
        self.error_samples: list[str] = []
        #: The end of an answer as it was seen before: the blank line and the whole body.
        self.tail = b""

    def wrong(self, what: str) -> None:
        """Count an error."""
        self.errors += 1
        if len(self.error_samples) < ERRORS_KEPT:
            self.error_samples.append(what)


class Caller(asyncio.Protocol):
    """One connection in a closed loop."""

    def __init__(self, tally: Tally, expected: ExpectedJson | ExpectedBytes, done: Callable[[], None]) -> None:
        self._tally = tally
        self._expected = expected
        self._done = done
        self._transport: asyncio.Transport
        self._parser = httptools.HttpResponseParser(self)
        #: Nothing of the answer has come yet.
        self._fresh = True
        self._waiting = False
        self._broken = False
        self._redialling = False
        self._dialling: asyncio.Task[None] | None = None
        self._sent_ns = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected; `send` starts the loop."""
        # uvloop's transports are no subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def send(self) -> None:
        """The next request, or the end."""
        if self._tally.stopping:
            self._waiting = False
            self._transport.close()
            return
        self._waiting = True
        self._sent_ns = perf_counter_ns()
        self._transport.write(self._tally.request)

    def data_received(self, data: bytes) -> None:
        """Some or all of an answer."""
        tail = self._tally.tail
        if self._fresh and tail and data.endswith(tail) and data.startswith(b"HTTP/1.1 200 "):
            self._answered()
            return
        self._fresh = False
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._break(f"unreadable answer: {error}: {data[:200]!r}")

    def on_body(self, piece: bytes) -> None:
        """Parser: some of the body."""
        self._expected.feed(piece)

    def on_message_complete(self) -> None:
        """Parser: the answer is whole."""
        self._fresh = True
        status = self._parser.get_status_code()
        right = self._expected.is_right()
        keep = self._parser.should_keep_alive()
        if status != 200:
            self._break(f"status {status}")
        elif not right:
            self._break("not the body that was expected")
        elif not keep and not self._tally.may_redial:
            self._break("the server closes a connection that should be kept")
        else:
            self._redialling = not keep
            if self._expected.spelling:
                self._tally.tail = b"\r\n\r\n" + self._expected.spelling
            self._answered()

    def _answered(self) -> None:
        now = perf_counter_ns()
        if not self._waiting:
            self._break("an answer to nothing")
            return
        self._tally.answered += 1
        if self._tally.measuring:
            self._tally.nanoseconds.append(now - self._sent_ns)
        if self._redialling:
            self._waiting = False
            self._transport.close()
        else:
            self.send()

    def _break(self, what: str) -> None:
        """An error ends this connection, and is one error whatever follows from it."""
        if not self._broken:
            self._broken = True
            self._tally.wrong(what)
        self._waiting = False
        self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone; an error when it owed an answer."""
        if self._waiting:
            self._break(f"connection lost while waiting for an answer: {exc or 'closed by the server'}")
        if self._redialling and not self._tally.stopping:
            self._dialling = asyncio.get_running_loop().create_task(self._redial())
        else:
            self._done()

    async def _redial(self) -> None:
        self._redialling = False
        self._parser = httptools.HttpResponseParser(self)
        try:
            await connect(self, self._tally.address)
        except OSError as error:
            self._tally.wrong(f"cannot connect again: {error}")
            self._done()
        else:
            self.send()

    def give_up(self) -> None:
        """The grace is over."""
        if self._waiting:
            self._break(f"no answer within {GRACE_S:g} s after the end")


async def run_load(load: Load) -> LoadResult:
    """Carry out a closed loop. Raises OSError or TimeoutError when it cannot connect."""
    tally = Tally(load)
    all_done = asyncio.Event()
    left = load.connections

    def one_done() -> None:
        nonlocal left
        left -= 1
        if not left:
            all_done.set()

    callers: list[Caller] = []
    for _ in range(load.connections):
        expected = (
            ExpectedJson(load.expected_json) if load.expected_bytes is None else ExpectedBytes(load.expected_bytes)
        )
        caller = Caller(tally, expected, one_done)
        await connect(caller, load.address)
        callers.append(caller)
    for caller in callers:
        caller.send()
    await _end_or(all_done, load.warmup_s)
    tally.measuring = True
    began = perf_counter_ns()
    await _end_or(all_done, load.seconds)
    tally.measuring = False
    seconds = (perf_counter_ns() - began) / 1e9
    tally.stopping = True
    await _end_or(all_done, GRACE_S)
    for caller in callers:
        caller.give_up()
    summary = latencies(tally.nanoseconds) if tally.nanoseconds else None
    return LoadResult(
        calls=len(tally.nanoseconds),
        seconds=seconds,
        errors=tally.errors,
        error_samples=tuple(tally.error_samples),
        latencies=summary,
        answered=tally.answered,
    )


async def _end_or(all_done: asyncio.Event, seconds: float) -> None:
    """Wait this long, or until every connection has ended."""
    try:
        await asyncio.wait_for(all_done.wait(), seconds)
    except TimeoutError:
        pass
