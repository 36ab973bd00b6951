"""A function's folder as the archive that a deploy uploads: the same folder gives the same bytes.

Order, owners, times and modes are fixed, so equal content has an equal digest whoever packs it. What would not be the
folder's own content any more (links that lead out of it, sockets, devices) is refused, with the name that is at fault.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import stat
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO

from samovar.problems import WrongUsage

MANIFEST = "function.toml"
IGNORE_FILE = ".samovarignore"

#: Guards against packing a home directory by mistake; the gateway has bounds of its own.
MAX_FILES = 10_000
MAX_BYTES = 512 * 1024 * 1024
#: Deepest folder that is looked into.
MAX_DEPTH = 32
#: 1980-01-01 UTC: before it, some tools refuse to handle files.
FIXED_TIME_S = 315_532_800

#: Never part of a function: version control, what tools leave behind, other environments, our own data.
ALWAYS_SKIPPED = (
    ".git/", ".hg/", ".svn/", "__pycache__/", "*.py[co]", ".venv/", "node_modules/", ".samovar/",
    ".mypy_cache/", ".ruff_cache/", ".pytest_cache/", ".ipynb_checkpoints/", ".idea/", ".vscode/",
    "*~", "*.sw[op]", ".#*", "#*#", ".DS_Store", IGNORE_FILE,
)  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """One file to pack: its name in the archive and where it is."""

    name: str
    path: Path
    size_bytes: int
    executable: bool


@dataclass(frozen=True)
class Packed:
    """What was written."""

    files: int
    #: Of the files themselves.
    content_bytes: int
    archive_bytes: int
    #: SHA-256 of the uncompressed archive, hexadecimal.
    digest: str


class Ignored:
    """Patterns of names to leave out.

    One a line: without a slash it fits a name at any depth, with one the whole path from the folder; a slash at the
    end fits folders only. `*`, `?` and `[..]` stay within a name.
    """

    def __init__(self, patterns: tuple[str, ...]) -> None:
        self._rules = [_rule(pattern) for pattern in patterns]

    def fits(self, name: str, is_folder: bool) -> bool:
        """Whether this path (relative, with "/") is left out."""
        parts = name.split("/")
        return any(
            (is_folder or not folders_only)
            and (fnmatchcase(parts[-1], steps[0]) if anywhere else _steps_fit(parts, steps))
            for steps, anywhere, folders_only in self._rules
        )


def read_ignored(folder: Path) -> Ignored:
    """The built-in patterns and those of the folder's `.samovarignore`. Raises WrongUsage."""
    patterns: list[str] = []
    try:
        lines = (folder / IGNORE_FILE).read_text("utf-8").splitlines()
    except FileNotFoundError:
        lines = []
    except (OSError, UnicodeDecodeError) as error:
        raise WrongUsage(f"{folder / IGNORE_FILE} cannot be read: {error}") from error
    for number, line in enumerate(lines, 1):
        pattern = line.strip()
        if pattern.startswith("!"):
            raise WrongUsage(
                f"{IGNORE_FILE} line {number}: {pattern!r}: there are no exceptions with '!'",
                hint="list what is to be left out only",
            )
        if pattern and not pattern.startswith("#"):
            patterns.append(pattern)
    return Ignored((*ALWAYS_SKIPPED, *patterns))


def entries(folder: Path) -> list[Entry]:
    """What would be packed, in archive order. Raises WrongUsage for what cannot be."""
    if not folder.is_dir():
        raise WrongUsage(f"{folder} is not a folder", hint="give the folder that holds function.toml")
    root = folder.resolve()
    found = []
    total = 0
    for entry in _walk(root, root, "", read_ignored(root), 0):
        found.append(entry)
        total += entry.size_bytes
        if len(found) > MAX_FILES or total > MAX_BYTES:
            raise WrongUsage(
                f"{folder} holds more than {MAX_FILES} files or {MAX_BYTES // 1024**2} MiB",
                hint=f"is it the right folder? Leave data out with a {IGNORE_FILE}",
            )
    if not any(entry.name == MANIFEST for entry in found):
        raise WrongUsage(f"{folder} has no {MANIFEST}", hint="`samovar init NAME` makes a folder with one")
    return sorted(found, key=lambda entry: os.fsencode(entry.name))


def pack(folder: Path, file: IO[bytes]) -> Packed:
    """Write the folder's archive into `file` (gzip tar). Raises WrongUsage."""
    content = entries(folder)
    start = file.tell()
    with gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=6, mtime=0) as squeezed:
        watched = _Digesting(squeezed)
        with tarfile.open(fileobj=watched, mode="w|", format=tarfile.PAX_FORMAT, encoding="utf-8") as tar:  # type: ignore[call-overload]
            for entry in content:
                _add(tar, entry)
    return Packed(
        files=len(content),
        content_bytes=sum(entry.size_bytes for entry in content),
        archive_bytes=file.tell() - start,
        digest=watched.sha256.hexdigest(),
    )


class _Digesting:
    """Passes bytes on and keeps their digest."""

    def __init__(self, target: gzip.GzipFile) -> None:
        self._target = target
        self.sha256 = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self.sha256.update(data)
        return self._target.write(data)


def _walk(root: Path, folder: Path, prefix: str, ignored: Ignored, depth: int) -> Iterator[Entry]:
    if depth > MAX_DEPTH:
        raise WrongUsage(f"{prefix}: folders more than {MAX_DEPTH} deep are not packed")
    try:
        with os.scandir(folder) as scan:
            items = list(scan)
    except OSError as error:
        raise WrongUsage(f"{folder} cannot be read: {error.strerror}") from error
    for item in items:
        name = prefix + item.name
        is_folder = item.is_dir(follow_symlinks=False)
        if ignored.fits(name, is_folder):
            continue
        if is_folder:
            yield from _walk(root, Path(item.path), name + "/", ignored, depth + 1)
        else:
            yield _entry(root, name, Path(item.path))


def _entry(root: Path, name: str, path: Path) -> Entry:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError as error:
        raise WrongUsage(f"{name!r}: the file's name is not UTF-8", hint="rename it") from error
    is_link = path.is_symlink()
    if is_link and not _stays_within(root, path):
        raise WrongUsage(
            f"{name}: a symbolic link that leaves the folder",
            hint=f"copy what it points to, or leave it out with a {IGNORE_FILE}",
        )
    try:
        status = path.stat()
    except OSError as error:
        raise WrongUsage(f"{name} cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(status.st_mode):
        what = _kind(status.st_mode) if not is_link else f"a symbolic link to {_kind(status.st_mode)}"
        raise WrongUsage(f"{name}: {what} cannot be packed, only files", hint=f"leave it out with a {IGNORE_FILE}")
    return Entry(name, path, status.st_size, bool(status.st_mode & 0o100))


def _stays_within(root: Path, link: Path) -> bool:
    try:
        return link.resolve(strict=True).is_relative_to(root)
    except (OSError, RuntimeError):  # dangling, or a loop
        return False


def _kind(mode: int) -> str:
    kinds = (
        (stat.S_ISDIR, "a folder"), (stat.S_ISSOCK, "a socket"), (stat.S_ISFIFO, "a named pipe"),
        (stat.S_ISBLK, "a device"), (stat.S_ISCHR, "a device"),
    )  # fmt: skip
    return next((words for test, words in kinds if test(mode)), "a special file")


def _add(tar: tarfile.TarFile, entry: Entry) -> None:
    info = tarfile.TarInfo(entry.name)
    info.size = entry.size_bytes
    info.mode = 0o755 if entry.executable else 0o644
    info.mtime = FIXED_TIME_S
    try:
        with entry.path.open("rb") as file:
            tar.addfile(info, file)
    except OSError as error:  # gone, not readable, or shorter than it was a moment ago
        raise WrongUsage(f"{entry.name} cannot be packed: {error.strerror or error}", hint="try again") from error


def _rule(pattern: str) -> tuple[list[str], bool, bool]:
    body = pattern.rstrip("/")
    return body.strip("/").split("/"), "/" not in body, pattern.endswith("/")


def _steps_fit(parts: list[str], steps: list[str]) -> bool:
    return len(parts) == len(steps) and all(map(fnmatchcase, parts, steps))
