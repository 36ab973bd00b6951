"""Durations and sizes as people write them: "500ms", "2m", "512MiB". Pure."""

from __future__ import annotations

import math
import re

_NUMBER_AND_UNIT = re.compile(r"\s*([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([A-Za-z]+)\s*")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {
    "B": 1,
    "kB": 1000, "KB": 1000, "MB": 1000**2, "GB": 1000**3, "TB": 1000**4,
    "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "TiB": 1024**4,
}  # fmt: skip


def seconds_of(value: object) -> float | None:
    """Seconds of "300s", "2m", "500ms", or of a plain number of seconds; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        try:
            seconds = float(value)
        except OverflowError:
            return None
        return seconds if math.isfinite(seconds) else None
    return _scaled(value, _SECONDS)


def bytes_of(value: object) -> int | None:
    """Bytes of "512MiB", "2GB", or of a plain whole number of bytes; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    scaled = _scaled(value, _BYTES)
    return None if scaled is None else int(scaled)


def _scaled(value: object, units: dict[str, float] | dict[str, int]) -> float | None:
    match = _NUMBER_AND_UNIT.fullmatch(value) if isinstance(value, str) else None
    if match is None or match.group(2) not in units:
        return None
    return float(match.group(1)) * units[match.group(2)]


def duration_text(seconds: float) -> str:
    """A bound as a person would write it: `500ms`, `24h`."""
    for unit, factor in (("h", 3600.0), ("m", 60.0), ("s", 1.0)):
        if seconds >= factor and seconds % factor == 0:
            return f"{seconds / factor:g}{unit}"
    return f"{seconds * 1000:g}ms" if 0 < seconds < 1 else f"{seconds:g}s"


def size_text(count: int) -> str:
    """A bound as a person would write it: `16MiB`."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if count >= _BYTES[unit] and count % _BYTES[unit] == 0:
            return f"{count // _BYTES[unit]}{unit}"
    return f"{count}B"
