"""Private directories for workers, made before they start and removed when they are gone."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

#: Says that all in this directory is an agent's to remove.
_MARK = ".samovar-scratch"


class Scratch:
    """The directory of one agent's workers."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def prepare(self) -> None:
        """Make the root, or clear what an agent that was killed left in it. Raises OSError.

        A directory that holds something and was not made here is left as it is.
        """
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        mark = self.root / _MARK
        if mark.exists():
            for entry in self.root.iterdir():
                if entry != mark:
                    remove(entry)
        elif not any(self.root.iterdir()):
            mark.touch()

    def path_for(self, worker: str) -> Path:
        """Where a worker's directory is when nobody says otherwise. Raises ValueError for a name that is no name."""
        if not worker or "/" in worker or worker.startswith("."):
            raise ValueError(f"worker {worker!r}: a name has no '/' and does not begin with '.'")
        return self.root / worker


def make(directory: Path) -> None:
    """A new private directory. Raises OSError, FileExistsError when it is there already."""
    directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory.mkdir(mode=0o700)


def remove(directory: Path) -> None:
    """Remove a file or a directory with all that is below it, whatever modes a handler gave it; never raises."""
    if directory.is_dir() and not directory.is_symlink():
        shutil.rmtree(directory, onerror=_open_up_and_retry)
    else:
        directory.unlink(missing_ok=True)


def _open_up_and_retry(_function: Callable[..., object], path: str, _error: object) -> None:
    """Give ourselves the right to remove this entry, and try once more."""
    try:
        os.chmod(os.path.dirname(path), stat.S_IRWXU)  # noqa: PTH101, PTH120
        if os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114
            os.chmod(path, stat.S_IRWXU)  # noqa: PTH101
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)  # noqa: PTH108
    except OSError:
        pass  # it goes when the next agent prepares the root
