"""Uploaded code on disk, by digest: unpacked beside its place, checked, renamed into it, never changed again.

The digest is of the content (names, executable bits, bytes), not of the archive, so the same folder packed twice is
one bundle. Files are read-only; folders stay writable for their owner, so that `rm -rf` of a data directory works.
`function.toml` stands at the root of the archive; a single folder around everything is not stripped, since the
handler's module would then be found under two names.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from gateway.deploy.archive import ArchiveLimits, entries_of
from gateway.errors import BadRequest, Unavailable

MANIFEST = "function.toml"
#: Names of folders that are being filled.
UNFINISHED = ".unpacking-"
#: An unfinished folder older than this belongs to a gateway that was killed.
LEFTOVER_AGE_S = 24 * 3600.0
_DIGEST = re.compile(r"[0-9a-f]{64}")

T = TypeVar("T")


@dataclass(frozen=True)
class Bundle:
    """One bundle on disk. `bytes`: of its files together."""

    digest: str
    path: Path
    files: int
    bytes: int


class BundleStore:
    """All bundles of a data directory."""

    def __init__(self, root: Path, limits: ArchiveLimits) -> None:
        self._root = root
        self._limits = limits
        self._swept = False

    def path(self, digest: str) -> Path:
        """Where a bundle is. Raises ValueError for what is no digest."""
        if not _DIGEST.fullmatch(digest):
            raise ValueError(f"{digest!r} is not a bundle's digest")
        return self._root / digest

    async def unpack(self, upload: Path, accept: Callable[[Path], T]) -> tuple[Bundle, T]:
        """Store the archive in the file `upload`, unless `accept(unpacked folder)` raises; gives what that returned.

        Runs in a thread. Raises BadRequest for a bad archive, whatever `accept` raises, and Unavailable when the
        disk does not take it; nothing is left on disk then.
        """
        return await asyncio.to_thread(self._unpack, upload, accept)

    def _unpack(self, upload: Path, accept: Callable[[Path], T]) -> tuple[Bundle, T]:
        try:
            self._root.mkdir(parents=True, exist_ok=True)
            self._sweep()
            folder = Path(tempfile.mkdtemp(prefix=UNFINISHED, dir=self._root))
        except OSError as error:
            raise Unavailable(f"bundles cannot be stored: {error.strerror}", retry_after_s=10.0) from error
        try:
            bundle = self._fill(upload, folder)
            accepted = accept(folder)
            _settle(folder, bundle.path)
            return bundle, accepted
        except OSError as error:
            raise Unavailable(f"the bundle cannot be stored: {error.strerror}", retry_after_s=10.0) from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _fill(self, upload: Path, folder: Path) -> Bundle:
        listing: list[bytes] = []
        total = 0
        with upload.open("rb") as file:
            for entry in entries_of(file, self._limits):
                if entry.is_folder:
                    continue  # folders come into being with their files; empty ones are not kept
                content = _write(folder / entry.name, entry.pieces, entry.executable)
                total += entry.size_bytes
                mode = "x" if entry.executable else "-"
                line = f"{entry.name}\0{mode}\0{entry.size_bytes}\0{content}\n"
                listing.append(line.encode())
        if not (folder / MANIFEST).is_file():
            raise BadRequest(_without_manifest(folder))
        digest = hashlib.sha256(b"".join(sorted(listing))).hexdigest()
        return Bundle(digest, self._root / digest, len(listing), total)

    def _sweep(self) -> None:
        """Once a process: remove what a killed gateway left half-filled."""
        if self._swept:
            return
        self._swept = True
        for folder in self._root.glob(UNFINISHED + "*"):
            try:
                if time.time() - folder.stat().st_mtime > LEFTOVER_AGE_S:
                    shutil.rmtree(folder, ignore_errors=True)
            except OSError:
                continue  # another gateway was quicker


def _write(path: Path, pieces: Iterator[bytes], executable: bool) -> str:
    """Write one file and give its SHA-256. It must not be there yet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        for piece in pieces:
            digest.update(piece)
            file.write(piece)
        os.fchmod(descriptor, 0o555 if executable else 0o444)
    return digest.hexdigest()


def _settle(folder: Path, place: Path) -> None:
    """Rename into place, unless somebody else has put the same content there."""
    folder.chmod(0o755)
    try:
        folder.rename(place)
    except OSError:
        if not place.is_dir():
            raise


def _without_manifest(folder: Path) -> str:
    below = sorted(path.parent.name for path in folder.glob(f"*/{MANIFEST}"))
    if below:
        return f"archive: {MANIFEST} is not at its root but in {below[0]!r}; pack the content of that folder"
    return f"archive: has no {MANIFEST} at its root"
