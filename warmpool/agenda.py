"""When which revision has something to do, so that a Tick costs only what is due, however many functions sleep."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from math import inf

from warmpool.ledger import Revision

#: Entries that were overtaken by an earlier date are swept out beyond this many, or twice the live ones.
SWEEP_FLOOR = 256


class Agenda:
    """A heap of dates. A revision's own `due` is the truth; entries that disagree with it are dead."""

    __slots__ = ("_heap", "_live", "_serial")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Revision]] = []
        self._serial = 0
        self._live = 0

    def set(self, revision: Revision, due: float) -> None:
        """This revision's one date; infinity: none."""
        if due == revision.due:
            return
        self._live += (due != inf) - (revision.due != inf)
        revision.due = due
        if due == inf:
            return
        self._serial += 1
        heappush(self._heap, (due, self._serial, revision))
        if len(self._heap) > SWEEP_FLOOR + 2 * self._live:
            self._sweep()

    def take_due(self, now: float) -> list[Revision]:
        """Those whose date has come, in order of date; their dates are cleared."""
        heap = self._heap
        due: list[Revision] = []
        while heap and heap[0][0] <= now:
            date, _, revision = heappop(heap)
            if revision.due == date:
                revision.due = inf
                self._live -= 1
                due.append(revision)
        return due

    def next(self) -> float | None:
        """The first date."""
        heap = self._heap
        while heap and heap[0][2].due != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else None

    def _sweep(self) -> None:
        seen: set[int] = set()
        kept = []
        for entry in sorted(self._heap):
            if entry[2].due == entry[0] and id(entry[2]) not in seen:
                seen.add(id(entry[2]))
                kept.append(entry)
        heapify(kept)
        self._heap = kept
