"""Reads a worker's standard output and error from pipes and passes them on in batches.

A worker is never blocked by its log: the pipes are always read, and what is over the rate, or finds the gateway's
connection full, is dropped and counted.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable

from runtime.log_lines import LineCutter, LogBudget, LogRate

STREAMS = ("stdout", "stderr")
#: Lines wait this long for company.
FLUSH_S = 0.02
#: Most in one batch; with the line's own bound that stays far below a frame's.
BATCH_BYTES_MAX = 64 * 1024
BATCH_LINES_MAX = 4_096
_READ_BYTES = 64 * 1024
#: Read after the worker's end: what a pipe holds, and no more (a leftover process might go on writing).
_DRAIN_BYTES_MAX = 1024 * 1024

#: (stream, lines) -> taken; False when there is no room for them now.
Emit = Callable[[str, list[bytes]], bool]


class WorkerLog:
    """Both streams of one worker. Make it inside a running loop."""

    def __init__(self, emit: Emit, rate: LogRate) -> None:
        self._emit = emit
        self._loop = asyncio.get_running_loop()
        self._budget = LogBudget(rate, time.monotonic())
        self._read_ends: dict[str, int] = {}
        self._write_ends: list[int] = []
        self._cutters = {stream: LineCutter() for stream in STREAMS}
        self._batches: dict[str, list[bytes]] = {stream: [] for stream in STREAMS}
        self._batch_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        for stream in STREAMS:
            read_end, write_end = os.pipe2(os.O_CLOEXEC)
            os.set_blocking(read_end, False)
            self._read_ends[stream] = read_end
            self._write_ends.append(write_end)
            self._loop.add_reader(read_end, self._on_readable, stream)

    def hand_over(self) -> list[int]:
        """The write ends of standard output and error; the taker closes them."""
        ends, self._write_ends = self._write_ends, []
        return ends

    def _on_readable(self, stream: str) -> None:
        self._read(stream)

    def _read(self, stream: str) -> int:
        """Read once; the number of bytes got."""
        descriptor = self._read_ends.get(stream)
        if descriptor is None:
            return 0
        try:
            data = os.read(descriptor, _READ_BYTES)
        except BlockingIOError:
            return 0
        if data:
            self._add(stream, self._cutters[stream].feed(data))
        else:
            self._close(stream)
        return len(data)

    def _close(self, stream: str) -> None:
        descriptor = self._read_ends.pop(stream, None)
        if descriptor is not None:
            self._loop.remove_reader(descriptor)
            os.close(descriptor)
            self._add(stream, self._cutters[stream].finish())

    def _add(self, stream: str, lines: list[bytes]) -> None:
        for line in self._budget.admit(lines, time.monotonic()):
            batch = self._batches[stream]
            batch.append(line)
            self._batch_bytes += len(line)
            if self._batch_bytes >= BATCH_BYTES_MAX or len(batch) >= BATCH_LINES_MAX:
                self._flush()
        if self._timer is None and any(self._batches.values()):
            self._timer = self._loop.call_later(FLUSH_S, self._flush)

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for stream, lines in self._batches.items():
            if lines:
                if not self._emit(stream, lines):
                    self._budget.drop(lines)
                self._batches[stream] = []
        self._batch_bytes = 0

    def finish(self) -> None:
        """The worker is gone: pass on what is left in the pipes, and close them."""
        for end in self.hand_over():
            os.close(end)
        for stream in STREAMS:
            left = _DRAIN_BYTES_MAX
            while left > 0 and (got := self._read(stream)):
                left -= got
            self._close(stream)
        if note := self._budget.note():
            self._batches["stderr"].append(note)
        self._flush()
