"""The lock of a data directory, and places for sockets."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import pytest

from gateway.embedded.data_directory import (
    SOCKET_PATH_MAX_BYTES,
    DataDirectoryBusy,
    DataDirectoryUnusable,
    DataLock,
    socket_directory,
)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_locked_directory_is_refused_to_a_second_and_names_the_first(tmp_path: Path) -> None:
    first, second = DataLock(tmp_path / "data"), DataLock(tmp_path / "data")
    first.acquire()
    with pytest.raises(DataDirectoryBusy, match=f"process {os.getpid()} on "):
        second.acquire()
    first.release()
    second.acquire()
    second.release()


def test_two_directories_have_two_locks(tmp_path: Path) -> None:
    locks = [DataLock(tmp_path / name) for name in ("a", "b")]
    for lock in locks:
        lock.acquire()
    for lock in locks:
        lock.release()


def test_a_path_that_cannot_be_a_directory_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataDirectoryUnusable, match="--data"):
        DataLock(tmp_path / "file" / "data").acquire()


def test_sockets_are_below_the_data_directory_in_a_private_place() -> None:
    with tempfile.TemporaryDirectory() as short:
        found = socket_directory(Path(short), "pg", "sock")
        assert found == Path(short) / "run" / "pg"
        assert mode(found) == 0o700
        found.chmod(0o755)
        socket_directory(Path(short), "pg", "sock")
        assert mode(found) == 0o700


def test_a_long_path_gets_a_short_private_place_that_a_restart_finds_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory() as short:
        monkeypatch.setattr(tempfile, "tempdir", short)
        long = tmp_path / ("x" * 100)
        found = socket_directory(long, "pg", ".s.PGSQL.5432.lock")
        assert found == socket_directory(long, "pg", ".s.PGSQL.5432.lock")
        assert found != socket_directory(tmp_path / ("y" * 100), "pg", ".s.PGSQL.5432.lock")
        assert len(os.fsencode(found / ".s.PGSQL.5432.lock")) <= SOCKET_PATH_MAX_BYTES
        assert (mode(found), mode(found.parent)) == (0o700, 0o700)


def test_a_link_in_the_place_of_the_sockets_is_refused(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory() as short:
        (Path(short) / "run").mkdir()
        (Path(short) / "run" / "pg").symlink_to(tmp_path)
        with pytest.raises(DataDirectoryUnusable, match="belongs to someone else"):
            socket_directory(Path(short), "pg", "sock")
