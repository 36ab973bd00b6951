"""`samovar up` around a played gateway: its signals, its exit code, its samples, and what it prints."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from samovar.names import FunctionName
from samovar.problems import Problem, WrongUsage
from samovar.up.port import check_free
from samovar.up.samples import Sample, curl_line, find_samples, read_known, sample_folders

PLAYED = Path(__file__).parent / "played_gateway.py"
#: How long anything may take that is waited for; a bound, not an expectation.
PATIENCE_S = 60.0

#: Runs the command line with the played gateway in the place of the interpreter that would run the real one.
DRIVER = "import sys; sys.executable = sys.argv.pop(1); from samovar.main import main; main()"


def wait_until(condition: Callable[[], Any], what: str) -> Any:
    end = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < end, f"{what}: not within {PATIENCE_S:g} s"
        time.sleep(0.01)
    return found


class Up:
    """One `samovar up`; its output goes to a file."""

    def __init__(self, folder: Path, *arguments: str, **environment: str) -> None:
        self.data = folder / ".samovar"
        self._output = folder / "output"
        script = folder / "played"
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(str(PLAYED))} "$@"\n')
        script.chmod(0o700)
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-c", DRIVER, str(script), "up", "--port", "0", *arguments],
                cwd=folder, env=dict(os.environ) | environment, stdout=output, stderr=output,
            )  # fmt: skip

    @property
    def text(self) -> str:
        return self._output.read_text()

    def wait_ready(self) -> None:
        wait_until(lambda: "\nready" in "\n" + self.text or self.process.poll() is not None, "it says 'ready'")
        assert self.process.poll() is None, self.text

    def child(self) -> psutil.Process:
        return psutil.Process(int((self.data / "pid").read_text()))

    def signals(self) -> list[str]:
        return (self.data / "signals").read_text().split()


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Callable[..., Up]]:
    running: list[Up] = []

    def start(*arguments: str, **environment: str) -> Up:
        running.append(Up(tmp_path, *arguments, **environment))
        return running[-1]

    yield start
    for one in running:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait(PATIENCE_S)


def gone(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def write_sample(parent: Path, name: str, **files: str) -> Path:
    folder = parent / name
    folder.mkdir(parents=True)
    (folder / "function.toml").write_text(f'name = "{name}"\nhandler = "handler:main"\n')
    (folder / "handler.py").write_text("def main(event, context): return event\n")
    for file, content in files.items():
        (folder / file.replace("_", ".")).write_text(content)
    return folder


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_reaches_the_gateway_once_and_its_exit_code_is_ours(up: Any, how: signal.Signals) -> None:
    running = up(SIGTERM_CODE="7")
    running.wait_ready()
    assert running.text.splitlines()[-1].startswith("ready: http://127.0.0.1:")
    child = running.child()
    running.process.send_signal(how)
    assert running.process.wait(PATIENCE_S) == (0 if how == signal.SIGINT else 7)
    assert running.signals() == ["SIGINT" if how == signal.SIGINT else "SIGTERM"]
    assert gone(child)


def test_a_second_ctrl_c_kills_a_gateway_that_does_not_end(up: Any) -> None:
    running = up(DEAF="1")
    running.wait_ready()
    running.process.send_signal(signal.SIGINT)
    wait_until((running.data / "signals").exists, "the first one arrives")
    assert running.process.poll() is None
    running.process.send_signal(signal.SIGINT)
    assert running.process.wait(PATIENCE_S) == 128 + signal.SIGKILL
    assert running.signals() == ["SIGINT"]


def test_the_gateway_is_told_when_its_parent_is_killed(up: Any) -> None:
    running = up()
    running.wait_ready()
    child = running.child()
    running.process.kill()
    running.process.wait(PATIENCE_S)
    wait_until(lambda: gone(child), "the child is gone too")
    assert running.signals() == ["SIGTERM"]


def test_a_gateway_that_ends_before_it_is_ready_gives_its_exit_code(up: Any) -> None:
    running = up(FAIL_CODE="5")
    assert running.process.wait(PATIENCE_S) == 5
    assert "another gateway uses this directory" in running.text
    assert "ready" not in running.text


def test_samples_are_deployed_shown_and_left_alone_the_next_time(up: Any, tmp_path: Path) -> None:
    parent = tmp_path / "samples"
    write_sample(parent, "one", request_json='{"n": 1}')
    write_sample(parent, "two")
    write_sample(parent, "broken")
    first = up("--samples", str(parent))
    first.wait_ready()
    lines = first.text.splitlines()
    assert any(line.startswith("default/one ") and "deployed" in line and "/fn/default/one" in line for line in lines)
    assert any("default/broken" in line and "failed" in line for line in lines)
    curls = [line for line in lines if line.startswith("curl ")]
    assert len(curls) == 2
    assert "smv_played" not in first.text
    first.process.terminate()
    first.process.wait(PATIENCE_S)

    (parent / "two" / "handler.py").write_text("def main(event, context): return 2\n")
    second = up("--samples", str(parent), "--json")
    value = wait_until(lambda: second.text.count("\n") > 1 and json.loads(second.text.splitlines()[-1]), "JSON")
    outcomes = {row["function"]: row["outcome"] for row in value["samples"]}
    assert outcomes == {"default/one": "unchanged", "default/two": "deployed", "default/broken": "failed"}
    assert json.loads((second.data / "functions.json").read_text()) == {"one": 1, "two": 2}
    second.process.terminate()
    second.process.wait(PATIENCE_S)

    (second.data / "functions.json").write_text("{}")
    third = up("--samples", str(parent))
    third.wait_ready()
    assert "unchanged" not in third.text, "what the gateway does not have is deployed, whatever was kept here"


def test_a_taken_port_is_told_with_who_has_it_and_what_to_do(bare_cli: Any) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        ran = bare_cli("up", "--port", str(port))
    assert ran.code == 1
    assert f"port {port} is in use by process {os.getpid()}" in ran.err
    assert "--port 0" in ran.err
    assert not Path(".samovar").exists()


def test_hosts_that_cannot_be_listened_on_are_refused() -> None:
    with pytest.raises(WrongUsage, match="--host"):
        check_free("192.0.2.1", 8080)
    with pytest.raises(Problem):
        check_free("not an address", 8080)
    check_free("127.0.0.1", 0)


def test_curl_lines_survive_a_shell_and_do_not_hold_the_token(tmp_path: Path) -> None:
    folder = write_sample(tmp_path / "a b's", "one", request_json='{"name":  "O\'Brien"}')
    sample = Sample(folder, FunctionName("default", "one"), "", "deployed")
    token_file = tmp_path / "a b's" / "token"
    token_file.write_text("smv_secret")
    line = curl_line(sample, "http://h:1/fn/default/one", token_file)
    shown = subprocess.run(
        ["bash", "-c", f"curl() {{ printf '%s\\n' \"$@\"; }}; {line}"], capture_output=True, text=True, check=True
    ).stdout
    assert shown.splitlines() == [
        "-sS", "-H", "Authorization: Bearer smv_secret", "-H", "Content-Type: application/json",
        "-d", '{"name": "O\'Brien"}', "http://h:1/fn/default/one",
    ]  # fmt: skip
    assert "smv_secret" not in line


def test_curl_lines_follow_what_a_sample_expects(tmp_path: Path) -> None:
    expected = {"request": "in.jpg", "path": "/v1?x=1&y=2", "headers": {"content-type": "image/png"}}
    folder = write_sample(tmp_path, "pic", expected_json=json.dumps(expected))
    (folder / "in.jpg").write_bytes(b"\xff\xd8")
    words = shlex.split(curl_line(Sample(folder, FunctionName("lab", "pic"), "", "deployed"), "http://h/x", Path("/t")))
    assert words[words.index("-o") + 1] == "pic.png"
    assert "Content-Type: image/jpeg" in words
    assert words[words.index("--data-binary") + 1] == f"@{folder / 'in.jpg'}"
    assert words[-1] == "http://h/x/v1?x=1&y=2"


def test_the_projects_own_samples_are_found(tmp_path: Path) -> None:
    project = Path(__file__).parents[3] / "functions"
    assert find_samples("") == project
    assert {"hello", "thumbnail"} <= {folder.name for folder in sample_folders(project)}
    assert sample_folders(tmp_path / "nowhere") == []


@pytest.mark.parametrize("content", ["", "[]", "{", "3"])
def test_unreadable_memory_of_samples_costs_a_deploy_only(tmp_path: Path, content: str) -> None:
    (tmp_path / "samples.json").write_text(content)
    assert read_known(tmp_path) == {}
