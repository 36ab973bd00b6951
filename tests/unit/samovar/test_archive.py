"""Packing a folder: the same bytes for the same content, nothing that does not belong, nothing from outside."""

from __future__ import annotations

import io
import os
import socket
import tarfile
import tempfile
from pathlib import Path

import pytest

from samovar import archive
from samovar.problems import WrongUsage


def packed(folder: Path) -> tuple[bytes, archive.Packed]:
    file = io.BytesIO()
    result = archive.pack(folder, file)
    return file.getvalue(), result


def names(folder: Path) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(packed(folder)[0])) as tar:
        return tar.getnames()


def test_the_same_content_gives_the_same_bytes_wherever_and_whenever_it_is_packed(tmp_path: Path) -> None:
    folders = []
    for place, order in (("one", ["b.py", "a.py", "function.toml"]), ("two", ["function.toml", "a.py", "b.py"])):
        folder = tmp_path / place / "f"
        (folder / "sub").mkdir(parents=True)
        for name in order:
            (folder / name).write_text(f"# {name}\n")
            os.utime(folder / name, (1, len(folders) * 1000))
        (folder / "sub" / "ü.txt").write_text("x")
        folders.append(folder)
    folders[1].chmod(0o700)
    (folders[1] / "a.py").chmod(0o600)
    first, second = map(packed, folders)
    assert first == second
    assert first[1].files == 4
    assert first[1].archive_bytes == len(first[0])
    (folders[1] / "a.py").write_text("# other\n")
    assert packed(folders[1])[1].digest != first[1].digest


def test_entries_are_plain_files_without_owners_or_times(function_folder: Path) -> None:
    (function_folder / "run.sh").write_text("#!/bin/sh\n")
    (function_folder / "run.sh").chmod(0o700)
    with tarfile.open(fileobj=io.BytesIO(packed(function_folder)[0])) as tar:
        members = {m.name: m for m in tar.getmembers()}
    assert list(members) == ["function.toml", "handler.py", "run.sh"]
    for member in members.values():
        assert member.isreg()
        assert (member.uid, member.gid, member.uname, member.mtime) == (0, 0, "", archive.FIXED_TIME_S)
    assert members["run.sh"].mode == 0o755
    assert members["handler.py"].mode == 0o644


def test_what_tools_leave_behind_is_not_packed(function_folder: Path) -> None:
    for name in (
        ".git/config", "__pycache__/x.pyc", "sub/__pycache__/y.pyc", ".venv/bin/python", "node_modules/a/b.js",
        "old.pyc", "handler.py~", ".handler.py.swp", ".#lock", "#auto#", ".samovar/token", ".DS_Store",
    ):  # fmt: skip
        path = function_folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    (function_folder / ".env").write_text("kept: only what is listed is left out")
    assert names(function_folder) == [".env", "function.toml", "handler.py"]


@pytest.mark.parametrize(
    ("pattern", "left"),
    [
        ("*.csv", ["data/keep.txt", "data/raw/keep.txt"]),
        ("data/", []),
        ("/data/raw", ["data/big.csv", "data/keep.txt"]),
        ("data/*", []),
        ("data/*.csv", ["data/keep.txt", "data/raw/big.csv", "data/raw/keep.txt"]),
        ("big.csv/", ["data/big.csv", "data/keep.txt", "data/raw/big.csv", "data/raw/keep.txt"]),
        ("# only a comment\n\n  keep.txt  ", ["data/big.csv", "data/raw/big.csv"]),
    ],
)
def test_patterns_of_the_ignore_file(function_folder: Path, pattern: str, left: list[str]) -> None:
    for name in ("data/big.csv", "data/keep.txt", "data/raw/big.csv", "data/raw/keep.txt"):
        path = function_folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    (function_folder / ".samovarignore").write_text(pattern + "\n")
    assert names(function_folder) == [*left, "function.toml", "handler.py"]


def test_exceptions_in_the_ignore_file_are_refused_with_their_line(function_folder: Path) -> None:
    (function_folder / ".samovarignore").write_text("*.csv\n!keep.csv\n")
    with pytest.raises(WrongUsage, match=r"line 2: '!keep\.csv'"):
        packed(function_folder)


def test_a_link_to_a_file_of_the_folder_is_packed_as_that_file(function_folder: Path) -> None:
    (function_folder / "alias.py").symlink_to("handler.py")
    with tarfile.open(fileobj=io.BytesIO(packed(function_folder)[0])) as tar:
        member = tar.getmember("alias.py")
        assert member.isreg()
        assert tar.extractfile(member).read() == (function_folder / "handler.py").read_bytes()  # type: ignore[union-attr]


@pytest.mark.parametrize("target", ["/etc/hostname", "../outside.txt", "nowhere", "loop"])
def test_a_link_that_leaves_the_folder_or_leads_nowhere_is_refused(function_folder: Path, target: str) -> None:
    (function_folder.parent / "outside.txt").write_text("secret")
    (function_folder / "loop").symlink_to(target)
    with pytest.raises(WrongUsage, match="loop: a symbolic link that leaves the folder"):
        packed(function_folder)


def test_a_link_to_a_folder_is_refused(function_folder: Path) -> None:
    (function_folder / "sub").mkdir()
    (function_folder / "again").symlink_to("sub")
    with pytest.raises(WrongUsage, match="again: a symbolic link to a folder"):
        packed(function_folder)


def test_a_socket_a_pipe_and_a_device_are_refused_by_name(function_folder: Path) -> None:
    os.mkfifo(function_folder / "pipe")
    with pytest.raises(WrongUsage, match="pipe: a named pipe cannot be packed"):
        packed(function_folder)
    (function_folder / "pipe").unlink()
    with tempfile.TemporaryDirectory() as short, socket.socket(socket.AF_UNIX) as sock:
        sock.bind(f"{short}/s")
        (Path(short) / "s").rename(function_folder / "sock")
        with pytest.raises(WrongUsage, match="sock: a socket cannot be packed"):
            packed(function_folder)


def test_too_much_is_refused_before_anything_is_sent(function_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MAX_FILES", 1)
    with pytest.raises(WrongUsage, match="more than 1 files"):
        packed(function_folder)


def test_a_folder_without_a_manifest_is_not_a_functions_folder(tmp_path: Path) -> None:
    (tmp_path / "handler.py").write_text("")
    with pytest.raises(WrongUsage, match=r"no function\.toml"):
        packed(tmp_path)
    with pytest.raises(WrongUsage, match="not a folder"):
        packed(tmp_path / "handler.py")
