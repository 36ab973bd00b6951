"""Which ready worker takes the next call: one rule for each class of concurrency, each with constant-time steps.

- concurrency 1: the most recently used one, so that the others drain;
- 2 and 3: the first in order of readiness with room, which packs as well;
- more: the least loaded, since calls that share a worker slow one another.

A room (`warmpool.ledger.Room`) holds exactly the ready workers that may take calls by rule and have room.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from warmpool.ledger import Room, Worker

#: Up to this concurrency calls are packed, above they are spread.
PACK_CONCURRENCY_MAX = 3


class MostRecentlyUsed:
    """For workers that serve one call at a time."""

    __slots__ = ("_free",)

    def __init__(self) -> None:
        self._free: dict[Worker, None] = {}

    def take(self) -> Worker | None:
        if self._free:
            worker, _ = self._free.popitem()
            worker.in_flight = 1
            return worker
        return None

    def give(self, worker: Worker) -> None:
        worker.in_flight = 0
        self._free[worker] = None

    def add(self, worker: Worker) -> None:
        if not worker.in_flight:
            self._free[worker] = None

    def remove(self, worker: Worker) -> None:
        self._free.pop(worker, None)

    def __iter__(self) -> Iterator[Worker]:
        return iter(self._free)


class FirstAvailable:
    """For small concurrencies: the earliest ready worker with room."""

    __slots__ = ("_concurrency", "_open")

    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency
        self._open: list[tuple[int, Worker]] = []  # by ready_order, which no two workers share

    def take(self) -> Worker | None:
        if not self._open:
            return None
        worker = self._open[0][1]
        worker.in_flight += 1
        if worker.in_flight >= self._concurrency:
            del self._open[0]
        return worker

    def give(self, worker: Worker) -> None:
        if worker.in_flight >= self._concurrency:
            insort(self._open, (worker.ready_order, worker))
        worker.in_flight -= 1

    def add(self, worker: Worker) -> None:
        if worker.in_flight < self._concurrency:
            insort(self._open, (worker.ready_order, worker))

    def remove(self, worker: Worker) -> None:
        at = bisect_left(self._open, (worker.ready_order,))
        if at < len(self._open) and self._open[at][1] is worker:
            del self._open[at]

    def __iter__(self) -> Iterator[Worker]:
        return (worker for _, worker in self._open)


class LeastLoaded:
    """For larger concurrencies: workers by the number of their calls, and the lowest number that occurs."""

    __slots__ = ("_concurrency", "_levels", "_lowest")

    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency
        #: Made with the first worker: most revisions sleep.
        self._levels: list[dict[Worker, None]] = []
        self._lowest = concurrency

    def take(self) -> Worker | None:
        level = self._lowest
        concurrency = self._concurrency
        if level >= concurrency:
            return None
        workers = self._levels[level]
        worker, _ = workers.popitem()
        worker.in_flight = above = level + 1
        if above < concurrency:
            self._levels[above][worker] = None
        if not workers:
            self._lowest = above  # where this one is now, or no room at all
        return worker

    def give(self, worker: Worker) -> None:
        level = worker.in_flight
        levels = self._levels
        if level < self._concurrency:
            del levels[level][worker]
        worker.in_flight = below = level - 1
        levels[below][worker] = None
        if below < self._lowest:
            self._lowest = below

    def add(self, worker: Worker) -> None:
        if not self._levels:
            self._levels = [{} for _ in range(self._concurrency)]
        level = worker.in_flight
        if level < self._concurrency:
            self._levels[level][worker] = None
            self._lowest = min(self._lowest, level)

    def remove(self, worker: Worker) -> None:
        level = worker.in_flight
        if level >= self._concurrency or worker not in self._levels[level]:
            return
        del self._levels[level][worker]
        if not self._levels[level] and level == self._lowest:
            self._lowest = next((n for n, held in enumerate(self._levels) if held), self._concurrency)

    def __iter__(self) -> Iterator[Worker]:
        return (worker for held in self._levels for worker in held)


def room_for(concurrency: int) -> Room:
    """The rule for this concurrency."""
    if concurrency <= 1:
        return MostRecentlyUsed()
    if concurrency <= PACK_CONCURRENCY_MAX:
        return FirstAvailable(concurrency)
    return LeastLoaded(concurrency)
