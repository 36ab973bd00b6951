"""How many calls a revision had, averaged over time: what the autoscaler looks at.

Concurrency is weighted by time, not sampled: a `ConcurrencyMeter` keeps the integral of "calls queued or running"
and closes it second by second, as the mean of that second, into two `Window`s, the stable and the panic one. A call
that lasts a millisecond counts for a millisecond. Both windows average only over the seconds that were reported:
a revision one second old is judged by that second.
"""

from __future__ import annotations

from math import floor, inf

#: Averages are rounded to this many decimals, so that sums and differences of floats leave no dust behind.
DECIMALS = 6


class Window:
    """Sums per second over the last `seconds` seconds, in a ring."""

    __slots__ = ("_buckets", "_first", "_last", "_total", "seconds")

    def __init__(self, seconds: int) -> None:
        self.seconds = max(1, seconds)
        self._buckets = [0.0] * self.seconds
        self._total = 0.0
        self._first = 0
        self._last: int | None = None

    def record(self, second: int, value: float) -> None:
        """Add a value to its second. Values older than the window are dropped."""
        last = self._last
        size = self.seconds
        if last is None or second - last >= size:
            # After a silence as long as the window the average starts again from this second alone.
            self._buckets = [0.0] * size
            self._total = 0.0
            self._first = self._last = second
        elif second > last:
            for passed in range(last + 1, second + 1):
                self._total -= self._buckets[passed % size]
                self._buckets[passed % size] = 0.0
            self._last = second
        elif last - second >= size:
            return
        self._buckets[second % size] += value
        self._total += value

    def is_empty(self, second: int) -> bool:
        """Nothing was recorded within the window that ends here."""
        return self._last is None or second - self._last >= self.seconds

    def average(self, second: int) -> float:
        """Mean of the window that ends at `second`.

        Seconds after the last record are not known and not counted, neither as values nor as zeros; a second
        without a record between two that have one is a zero.
        """
        last = self._last
        if last is None:
            return 0.0
        size = self.seconds
        silent = second - last
        if silent >= size:
            return 0.0
        known = last - self._first + 1
        total = self._total
        if silent > 0:
            for passed in range(last + 1, second + 1):
                total -= self._buckets[passed % size]
            known = min(known, size - silent)
        return round(total / min(known, size), DECIMALS)

    def clear(self) -> None:
        """Forget everything."""
        self._last = None


class ConcurrencyMeter:
    """The calls of one revision that are queued or running (`level`), and their averages."""

    __slots__ = ("_area", "_changed", "_since", "_turn", "level", "panic", "paused", "stable")

    def __init__(self, stable_s: int, panic_s: int) -> None:
        self.level = 0
        self.stable = Window(stable_s)
        self.panic = Window(panic_s)
        #: Nothing to report: no calls and no workers. Silence is not zero.
        self.paused = True
        #: Integral of the level over the current second, which began (for us) at `_since` and ends at `_turn`.
        self._area = 0.0
        self._since = 0.0
        self._turn = -inf
        self._changed = 0.0

    def enter(self, now: float) -> None:
        """One call more."""
        if now >= self._turn:
            self._close_seconds(now)
        passed = now - self._changed
        if passed > 0.0:  # a clock that steps back must not corrupt the integral
            self._area += self.level * passed
            self._changed = now
        self.level += 1

    def leave(self, now: float) -> None:
        """One call less."""
        if now >= self._turn:
            self._close_seconds(now)
        passed = now - self._changed
        if passed > 0.0:
            self._area += self.level * passed
            self._changed = now
        self.level -= 1

    def resume(self, now: float) -> None:
        """There is something to report again: seconds count from here."""
        if self.paused:
            self.paused = False
            self._start_second(now)

    def pause(self, now: float) -> None:
        """No calls and no workers any more: stop reporting."""
        if not self.paused:
            if now >= self._turn:
                self._close_seconds(now)
            self.paused = True
            self._turn = -inf  # whatever comes next finds its second over, and so resumes

    def averages(self, now: float) -> tuple[float, float] | None:
        """(stable, panic) averages at `now`; None when nothing was reported within the stable window."""
        if not self.paused and now >= self._turn:
            self._close_seconds(now)
        second = floor(now)
        if self.stable.is_empty(second):
            return None
        return self.stable.average(second), self.panic.average(second)

    def clear(self, now: float) -> None:
        """Forget the past, keep the level."""
        self.stable.clear()
        self.panic.clear()
        if not self.paused:
            self._start_second(now)

    def _start_second(self, now: float) -> None:
        self._since = self._changed = now
        self._turn = float(floor(now) + 1)
        self._area = 0.0

    def _close_seconds(self, now: float) -> None:
        """Report every second that has ended; the level was constant since the last change."""
        if self.paused:
            self.resume(now)
            return
        turn = self._turn
        level = self.level
        area = self._area + level * max(0.0, turn - self._changed)
        self._report(int(turn), area / max(turn - self._since, 1e-9))
        now_second = floor(now)
        # Whole seconds since then; more than a window of them would only overwrite one another.
        skipped = now_second - int(turn)
        for second in range(now_second - min(skipped, self.stable.seconds) + 1, now_second + 1):
            self._report(second, float(level))
        self._since = self._changed = float(now_second)
        self._turn = float(now_second + 1)
        self._area = 0.0

    def _report(self, second: int, value: float) -> None:
        self.stable.record(second, value)
        self.panic.record(second, value)
