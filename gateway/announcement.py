"""Tells this user's command line where the gateway is: small files, readable by their owner alone.

`<data>/local.json` for whoever works in the directory, and one file a gateway below the user's state directory for
whoever works elsewhere. Both go when the gateway stops; a reader checks that the process lives, since kill -9 leaves
them behind.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

import orjson


@dataclass(frozen=True)
class Announcement:
    """What is told."""

    url: str
    token: str
    pid: int
    data: str
    #: Seconds since the epoch.
    started_at: float


def state_directory(environment: dict[str, str]) -> Path:
    """Where a user's gateways are listed (XDG base directories)."""
    base = environment.get("XDG_STATE_HOME") or ""
    root = Path(base) if base.startswith("/") else Path(environment.get("HOME") or "/nonexistent") / ".local" / "state"
    return root / "samovar" / "gateways"


def announce(announcement: Announcement, environment: dict[str, str]) -> list[Path]:
    """Write the files; those that cannot be written (no home directory, say) are left out. Gives what was written."""
    content = orjson.dumps(announcement)
    data = Path(announcement.data)
    written = []
    name = hashlib.sha256(announcement.data.encode()).hexdigest()[:16] + ".json"
    for path in (data / "local.json", state_directory(environment) / name):
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_private(path, content)
            written.append(path)
        except OSError:
            if path.parent == data:
                raise
    return written


def withdraw(paths: list[Path]) -> None:
    """Remove what `announce` wrote."""
    for path in paths:
        path.unlink(missing_ok=True)


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, in one step."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(descriptor, content)
    finally:
        os.close(descriptor)
    new.replace(path)
