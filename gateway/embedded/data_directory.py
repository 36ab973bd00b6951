"""One gateway, one data directory: a lock that ends with its process, and short private places for sockets."""

from __future__ import annotations

import fcntl
import hashlib
import os
import socket
import stat
import tempfile
from pathlib import Path

#: sockaddr_un holds 108 bytes, the closing NUL included.
SOCKET_PATH_MAX_BYTES = 107


class DataDirectoryBusy(Exception):
    """Another process uses the directory; the message says which."""


class DataDirectoryUnusable(Exception):
    """The directory cannot be made, written or reached; the message says what to do."""


class DataLock:
    """Holds a data directory for this process. The kernel lets go when the process ends, however it ends."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "lock"
        self._descriptor = -1

    def acquire(self) -> None:
        """Take the lock, making the directory if need be. Raises DataDirectoryBusy, DataDirectoryUnusable."""
        directory = self._path.parent
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise DataDirectoryUnusable(
                f"the data directory {directory} cannot be used: {error.strerror}; "
                "give another one with --data, or make it yours"
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(descriptor, 200, 0).decode("utf-8", "replace").strip() or "unknown"
            os.close(descriptor)
            raise DataDirectoryBusy(
                f"the data directory {directory} is in use by another gateway ({holder}); "
                "stop that one or give another directory with --data"
            ) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        self._descriptor = descriptor

    def release(self) -> None:
        """Let go. The file stays: removing it would let two processes hold two locks of one name."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def socket_directory(data: Path, name: str, longest_file: str) -> Path:
    """A private directory for the sockets of `name`: below `data` when the path of `longest_file` fits there.

    Else one below the directory for temporary files whose name follows from `data`, so that a restart after kill -9
    finds it again. Raises DataDirectoryUnusable when someone else has taken that name.
    """
    wanted = data / "run" / name
    if len(os.fsencode(wanted / longest_file)) > SOCKET_PATH_MAX_BYTES:
        digest = hashlib.sha256(os.fsencode(data.absolute())).hexdigest()[:12]
        wanted = Path(tempfile.gettempdir()) / f"samovar-{os.geteuid()}-{digest}" / name
        if len(os.fsencode(wanted / longest_file)) > SOCKET_PATH_MAX_BYTES:
            wanted = Path("/tmp") / wanted.parent.name / name
        _make_private(wanted.parent)
    _make_private(wanted)
    return wanted


def remove_socket_directory(directory: Path) -> None:
    """What `socket_directory` made, after a clean stop; whatever is still used by others stays."""
    try:
        for path in directory.iterdir():
            path.unlink()
        directory.rmdir()
        directory.parent.rmdir()
    except OSError:
        pass


def _make_private(directory: Path) -> None:
    directory.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        directory.mkdir(mode=0o700)
    except FileExistsError:
        found = directory.lstat()
        ours = os.geteuid() in {0, found.st_uid}
        if not stat.S_ISDIR(found.st_mode) or not ours:
            raise DataDirectoryUnusable(f"{directory} belongs to someone else; remove it") from None
        if stat.S_IMODE(found.st_mode) != 0o700:
            directory.chmod(0o700)
