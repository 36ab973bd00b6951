"""Divides a process's CPU time among the calls it serves at the same time, evenly while they overlap."""

from __future__ import annotations


class CpuShare:
    """Keeps what one call that was there all the time would have got; a call's share is a difference of two readings.

    The shares of all calls add up to the CPU time used while there was any call. Nanoseconds.
    """

    __slots__ = ("_calls", "_last", "_per_call")

    def __init__(self) -> None:
        self._calls = 0
        self._last = 0
        self._per_call = 0.0

    def _advance(self, cpu_now: int) -> None:
        if self._calls:
            self._per_call += (cpu_now - self._last) / self._calls
        self._last = cpu_now

    def enter(self, cpu_now: int) -> float:
        """A call begins; keep the reading for `leave`."""
        self._advance(cpu_now)
        self._calls += 1
        return self._per_call

    def leave(self, entered: float, cpu_now: int) -> int:
        """A call ends: its share."""
        self._advance(cpu_now)
        self._calls -= 1
        return int(self._per_call - entered)
