"""The last lines of a file, read from its end."""

from __future__ import annotations

from pathlib import Path

_PIECE_BYTES = 256 * 1024


def last_lines(file: Path, count: int, bytes_max: int) -> list[bytes]:
    """At most `count` lines from the last `bytes_max` bytes, oldest first, without their ends; none for no file.

    A first line that the bound cuts is left out. Blocks; call it in a thread.
    """
    if count <= 0:
        return []
    try:
        opened = file.open("rb")
    except FileNotFoundError:
        return []
    with opened:
        start = end = opened.seek(0, 2)
        pieces: list[bytes] = []
        seen = 0
        while start > 0 and end - start < bytes_max and seen <= count:
            step = min(_PIECE_BYTES, start, bytes_max - (end - start))
            start -= step
            opened.seek(start)
            piece = opened.read(step)
            seen += piece.count(b"\n")
            pieces.append(piece)
    lines = b"".join(reversed(pieces)).splitlines()
    if start > 0:
        lines = lines[1:]
    return lines[-count:]
