"""The journal: where a call's record is safe before its answer ends. One write(2) a record, nothing else.

The kernel holds what was written, so kill -9 of this process loses nothing. Each process writes segments of its own
and never appends to an earlier one's, so a torn end is always the end of a file. What the writer has brought to
PostgreSQL is dropped segment by segment; until then the disk used is bounded, and beyond the bound appending fails.
"""

from __future__ import annotations

import errno
import logging
import os
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gateway.identifiers import Uuid7
from gateway.metering.record import MeteringRecord, encode
from gateway.metering.segments import (
    DAMAGED_SUFFIX,
    FIRST_POSITION,
    MAGIC,
    SUFFIX,
    Segment,
    pack_head,
)

log = logging.getLogger("gateway.metering")


class JournalFull(OSError):
    """The bound on the journal's disk is reached: PostgreSQL has been away for long."""


@dataclass(frozen=True)
class JournalParams:
    """Bounds in bytes."""

    segment_bytes: int = 32 * 1024 * 1024
    #: Some 30 million records.
    total_bytes: int = 4 * 1024 * 1024 * 1024
    #: Between two log lines about records that could not be written, seconds.
    complaint_interval_s: float = 10.0


class Journal:
    """One process's end of the journal in `directory`; the segments of earlier processes are listed beside its own."""

    def __init__(
        self,
        directory: Path,
        params: JournalParams | None = None,
        new_name: Callable[[], str] | None = None,
    ) -> None:
        """Raises OSError when the directory cannot be used."""
        self._params = params if params is not None else JournalParams()
        self._directory = directory
        self._new_name = new_name if new_name is not None else Uuid7()
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._old: dict[str, int] = {}
        for path in sorted(directory.glob("*" + SUFFIX)):
            self._old[path.name.removesuffix(SUFFIX)] = path.stat().st_size
        #: Bytes in segments that are not written to any more.
        self._old_bytes = sum(self._old.values())
        self._descriptor = -1
        self._name = ""
        self._size = 0
        self._limit = 0
        self._complained_at = float("-inf")
        #: Records that could not be written; a metric.
        self.refused = 0
        #: Records written by this process.
        self.appended = 0
        self._open_segment()

    def append(self, record: MeteringRecord) -> None:
        """Keep a record. Raises OSError (JournalFull among them); the record is then counted as refused."""
        payload = encode(record)
        entry = pack_head(len(payload), zlib.crc32(payload)) + payload
        size = self._size + len(entry)
        if size > self._limit:
            self._rotate()
            size = self._size + len(entry)
        try:
            written = os.write(self._descriptor, entry)
        except OSError as error:
            self._complain(error)
            raise
        if written != len(entry):
            self._cut_back()
        self._size = size
        self.appended += 1

    def segments(self) -> list[Segment]:
        """Every segment that is not dropped, oldest first, the active one last."""
        found = [Segment(name, self._path(name), size, False) for name, size in self._old.items()]
        if self._descriptor >= 0:
            found.append(Segment(self._name, self._path(self._name), self._size, True))
        return found

    def size(self) -> int:
        """Bytes on disk."""
        return self._old_bytes + self._size

    def drop(self, name: str, *, damaged: bool = False) -> None:
        """A segment that is not active has arrived in the database; a damaged one is put aside instead of removed."""
        size = self._old.pop(name, 0)
        self._old_bytes -= size
        path = self._path(name)
        if damaged:
            path.rename(path.with_suffix(DAMAGED_SUFFIX))
        else:
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """No more records; what is there stays for the next process. An empty segment goes."""
        if self._descriptor < 0:
            return
        os.close(self._descriptor)
        self._descriptor = -1
        self._limit = -1
        if self._size <= FIRST_POSITION:
            self._path(self._name).unlink(missing_ok=True)
        else:
            self._old[self._name] = self._size
            self._old_bytes += self._size
        self._size = 0

    def _path(self, name: str) -> Path:
        return self._directory / (name + SUFFIX)

    def _open_segment(self) -> None:
        name = self._new_name()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        descriptor = os.open(self._path(name), flags, 0o600)
        try:
            written = os.write(descriptor, MAGIC)
            if written != len(MAGIC):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            os.close(descriptor)
            self._path(name).unlink(missing_ok=True)
            raise
        self._descriptor, self._name, self._size = descriptor, name, FIRST_POSITION
        self._limit = self._params.segment_bytes

    def _rotate(self) -> None:
        """Begin the next segment. Raises OSError, leaving the present one in use."""
        if self._descriptor < 0:
            self.refused += 1
            raise OSError(errno.EBADF, "the journal is closed")
        try:
            if self.size() + self._params.segment_bytes > self._params.total_bytes:
                raise JournalFull(
                    errno.ENOSPC, f"the metering journal holds its {self._params.total_bytes} bytes already"
                )
            before = self._descriptor, self._name, self._size
            self._open_segment()
        except OSError as error:
            self._complain(error)
            raise
        descriptor, name, size = before
        os.close(descriptor)
        self._old[name] = size
        self._old_bytes += size

    def _cut_back(self) -> None:
        """The disk took a part of an entry: take it back, so that whole entries may follow. Raises OSError."""
        os.ftruncate(self._descriptor, self._size)
        error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._complain(error)
        raise error

    def _complain(self, error: OSError) -> None:
        self.refused += 1
        now = time.monotonic()
        if now - self._complained_at >= self._params.complaint_interval_s:
            self._complained_at = now
            log.error("metering records are lost: %s (%d so far)", error.strerror or error, self.refused)
