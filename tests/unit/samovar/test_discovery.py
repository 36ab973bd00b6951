"""Which gateway a command speaks to: what is said, this directory's, one above, the newest; and whom it believes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from samovar.discovery import Target, find_target, read_announcement
from samovar.problems import Unreachable, WrongUsage

Announce = Callable[..., Path]


@pytest.fixture
def warnings() -> list[str]:
    return []


def found(
    tmp_path: Path, warnings: list[str], url: str | None = None, token: str | None = None, at: str = ""
) -> Target:
    cwd = tmp_path / at
    cwd.mkdir(parents=True, exist_ok=True)
    return find_target(url, token, cwd, {"XDG_STATE_HOME": str(tmp_path / "state")}, warnings.append)


def state_file(tmp_path: Path, name: str) -> Path:
    return tmp_path / "state" / "samovar" / "gateways" / name


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_what_is_said_comes_first(tmp_path: Path, announce: Announce, warnings: list[str]) -> None:
    announce(tmp_path / ".samovar" / "local.json", "http://127.0.0.1:1", "local")
    target = found(tmp_path, warnings, "https://gateway.example/", "mine")
    assert (target.url, target.token) == ("https://gateway.example", "mine")


def test_this_directorys_gateway_before_one_above_before_the_newest(
    tmp_path: Path, announce: Announce, warnings: list[str]
) -> None:
    announce(state_file(tmp_path, "old.json"), "http://127.0.0.1:3", started_at=100.0)
    announce(state_file(tmp_path, "new.json"), "http://127.0.0.1:4", started_at=200.0)
    assert found(tmp_path, warnings, at="a/b").url == "http://127.0.0.1:4"
    announce(tmp_path / "a" / ".samovar" / "local.json", "http://127.0.0.1:2")
    assert found(tmp_path, warnings, at="a/b").url == "http://127.0.0.1:2"
    announce(tmp_path / "a" / "b" / ".samovar" / "local.json", "http://127.0.0.1:1")
    assert found(tmp_path, warnings, at="a/b").url == "http://127.0.0.1:1"
    assert warnings == []


def test_a_gateway_that_is_gone_is_passed_over(tmp_path: Path, announce: Announce, warnings: list[str]) -> None:
    announce(tmp_path / ".samovar" / "local.json", "http://127.0.0.1:1", pid=dead_pid())
    announce(state_file(tmp_path, "gone.json"), "http://127.0.0.1:2", pid=dead_pid(), started_at=9e9)
    announce(state_file(tmp_path, "here.json"), "http://127.0.0.1:3", started_at=1.0)
    assert found(tmp_path, warnings).url == "http://127.0.0.1:3"


def test_without_any_gateway_it_says_how_to_get_one(tmp_path: Path, warnings: list[str]) -> None:
    with pytest.raises(Unreachable) as problem:
        found(tmp_path, warnings)
    assert "samovar up" in problem.value.hint
    assert "SAMOVAR_URL" in problem.value.hint


def test_a_local_gateways_url_alone_brings_its_token(tmp_path: Path, announce: Announce, warnings: list[str]) -> None:
    announce(state_file(tmp_path, "a.json"), "http://127.0.0.1:7001", "token-a", started_at=1.0)
    announce(state_file(tmp_path, "b.json"), "http://127.0.0.1:7002", "token-b", started_at=2.0)
    assert found(tmp_path, warnings, "http://localhost:7001/").token == "token-a"
    assert found(tmp_path, warnings, "http://127.0.0.1:7002").token == "token-b"
    assert found(tmp_path, warnings, "http://127.0.0.1:7003").token == ""
    assert found(tmp_path, warnings, "http://elsewhere.example:7001").token == ""


def test_a_given_token_goes_to_the_local_gateway(tmp_path: Path, announce: Announce, warnings: list[str]) -> None:
    announce(tmp_path / ".samovar" / "local.json", "http://127.0.0.1:1", "local")
    target = found(tmp_path, warnings, token="mine")
    assert (target.url, target.token) == ("http://127.0.0.1:1", "mine")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o666])
def test_a_file_that_others_can_read_or_write_is_not_believed(
    tmp_path: Path, announce: Announce, warnings: list[str], mode: int
) -> None:
    path = announce(tmp_path / ".samovar" / "local.json", "http://127.0.0.1:1", mode=mode)
    assert read_announcement(path, warnings.append) is None
    assert len(warnings) == 1
    assert "others may" in warnings[0]


def test_a_file_of_another_user_is_not_believed(
    tmp_path: Path, announce: Announce, warnings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = announce(tmp_path / ".samovar" / "local.json", "http://127.0.0.1:1")
    other = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)
    assert read_announcement(path, warnings.append) is None
    assert "another user" in warnings[0]


def test_a_link_to_a_file_is_not_followed(tmp_path: Path, announce: Announce, warnings: list[str]) -> None:
    real = announce(tmp_path / "real.json", "http://127.0.0.1:1")
    (tmp_path / "link.json").symlink_to(real)
    assert read_announcement(tmp_path / "link.json", warnings.append) is None


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"url": "x"}', "\x00", '{"url": 1, "pid": "p"}'])
def test_a_file_that_is_no_announcement_is_passed_over_with_a_warning(
    tmp_path: Path, warnings: list[str], content: str
) -> None:
    path = tmp_path / "local.json"
    path.write_text(content)
    path.chmod(0o600)
    assert read_announcement(path, warnings.append) is None
    assert len(warnings) == 1


@pytest.mark.parametrize("url", ["gateway", "ftp://x", "http://", "http://h/?q=1"])
def test_an_address_that_is_none_is_wrong_usage(tmp_path: Path, warnings: list[str], url: str) -> None:
    with pytest.raises(WrongUsage):
        found(tmp_path, warnings, url)
