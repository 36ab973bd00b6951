"""One reader of a live log: a bounded queue that drops and counts when the reader is too slow."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True)
class LogFollowerParams:
    """Bounds of one follower's queue."""

    lines_max: int = 5_000
    bytes_max: int = 4 * 1024 * 1024


class Follower:
    """See the module."""

    def __init__(self, params: LogFollowerParams) -> None:
        self._params = params
        self._rows: deque[bytes] = deque()
        self._bytes = 0
        self._missed = 0
        self._closed = False
        self._news = asyncio.Event()

    def offer(self, row: bytes) -> None:
        """A new line; dropped when the queue is full."""
        if len(self._rows) >= self._params.lines_max or self._bytes + len(row) > self._params.bytes_max:
            self._missed += 1
            return
        self._rows.append(row)
        self._bytes += len(row)
        self._news.set()

    def close(self) -> None:
        """No more lines will come; those in the queue are still given."""
        self._closed = True
        self._news.set()

    async def next(self, within_s: float) -> bytes | None:
        """The next line; b"" when none came in time, None at the end."""
        if not self._rows and not self._closed:
            self._news.clear()
            try:
                async with asyncio.timeout(within_s):
                    await self._news.wait()
            except TimeoutError:
                return b""
        if not self._rows:
            return None
        row = self._rows.popleft()
        self._bytes -= len(row)
        return row

    def take_missed(self) -> int:
        """Lines dropped since this was last asked."""
        missed, self._missed = self._missed, 0
        return missed
