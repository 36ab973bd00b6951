"""The processes of the benchmark, for real: the generator against the control."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import httpx
import psutil
import pytest

from loadtests.bench.burst import Burst
from loadtests.bench.control import Control
from loadtests.bench.generator import CallsFailed, Generator
from loadtests.bench.loadgen import Load
from loadtests.bench.own_process import ProcessBroke
from loadtests.bench.processes import MIB, RssWatch, family, pss_by_role, role, rss_bytes
from loadtests.bench.requests import PAYLOAD, post, post_json


@pytest.fixture(scope="module")
def generator() -> Iterator[Generator]:
    made = Generator()
    yield made
    made.close()
    assert not made.alive


@pytest.fixture(scope="module")
def control() -> Iterator[Control]:
    made = Control()
    yield made
    made.close()
    assert not made.alive


def test_the_generator_measures_the_controls_json_echo(generator: Generator, control: Control) -> None:
    request = post_json(control.json, PAYLOAD)
    result = generator.load(Load(control.address, request, 4, 0.1, 0.05, expected_json=PAYLOAD))
    assert result.calls > 0


def test_the_control_streams_bytes_back(generator: Generator, control: Control) -> None:
    body = os.urandom(MIB)
    request = post(control.bytes, body, "application/octet-stream")
    result = generator.load(Load(control.address, request, 1, 0.1, 0.0, expected_bytes=body))
    assert result.calls > 0


def test_wrong_answers_are_no_measurement(generator: Generator, control: Control) -> None:
    request = post_json(control.json, PAYLOAD)
    with pytest.raises(CallsFailed, match="not the body"):
        generator.load(Load(control.address, request, 1, 0.05, 0.0, expected_json={}))


def test_the_generator_goes_on_after_a_job_that_failed(generator: Generator, control: Control) -> None:
    gone = Control()
    gone.close()
    with pytest.raises(OSError):
        generator.load(Load(gone.address, b"", 1, 0.05, expected_json={}))
    replies = generator.burst(Burst(control.address, (post_json(control.json, PAYLOAD),) * 3))
    assert [reply.status for reply in replies] == [200, 200, 200]


def test_the_control_refuses_what_is_no_json(control: Control) -> None:
    address = f"http://{control.address.host}:{control.address.port}"
    assert httpx.post(address + control.json.path, content=b"{", trust_env=False).status_code >= 400


def test_a_process_that_was_killed_is_told() -> None:
    control = Control()
    generator = Generator()
    control.close()
    pid = generator._process.pid
    psutil.Process(pid).kill()
    with pytest.raises(ProcessBroke):
        generator.burst(Burst(control.address, ()))
    generator.close()


def test_family_finds_children_and_what_was_started_on_the_directory(tmp_path: object) -> None:
    code = "import subprocess, sys; subprocess.Popen(['sleep', '60']); print('up', flush=True); sys.stdin.read()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    found = family(0, str(tmp_path))
    try:
        assert process.pid in {p.pid for p in found}
        assert "sleep" in {p.name() for p in found}
        assert all(size > 0 for size in pss_by_role(found).values())
    finally:
        for one in found:
            if one.name() == "sleep":
                one.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["/x/python", "-m", "gateway", "--data", "/d"], "gateway"),
        (["/x/python", "-m", "runtime.agent", "--connect", "unix:/d"], "node agent"),
        (["/e/python", "-I", "/r/bootstrap.py", "zygote", "5"], "zygotes and workers"),
        (["/e/bin/postgres", "-D", "/d"], "postgres"),
        (["postgres: checkpointer "], "postgres"),
        (["/e/valkey-server", "unixsocket:/d"], "valkey"),
        ([], "kernel-thing"),
    ],
)
def test_roles_are_read_from_command_lines(command: list[str], expected: str) -> None:
    assert role(command, "kernel-thing") == expected


def test_the_watch_sees_memory_that_was_taken_meanwhile() -> None:
    pid = os.getpid()
    before = rss_bytes([pid])
    with RssWatch([pid]) as watch:
        held = bytearray(os.urandom(1) * (64 * MIB))
    assert len(held) == 64 * MIB
    assert watch.peak_bytes - before > 32 * MIB
