"""The journal's files: how an entry is framed, and reading entries back from a file whose end may be torn.

A segment starts with `MAGIC`; an entry is its payload's length and CRC-32 (four bytes each, big-endian) and the
payload. A position is a byte offset in a segment and always lies between two entries.
"""

from __future__ import annotations

import os
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

MAGIC = b"SMVJ0001"
SUFFIX = ".journal"
#: A damaged segment is kept under this suffix for whoever wants to look.
DAMAGED_SUFFIX = ".damaged"
FIRST_POSITION = len(MAGIC)
#: No record comes near it; a greater length is damage.
ENTRY_MAX_BYTES = 16 * 1024

_HEAD = struct.Struct(">II")
HEAD_BYTES = _HEAD.size
pack_head = _HEAD.pack
_unpack_head = _HEAD.unpack_from


@dataclass(frozen=True)
class Segment:
    """One file of the journal. `size`: bytes of whole entries so far; `active`: more will come."""

    name: str
    path: Path
    size: int
    active: bool


class Entries(NamedTuple):
    """What was read: payloads, the position after the last of them, and how the data ended.

    `end`: "more" (the limit of records was reached), "whole", "torn" (a piece of an entry), "damaged" (no entry).
    """

    payloads: list[bytes]
    position: int
    end: str


def frame(payload: bytes) -> bytes:
    """The bytes of an entry."""
    return pack_head(len(payload), zlib.crc32(payload)) + payload


def parse(data: bytes, position: int, records_max: int) -> Entries:
    """Entries in `data`, which was read from `position` on; at most `records_max` of them."""
    payloads: list[bytes] = []
    append = payloads.append
    crc32 = zlib.crc32
    offset, size = 0, len(data)
    end = "whole"
    while offset < size:
        if len(payloads) >= records_max:
            end = "more"
            break
        start = offset + HEAD_BYTES
        if start > size:
            end = "torn"
            break
        length, checksum = _unpack_head(data, offset)
        if not 0 < length <= ENTRY_MAX_BYTES:
            end = "damaged"
            break
        stop = start + length
        if stop > size:
            end = "torn"
            break
        payload = data[start:stop]
        if crc32(payload) != checksum:
            end = "damaged"
            break
        append(payload)
        offset = stop
    return Entries(payloads, position + offset, end)


def read_entries(path: Path, position: int, size: int, bytes_max: int, records_max: int) -> Entries:
    """Entries of a segment from `position`, at most to `size`. Raises OSError.

    A piece of an entry at the end of what `bytes_max` allowed is "more", not "torn".
    """
    with path.open("rb", buffering=0) as file:
        if position <= FIRST_POSITION:
            position = FIRST_POSITION
            head = file.read(FIRST_POSITION)
            if head != MAGIC:
                return Entries([], position, "torn" if MAGIC.startswith(head) else "damaged")
        wanted = max(0, min(size - position, bytes_max))
        data = os.pread(file.fileno(), wanted, position)
    entries = parse(data, position, records_max)
    if entries.end in {"torn", "whole"} and position + len(data) < size and len(data) == wanted:
        if not entries.payloads and bytes_max < HEAD_BYTES + ENTRY_MAX_BYTES:
            return read_entries(path, position, size, HEAD_BYTES + ENTRY_MAX_BYTES, records_max)
        return entries._replace(end="more")
    return entries
