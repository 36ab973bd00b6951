"""`samovar up` as a newcomer uses it: beside another, ended in every way, started again on its old directory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from house import PATIENCE_S, PROJECT, alive, wait_until

SAMOVAR = Path(sys.executable).parent / "samovar"


class Up:
    """One `samovar up`."""

    def __init__(self, folder: Path, *more: str) -> None:
        self.folder = folder
        self.data = folder / ".samovar"
        environment = {k: v for k, v in os.environ.items() if not k.startswith("SAMOVAR_")}
        environment["XDG_STATE_HOME"] = str(folder / "state")
        self.environment = environment
        self.output = (folder / "output").open("wb")
        command = [str(SAMOVAR), "up", "--port", "0", *more]
        self.process = subprocess.Popen(command, cwd=folder, env=environment, stdout=self.output, stderr=self.output)

    def wait_ready(self) -> None:
        """Until it says so."""

        def ready() -> bool:
            if self.process.poll() is not None:
                pytest.fail(f"samovar up ended:\n{self.text()}")
            return any(line.startswith("ready") for line in self.text().splitlines())

        wait_until(ready, "samovar up says 'ready'")

    def text(self) -> str:
        """All it printed."""
        return (self.folder / "output").read_text(errors="replace")

    def pids(self) -> list[int]:
        """Its process and all below."""
        return [self.process.pid] + [p.pid for p in psutil.Process(self.process.pid).children(recursive=True)]

    def run(self, *arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
        """Another `samovar` command in this folder."""
        return subprocess.run(
            [str(SAMOVAR), *arguments],
            check=False,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            **more,
        )


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_ended_in_any_way_it_leaves_no_process_and_starts_again(tmp_path: Path, how: signal.Signals) -> None:
    up = Up(tmp_path)
    up.wait_ready()
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / "function.toml").write_text('name = "f"\nhandler = "handler:main"\n')
    (tmp_path / "f" / "handler.py").write_text("def main(event, context):\n    return 'f'\n")
    deployed = up.run("deploy", "f")
    assert deployed.returncode == 0, deployed.stderr
    assert json.loads(up.run("invoke", "f").stdout) == "f"
    pids = up.pids()
    assert len(pids) >= 4
    up.process.send_signal(how)
    up.process.wait(PATIENCE_S)
    wait_until(lambda: not alive(pids), "no process is left")
    again = Up(tmp_path)
    again.wait_ready()
    try:
        assert json.loads(again.run("invoke", "f").stdout) == "f"
        rows = json.loads(again.run("usage", "--json").stdout)
        assert [row["calls"] for row in rows if row["function"] == "f"] == [2]
    finally:
        again.process.terminate()
        again.process.wait(PATIENCE_S)


def test_two_run_side_by_side_and_two_cannot_share_a_directory(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first, second = Up(tmp_path / "a"), Up(tmp_path / "b")
    first.wait_ready()
    second.wait_ready()
    try:
        urls = [json.loads((up.data / "local.json").read_text())["url"] for up in (first, second)]
        assert urls[0] != urls[1]
        for url in urls:
            assert httpx.get(url + "/readyz", trust_env=False).status_code == 200
        third = subprocess.run(
            [str(SAMOVAR), "up", "--port", "0"],
            check=False,
            cwd=tmp_path / "a",
            env=first.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert third.returncode != 0
        assert "in use" in third.stderr or "another" in third.stderr
        assert httpx.get(urls[0] + "/readyz", trust_env=False).status_code == 200
    finally:
        for up in (first, second):
            up.process.terminate()
            up.process.wait(PATIENCE_S)


def test_the_local_token_is_for_its_user_alone(tmp_path: Path) -> None:
    up = Up(tmp_path)
    up.wait_ready()
    try:
        for name in ("token", "local.json"):
            assert (up.data / name).stat().st_mode & 0o777 == 0o600, name
    finally:
        up.process.terminate()
        up.process.wait(PATIENCE_S)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start it as another user")
def test_it_runs_as_an_ordinary_user_too(tmp_path_factory: pytest.TempPathFactory) -> None:
    import pwd
    import shutil
    import tempfile

    folder = Path(tempfile.mkdtemp(prefix="samovar-user-"))
    user = pwd.getpwnam("nobody")
    os.chown(folder, user.pw_uid, user.pw_gid)
    try:
        subprocess.run(
            [sys.executable, "-c", "import gateway"], user=user.pw_uid, cwd=PROJECT, capture_output=True, check=True
        )
    except (PermissionError, subprocess.CalledProcessError):
        shutil.rmtree(folder)
        pytest.skip("another user may not read this checkout or its interpreter")
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "XDG_STATE_HOME": str(folder / "state")}
    output = (folder / "output").open("wb")
    process = subprocess.Popen(
        [str(SAMOVAR), "up", "--port", "0", "--data", str(folder / "data")],
        cwd=folder,
        env=environment,
        user=user.pw_uid,
        group=user.pw_gid,
        extra_groups=[],
        stdout=output,
        stderr=output,
    )
    try:
        text = folder / "output"
        wait_until(
            lambda: process.poll() is not None or "\nready" in "\n" + text.read_text(errors="replace"),
            "samovar up says 'ready'",
        )
        assert process.poll() is None, text.read_text(errors="replace")
    finally:
        process.terminate()
        process.wait(PATIENCE_S)
        shutil.rmtree(folder, ignore_errors=True)
