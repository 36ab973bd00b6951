"""Numbers out of measurements: medians, percentiles, and comparisons of slices that were measured in turn.

The machine is never quiet. So what is compared is measured in alternating slices, each slice is set against its
neighbour, and the median of those comparisons is told: a disturbance that lasts longer than one slice meets both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Latencies:
    """Of the calls of one slice, microseconds."""

    count: int
    median_us: float
    p90_us: float
    p99_us: float
    max_us: float


def percentile(ordered: Sequence[float], fraction: float) -> float:
    """The value below which `fraction` (0 to 1) of the sorted values lie. Raises ValueError for no values."""
    if not ordered:
        raise ValueError("no values")
    return ordered[min(len(ordered) - 1, int(fraction * len(ordered)))]


def latencies(nanoseconds: Sequence[int]) -> Latencies:
    """Summary of single latencies. Raises ValueError for none."""
    ordered = sorted(nanoseconds)
    return Latencies(
        count=len(ordered),
        median_us=median(ordered) / 1e3,
        p90_us=percentile(ordered, 0.90) / 1e3,
        p99_us=percentile(ordered, 0.99) / 1e3,
        max_us=ordered[-1] / 1e3,
    )


@dataclass(frozen=True)
class Paired(Generic[T]):
    """Slices of two contestants; the slices of one place in the two tuples were measured next to each other."""

    first: tuple[T, ...]
    second: tuple[T, ...]

    def medians(self, value: Callable[[T], float]) -> tuple[float, float]:
        """The median slice of each."""
        return median(map(value, self.first)), median(map(value, self.second))

    def ratio(self, value: Callable[[T], float]) -> float:
        """Median of first / second over the pairs."""
        return median(value(a) / value(b) for a, b in zip(self.first, self.second, strict=True))

    def difference(self, value: Callable[[T], float]) -> float:
        """Median of first - second over the pairs."""
        return median(value(a) - value(b) for a, b in zip(self.first, self.second, strict=True))


def in_turn(first: Callable[[], T], second: Callable[[], T], pairs: int) -> Paired[T]:
    """Measure both `pairs` times in turn; who goes first in a pair changes every time."""
    ours: list[T] = []
    theirs: list[T] = []
    for number in range(pairs):
        if number % 2 == 0:
            ours.append(first())
            theirs.append(second())
        else:
            theirs.append(second())
            ours.append(first())
    return Paired(tuple(ours), tuple(theirs))
