"""The limits in time of many calls on one timer of the loop.

A timer of its own costs a call more than all its book-keeping here, and nearly no call lives to see its limit. Limits
are rounded up to the next tick; the timer runs only while something is waited for.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

TICKS_PER_S = 40


class Limited(Protocol):
    """Something with a limit."""

    def on_deadline(self) -> None:
        """The limit that was set is over."""


class Deadlines:
    """See the module. Times are seconds of the monotonic clock."""

    def __init__(self) -> None:
        self._ticks: dict[int, set[Limited]] = {}
        self._timer: asyncio.TimerHandle | None = None
        #: The first tick that has not been looked at.
        self._next = 0

    def set(self, who: Limited, at: float) -> int:
        """Have `who` told once `at` is over; gives the tick, for `clear`."""
        tick = max(int(at * TICKS_PER_S) + 1, self._next)
        waiting = self._ticks.get(tick)
        if waiting is None:
            self._ticks[tick] = waiting = set()
        waiting.add(who)
        if self._timer is None:
            self._next = min(tick, int(time.monotonic() * TICKS_PER_S))
            self._wait()
        return tick

    def clear(self, who: Limited, tick: int) -> None:
        """Not any more; nothing happens when it was told already."""
        waiting = self._ticks.get(tick)
        if waiting is not None:
            waiting.discard(who)

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(1 / TICKS_PER_S, self._look)

    def _look(self) -> None:
        now = int(time.monotonic() * TICKS_PER_S)
        due: list[Limited] = []
        for tick in range(self._next, now + 1) if now - self._next < len(self._ticks) else sorted(self._ticks):
            if tick <= now:
                due += self._ticks.pop(tick, ())
        self._next = now + 1
        if self._ticks:
            self._wait()
        else:
            self._timer = None
        loop = asyncio.get_running_loop()
        for who in due:
            loop.call_soon(who.on_deadline)  # so that a fault in one does not keep it from the others
