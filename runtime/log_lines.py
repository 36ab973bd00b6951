"""Cuts what a worker writes into bounded lines, within a bounded rate. Pure: bytes and times in, lines out."""

from __future__ import annotations

from dataclasses import dataclass

#: Longest line kept; the rest of a longer one is dropped up to its end.
LINE_BYTES_MAX = 16 * 1024
CUT_NOTE = " … [cut]".encode()


class LineCutter:
    """Turns pieces of one stream into lines without their line ends."""

    def __init__(self, limit: int = LINE_BYTES_MAX) -> None:
        self._limit = limit
        self._partial = bytearray()
        #: Inside the dropped rest of a line that was cut.
        self._skipping = False

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that this piece completes or fills up."""
        lines: list[bytes] = []
        start = 0
        while start < len(data):
            end = data.find(b"\n", start)
            stop = len(data) if end < 0 else end
            if not self._skipping:
                room = self._limit - len(self._partial)
                self._partial += data[start : min(stop, start + room)]
                if stop - start > room:
                    lines.append(bytes(self._partial) + CUT_NOTE)
                    self._partial.clear()
                    self._skipping = True
                elif end >= 0:
                    lines.append(bytes(self._partial).rstrip(b"\r"))
                    self._partial.clear()
            if end >= 0:
                self._skipping = False
            start = stop + 1
        return lines

    def finish(self) -> list[bytes]:
        """The last line, when the stream ended in the middle of one."""
        lines = [bytes(self._partial)] if self._partial else []
        self._partial.clear()
        return lines


@dataclass(frozen=True)
class LogRate:
    """How much one worker may write to its log."""

    bytes_per_s: int = 1024 * 1024
    burst_bytes: int = 4 * 1024 * 1024


class LogBudget:
    """What one worker may still write now; what is beyond is dropped and counted, so that writing never blocks."""

    def __init__(self, rate: LogRate, now: float) -> None:
        self._rate = rate
        self._tokens = float(rate.burst_bytes)
        self._at = now
        self._dropped = 0

    def admit(self, lines: list[bytes], now: float) -> list[bytes]:
        """Those of the lines that are within the rate, after a note about those dropped before them."""
        rate = self._rate
        self._tokens = min(rate.burst_bytes, self._tokens + (now - self._at) * rate.bytes_per_s)
        self._at = now
        admitted: list[bytes] = []
        for line in lines:
            if self._tokens > 0:
                if self._dropped:
                    admitted.append(self.note())
                self._tokens -= len(line) + 1
                admitted.append(line)
            else:
                self._dropped += len(line) + 1
        return admitted

    def drop(self, lines: list[bytes]) -> None:
        """Count these as dropped: there is nowhere to put them."""
        self._dropped += sum(len(line) + 1 for line in lines)

    def note(self) -> bytes:
        """The line that says how much was dropped; empty when nothing was. Starts the count anew."""
        dropped, self._dropped = self._dropped, 0
        return f"… [{dropped} bytes of log dropped]".encode() if dropped else b""
