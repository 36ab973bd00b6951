"""Brings the journal into PostgreSQL, batch after batch.

It follows the journal from the position that the database remembers, earlier processes' segments first, waits out
any outage, and drops what has arrived.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from gateway.database.database import Database
from gateway.errors import Unavailable
from gateway.metering.ingest import Ingest, PositionMoved
from gateway.metering.journal import Journal
from gateway.metering.segments import FIRST_POSITION, Entries, Segment, read_entries

log = logging.getLogger("gateway.metering")


@dataclass(frozen=True)
class WriterParams:
    """Bounds; times in seconds."""

    #: Records of one transaction, rounded up to whole pieces.
    batch_records_max: int = 20_000
    #: Read and sent at a time: what keeps the event loop from other work, a fraction of a millisecond.
    piece_bytes: int = 64 * 1024
    #: How long records wait in the journal when there are few.
    interval_s: float = 0.2
    #: After a failure: growing pauses.
    pause_s: float = 0.1
    pause_max_s: float = 5.0
    #: `flush` gives up after this.
    flush_timeout_s: float = 20.0
    #: Between two log lines about an outage.
    complaint_interval_s: float = 30.0
    #: Between two looks whether a new month's partition is to be made.
    months_interval_s: float = 3600.0


@dataclass(frozen=True)
class Lag:
    """How far the database is behind the journal. `behind_s`: since when something has been waiting."""

    bytes_waiting: int
    behind_s: float
    segments: int


class Writer:
    """See the module."""

    def __init__(
        self,
        journal: Journal,
        database: Database,
        params: WriterParams | None = None,
        *,
        clock: Callable[[], float] = time.time,
        ingest: Ingest | None = None,
    ) -> None:
        self._journal = journal
        self._params = params if params is not None else WriterParams()
        self._clock = clock
        self._ingest = ingest if ingest is not None else Ingest(database)
        self._positions: dict[str, int] = {}
        self._task: asyncio.Task[None] | None = None
        self._wanted = asyncio.Event()
        self._progress = asyncio.Event()
        self._behind_since: float | None = None
        self._months_at = float("-inf")
        self._complained_at = float("-inf")
        #: Metrics: records stored, failures met, bytes that could not be read.
        self.stored = 0
        self.failures = 0
        self.bytes_torn = 0

    @property
    def duplicates(self) -> int:
        """Records that were in the database already."""
        return self._ingest.duplicates

    def start(self) -> None:
        """Begin; the database may be away."""
        self._task = asyncio.create_task(self._run(), name="metering writer")

    async def stop(self) -> None:
        """End at once; what has not arrived stays in the journal for the next start."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    async def flush(self) -> None:
        """Return when every record appended before this call is in the database. Raises Unavailable."""
        if self._task is None:
            raise Unavailable("the metering writer is not running", retry_after_s=1.0)
        goal = {segment.name: segment.size for segment in self._journal.segments()}
        try:
            async with asyncio.timeout(self._params.flush_timeout_s):
                while not self._reached(goal):
                    self._progress.clear()
                    self._wanted.set()
                    await self._progress.wait()
        except TimeoutError:
            raise Unavailable(
                f"metering records did not reach the database within {self._params.flush_timeout_s:g} s",
                retry_after_s=self._params.pause_max_s,
            ) from None

    def lag(self) -> Lag:
        """For metrics."""
        segments = self._journal.segments()
        waiting = sum(self._waiting(segment) for segment in segments)
        behind_s = self._clock() - self._behind_since if self._behind_since is not None and waiting else 0.0
        return Lag(waiting, max(0.0, behind_s), len(segments))

    def _waiting(self, segment: Segment) -> int:
        return max(0, segment.size - self._positions.get(segment.name, FIRST_POSITION))

    def _reached(self, goal: dict[str, int]) -> bool:
        there = {segment.name for segment in self._journal.segments()}
        return all(
            name not in there or self._positions.get(name, FIRST_POSITION) >= size for name, size in goal.items()
        )

    # -- the loop ----------------------------------------------------------------------------------------

    async def _run(self) -> None:
        params = self._params
        pause_s = params.pause_s
        while True:
            try:
                await self._drain()
                pause_s = params.pause_s
            except Exception as error:  # whatever it is, the records are in the journal and the next try may do
                self._failed(error, pause_s)
                # The database knows what has arrived, whatever became of the last transaction.
                self._positions.clear()
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, params.pause_max_s)
                continue
            self._progress.set()
            try:
                async with asyncio.timeout(params.interval_s):
                    await self._wanted.wait()
            except TimeoutError:
                pass
            self._wanted.clear()

    def _failed(self, error: Exception, pause_s: float) -> None:
        self.failures += 1
        now = time.monotonic()
        if now - self._complained_at >= self._params.complaint_interval_s:
            self._complained_at = now
            expected = isinstance(error, Unavailable | PositionMoved)
            log.warning(
                "metering records wait in the journal: %s; next try in %.1f s", error, pause_s, exc_info=not expected
            )

    async def _drain(self) -> None:
        """Bring over everything that is in the journal now."""
        now = self._clock()
        if now - self._months_at >= self._params.months_interval_s:
            await self._ingest.prepare_months(now)
            self._months_at = now
        for segment in self._journal.segments():
            if self._waiting(segment) and self._behind_since is None:
                self._behind_since = now
            await self._drain_segment(segment)
        self._behind_since = None

    async def _drain_segment(self, segment: Segment) -> None:
        position = self._positions.get(segment.name)
        if position is None:
            if segment.active and segment.size <= FIRST_POSITION:
                return
            position = await self._ingest.position(segment.name, FIRST_POSITION)
            self._positions[segment.name] = position
        end = "whole"
        if position < segment.size:
            end = await self._copy_segment(segment, position)
        if not segment.active:
            await self._finish(segment, end)

    async def _copy_segment(self, segment: Segment, position: int) -> str:
        """Store batches up to the segment's size; gives how its data ended."""
        params = self._params

        def read(start: int) -> Entries:
            return read_entries(segment.path, start, segment.size, params.piece_bytes, params.batch_records_max)

        end = "more"
        while end == "more":
            stored = await self._ingest.store(segment.name, position, read, params.batch_records_max, self._clock())
            position, end = stored.position, stored.end
            self.stored += stored.new
            self._positions[segment.name] = position
            self._progress.set()
        return end

    async def _finish(self, segment: Segment, end: str) -> None:
        """A segment that gets no more records has arrived."""
        left = segment.size - self._positions.get(segment.name, segment.size)
        if end == "torn":
            self.bytes_torn += left
            log.warning("the last %d bytes of journal %s are no whole record", left, segment.name)
        elif end == "damaged":
            self.bytes_torn += left
            log.error("journal %s is damaged: %d bytes cannot be read; the file is kept", segment.name, left)
        self._journal.drop(segment.name, damaged=end == "damaged")
        self._positions.pop(segment.name, None)
        await self._ingest.forget(segment.name)
