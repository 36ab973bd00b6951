"""One call on an event loop: both bodies within their windows, and exactly one last message whatever happens."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter_ns, process_time_ns

from runtime.answers import CREDIT_BATCH_BYTES, BodyTooLarge, CallCancelled, failure, peak_rss_bytes
from runtime.cpu_share import CpuShare
from runtime.messages import CHUNK_BYTES, WINDOW_BYTES, Body, Credit, Header, Message, Request, Response


class CallStream:
    """See the module. `send` writes a message to the gateway; `on_end` is told once, after the last one."""

    def __init__(
        self, request: Request, send: Callable[[Message], None], cpu: CpuShare, on_end: Callable[[CallStream], None]
    ) -> None:
        self.request = request
        #: The last message of the call was sent.
        self.ended = False
        #: The caller does not want the answer any more.
        self.gone = False
        self._send = send
        self._on_end = on_end
        self._began = perf_counter_ns()
        self._cpu = cpu
        self._cpu_entered = cpu.enter(process_time_ns())
        self._pieces: deque[tuple[bytes, bool]] = deque()
        self._credit_due = 0
        self._window = WINDOW_BYTES
        self._head: tuple[int, list[Header]] | None = None
        self._head_sent = False
        self._waiters: set[asyncio.Future[None]] = set()
        if request.body or request.last:
            self._pieces.append((request.body, request.last))

    # -- what the gateway says ---------------------------------------------------------------------------

    def on_body(self, data: bytes, last: bool) -> None:
        """More of the request's body."""
        self._pieces.append((data, last))
        self._wake()

    def on_credit(self, amount: int) -> None:
        """The gateway has passed on more of the answer."""
        self._window += amount
        self._wake()

    def on_cancel(self) -> None:
        """The caller is gone."""
        self.gone = True
        self._wake()

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def _changed(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)

    # -- the request's body ------------------------------------------------------------------------------

    async def read(self) -> tuple[bytes, bool]:
        """The next piece and whether it is the last. Raises CallCancelled when nobody waits for the answer."""
        while not self._pieces:
            if self.gone or self.ended:
                raise CallCancelled("the caller is gone")
            await self._changed()
        data, last = self._pieces.popleft()
        self._credit_due += len(data)
        if not last and self._credit_due >= CREDIT_BATCH_BYTES and not self.ended:
            self._send(Credit(self.request.call, self._credit_due))
            self._credit_due = 0
        return data, last

    async def read_all(self, limit: int) -> bytes:
        """The whole body. Raises BodyTooLarge, CallCancelled."""
        if self.request.last:
            return self.request.body
        pieces: list[bytes] = []
        size, last = 0, False
        while not last:
            data, last = await self.read()
            pieces.append(data)
            size += len(data)
            if size > limit:
                raise BodyTooLarge(f"the body has more than {limit} bytes")
        return b"".join(pieces)

    async def until_gone(self) -> None:
        """Wait until the caller is gone or has the whole answer."""
        while not self.gone and not self.ended:
            await self._changed()

    # -- the answer --------------------------------------------------------------------------------------

    def head(self, status: int, headers: list[Header]) -> None:
        """Status and headers. They travel with the first piece of the body, or soon without it."""
        self._head = (status, headers)
        asyncio.get_running_loop().call_soon(self._send_late_head)

    def _send_late_head(self) -> None:
        if self._head is not None and not self.ended and not self.gone:
            self._emit(b"", False)

    async def write(self, data: bytes, last: bool) -> None:
        """More of the answer, as fast as the gateway passes it on. Dropped when the caller is gone."""
        rest = memoryview(data)
        while True:
            piece = rest[:CHUNK_BYTES]
            rest = rest[CHUNK_BYTES:]
            while self._window < len(piece) and not self.gone:
                await self._changed()
            if self.gone or self.ended:
                await asyncio.sleep(0)  # an endless writer must not keep the loop for itself
                return
            final = last and not rest
            if piece or final or self._head is not None:
                self._window -= len(piece)
                self._emit(bytes(piece), final)
            if not rest:
                return

    def _emit(self, piece: bytes, final: bool) -> None:
        call = self.request.call
        stats = self._stats() if final else []
        if self._head is not None:
            status, headers = self._head
            self._head = None
            self._send(Response(call, status, headers, piece, final, stats))
            self._head_sent = True
        else:
            self._send(Body(call, piece, final, stats))
        if final:
            self._end()

    def fail(self, error: BaseException, bundle_dir: str) -> None:
        """End the call with an exception; nothing happens when it has ended already."""
        if not self.ended:
            cancelled = isinstance(error, CallCancelled)
            kind = "broken" if self._head_sent and not cancelled else ""
            self._send(failure(self.request.call, error, bundle_dir, self._stats(), kind))
            self._end()

    def _stats(self) -> list[int]:
        cpu_ns = self._cpu.leave(self._cpu_entered, process_time_ns())
        return [(perf_counter_ns() - self._began) // 1000, cpu_ns // 1000, peak_rss_bytes()]

    def _end(self) -> None:
        self.ended = True
        self._pieces.clear()
        self._on_end(self)
        self._wake()
