"""Call ids: UUIDv7 as text (RFC 9562), in order of making within a process, cheap enough for every call.

The 74 bits below the millisecond start at random in each millisecond and then count up by a random step, so that ids
of one process rise even when many are made in one millisecond or the clock steps back, and those of two processes
do not meet.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

_TAIL_BITS = 74
_LOW_BITS = 62
_TAIL_MAX = (1 << _TAIL_BITS) - 1
_LOW_MASK = (1 << _LOW_BITS) - 1
#: The first tail of a millisecond leaves the top bit free and a step has 40 bits: 2**33 ids before the tail is full.
_FIRST_TAIL_MASK = _TAIL_MAX >> 1
_STEP_MASK = (1 << 40) - 1
_ENTROPY_BYTES = 16
_VARIANT = 0x2 << _LOW_BITS
_NODE_MASK = (1 << 48) - 1


class Uuid7:
    """Makes ids. `clock`: nanoseconds since the epoch, UTC; `entropy(n)`: n random bytes."""

    __slots__ = ("_clock", "_entropy", "_millisecond", "_prefix", "_step", "_tail")

    def __init__(self, clock: Callable[[], int] = time.time_ns, entropy: Callable[[int], bytes] = os.urandom) -> None:
        self._clock = clock
        self._entropy = entropy
        self._millisecond = -1
        #: The id's text up to the version's digit: one formatting a millisecond.
        self._prefix = ""
        self._tail = 0
        self._step = 1

    def __call__(self) -> str:
        """A new id, greater than every one before it."""
        millisecond = self._clock() // 1_000_000
        if millisecond > self._millisecond:
            self._begin(millisecond)
        else:
            self._tail += self._step
            if self._tail > _TAIL_MAX:
                self._begin(self._millisecond + 1)
        tail = self._tail
        low = tail & _LOW_MASK | _VARIANT
        return f"{self._prefix}{tail >> _LOW_BITS:03x}-{low >> 48:04x}-{low & _NODE_MASK:012x}"

    def _begin(self, millisecond: int) -> None:
        drawn = int.from_bytes(self._entropy(_ENTROPY_BYTES), "big")
        self._millisecond = millisecond
        self._prefix = f"{millisecond >> 16:08x}-{millisecond & 0xFFFF:04x}-7"
        self._tail = drawn & _FIRST_TAIL_MASK
        self._step = ((drawn >> _TAIL_BITS) & _STEP_MASK) + 1


def arrival_ms(identifier: str) -> int:
    """The millisecond since the epoch (UTC) in which an id was made. Raises ValueError for what is no UUIDv7."""
    digits = identifier.replace("-", "")
    if len(digits) != 32 or len(identifier) != 36 or digits[12] != "7":
        raise ValueError(f"not a UUIDv7: {identifier!r}")
    return int(digits, 16) >> 80
