"""The node agent as a process: its report, its bounds, and that nothing is left when it ends, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from runtime import messages as wire

PROJECT = Path(__file__).parents[3]

#: Has a child that left its session, so that only its parents' care can end it.
FAMILY = """
    import subprocess, sys
    child = subprocess.Popen([sys.executable, "-c", "import os, time; os.setsid(); time.sleep(600)"])
    def main(event, context):
        while event:
            pass
        return child.pid
"""


async def with_workers(gateway: Any) -> list[int]:
    """Three workers, one of them in a loop; gives every process there is."""
    workers = [await gateway.worker(FAMILY) for _ in range(3)]
    for worker in workers:
        assert (await worker.call()).status == 200
    workers[0].request(b"1")
    pids: list[int] = gateway.family()
    assert len(pids) >= 1 + 1 + 3 + 3
    return pids


async def test_it_reports_one_slice_of_this_machine(gateway: Any) -> None:
    (slice_id, kind, cpu_millis, memory_bytes, max_workers) = gateway.report.slices[0]
    assert (slice_id, kind, max_workers) == ("cpu", "cpu", 512)
    assert cpu_millis >= 1
    assert memory_bytes > 0
    assert gateway.report.workers == []
    assert gateway.report.environments == []
    assert gateway.agent.hello.ident == "here"
    assert gateway.agent.hello.pid == gateway.process.pid


@pytest.mark.parametrize("how", ["SIGTERM", "SIGKILL", "gateway gone", "Shutdown"])
async def test_when_it_ends_nothing_is_left(gateway: Any, is_alive: Any, wait_until: Any, how: str) -> None:
    pids = await with_workers(gateway)
    if how == "gateway gone":
        gateway.agent.close()
    elif how == "Shutdown":
        gateway.order(wire.Shutdown(100))
    else:
        gateway.process.send_signal(getattr(signal, how))
    status = await gateway.ended()
    assert status == (-9 if how == "SIGKILL" else 0)
    await wait_until(lambda: not any(map(is_alive, pids)), "every process is gone")
    if how != "SIGKILL":
        left = {entry.name for entry in (gateway.folder / "scratch").iterdir()}
        assert left <= {".samovar-scratch", ".zygote"}


async def test_it_dies_with_its_parent(tmp_path: Path, is_alive: Any, wait_until: Any, gateway: Any) -> None:
    pids = await with_workers(gateway)
    parent = subprocess.Popen(
        [sys.executable, "-c", "import subprocess, sys, time\nchild = subprocess.Popen(sys.argv[1:])\n"
         "print(child.pid, flush=True)\ntime.sleep(600)",
         sys.executable, "-m", "runtime.agent", "--connect", gateway.connect, "--token", "secret", "--ident", "second",
         "--scratch", str(tmp_path / "second"), "--die-with-parent"],
        cwd=PROJECT, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert parent.stdout is not None
    agent = int(parent.stdout.readline())
    await wait_until(lambda: gateway.agent.hello.ident == "second", "the second agent has joined")
    parent.kill()
    parent.wait()
    parent.stdout.close()
    await wait_until(lambda: not is_alive(agent), "the agent has noticed")
    assert all(map(is_alive, pids))


async def test_it_refuses_more_workers_than_its_maximum(tmp_path: Path, make_gateway: Any) -> None:
    gateway = await make_gateway("--max-workers", "1")
    first = await gateway.worker(FAMILY)
    second = await gateway.settled(gateway.begin(FAMILY))
    assert "maximum of 1 workers" in second.exited.note
    first.stop()
    await first.gone()
    assert (await gateway.worker(FAMILY)).ready


async def test_sizes_can_be_given(make_gateway: Any) -> None:
    gateway = await make_gateway("--memory-bytes", "1000000", "--cpu-millis", "1500", "--max-workers", "7")
    assert gateway.report.slices == [["cpu", "cpu", 1500, 1_000_000, 7]]


async def test_a_worker_stopped_before_it_started_is_reported(gateway: Any) -> None:
    worker = gateway.begin(FAMILY)
    worker.stop(0)
    exited = await worker.gone()
    assert exited.note == "stopped before it was started" or exited.signal == 9


async def test_a_scratch_directory_that_is_there_already_is_not_taken(gateway: Any) -> None:
    place = gateway.folder / "precious"
    place.mkdir()
    (place / "file").write_text("x")
    worker = await gateway.settled(gateway.begin(FAMILY, scratch_dir=str(place)))
    assert "File exists" in worker.exited.note
    assert (place / "file").exists()


async def test_a_scratch_directory_may_be_named_by_the_gateway(gateway: Any, wait_until: Any) -> None:
    place = gateway.folder / "elsewhere" / "w"
    worker = await gateway.worker(FAMILY, scratch_dir=str(place))
    assert place.is_dir()
    worker.stop()
    await worker.gone()
    await wait_until(lambda: not place.exists(), "it is removed")


async def test_a_worker_whose_gateway_cannot_be_reached_is_reported(gateway: Any) -> None:
    worker = await gateway.settled(gateway.begin(FAMILY, connect="unix:/nowhere.sock"))
    assert "could not be started" in worker.exited.note
    other = await gateway.settled(gateway.begin(FAMILY, connect="nonsense"))
    assert "nonsense" in other.exited.note


async def test_variables_too_large_for_one_order_are_refused_by_name(gateway: Any) -> None:
    worker = await gateway.settled(gateway.begin(FAMILY, variables={"BIG": "x" * 200_000}))
    assert "limit" in worker.exited.note


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (["--connect", "nonsense"], "nonsense"),
        (["--connect", "unix:/x", "--memory-bytes", "-1"], "--memory-bytes must not be negative"),
    ],
)
def test_a_bad_command_line_is_named(tmp_path: Path, options: list[str], part: str) -> None:
    command = [sys.executable, "-m", "runtime.agent", "--token", "t", "--ident", "i", "--scratch", str(tmp_path)]
    done = subprocess.run([*command, *options], cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert part in done.stderr


def test_a_gateway_that_is_not_there_ends_the_agent(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "runtime.agent", "--token", "t", "--ident", "i", "--scratch", str(tmp_path)]
    command += ["--connect", f"unix:{tmp_path}/none.sock"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "cannot work" in done.stderr


async def test_workers_can_dial_over_tcp(gateway: Any) -> None:
    port = await gateway.listen_on_loopback()
    worker = await gateway.worker(FAMILY, connect=f"tcp:127.0.0.1:{port}")
    assert (await worker.call()).status == 200
    assert os.getpid() != worker.started.pid
