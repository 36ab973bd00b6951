"""A whole Samovar for a test: the gateway as its users start it, real services, real workers, a free port."""

from __future__ import annotations

import contextlib
import io
import json
import signal
import subprocess
import sys
import tarfile
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

PROJECT = Path(__file__).parents[2]

#: How long anything may take that is waited for here; a bound, not an expectation.
PATIENCE_S = 60.0


def wait_until(condition: Callable[[], Any], what: str, within_s: float = PATIENCE_S) -> Any:
    """Poll until `condition` gives something true; fails the test with `what` when it never does."""
    end = time.monotonic() + within_s
    while True:
        with contextlib.suppress(httpx.TransportError, FileNotFoundError, json.JSONDecodeError):
            if found := condition():
                return found
        if time.monotonic() > end:
            pytest.fail(f"{what}: not within {within_s:g} s")
        time.sleep(0.02)


def bundle(files: dict[str, str | bytes]) -> bytes:
    """A gzip tar of a function's folder."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            data = textwrap.dedent(content).encode() if isinstance(content, str) else content
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def manifest(name: str, handler: str = "handler:main", **more: Any) -> str:
    """A small function.toml; tables as dicts."""
    lines = [f'name = "{name}"', f'handler = "{handler}"']
    tables = []
    for key, value in more.items():
        if isinstance(value, dict):
            tables += [f"[{key}]"] + [f"{k} = {json.dumps(v)}" for k, v in value.items()]
        else:
            lines.append(f"{key} = {json.dumps(value)}")
    return "\n".join(lines + tables) + "\n"


class Samovar:
    """One running gateway and the ways a test talks to it."""

    def __init__(self, data: Path, config: str = "") -> None:
        self.data = data
        self.config = config
        self.process: subprocess.Popen[bytes]
        self.url = ""
        self.token = ""
        self.client: httpx.Client

    def start(self) -> None:
        """Start and wait until it is ready."""
        self.data.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "gateway", "--data", str(self.data), "--port", "0"]
        if self.config:
            file = self.data / "samovar.toml"
            file.write_text(self.config)
            command += ["--config", str(file)]
        (self.data / "local.json").unlink(missing_ok=True)
        self.log = (self.data / "gateway.log").open("ab")
        self.process = subprocess.Popen(command, stderr=self.log, cwd=PROJECT)
        local = wait_until(self._local, "the gateway writes local.json")
        self.url, self.token = local["url"], local["token"]
        self.client = httpx.Client(
            base_url=self.url,
            headers={"authorization": f"Bearer {self.token}"},
            timeout=PATIENCE_S,
            trust_env=False,
        )
        wait_until(lambda: self.client.get("/readyz").status_code == 200, "the gateway becomes ready")

    def _local(self) -> Any:
        if self.process.poll() is not None:
            pytest.fail(f"the gateway ended with {self.process.returncode}:\n{self.log_text()[-4000:]}")
        local = json.loads((self.data / "local.json").read_text())
        return local if local["pid"] == self.process.pid else None

    def log_text(self) -> str:
        """What the gateway wrote on stderr."""
        return (self.data / "gateway.log").read_text(errors="replace")

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """End it and wait."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        code = self.process.wait(PATIENCE_S)
        self.client.close()
        self.log.close()
        return code

    def family(self) -> list[psutil.Process]:
        """The gateway's process and all below it."""
        parent = psutil.Process(self.process.pid)
        return [parent, *parent.children(recursive=True)]

    def deploy(self, files: dict[str, str | bytes], namespace: str = "default") -> dict[str, Any]:
        """Deploy and give the last event."""
        answer = self.client.post(f"/api/v1/functions/{namespace}", content=bundle(files))
        assert answer.status_code == 200, answer.text
        return dict(json.loads(answer.text.strip().splitlines()[-1]))

    def deployed(self, name: str, code: str, handler: str = "handler:main", **more: Any) -> dict[str, Any]:
        """Deploy one handler module; fails the test when that fails."""
        last = self.deploy({"function.toml": manifest(name, handler, **more), "handler.py": code})
        assert last["event"] == "deployed", last
        return last

    def deploy_folder(self, folder: Path) -> dict[str, Any]:
        """Deploy a folder as it stands."""
        files = {
            str(p.relative_to(folder)): p.read_bytes()
            for p in sorted(folder.rglob("*"))
            if p.is_file() and "__pycache__" not in p.parts
        }
        return self.deploy(dict(files))

    def call(self, name: str, path: str = "", **more: Any) -> httpx.Response:
        """Call a function of the default namespace."""
        method = more.pop("method", "POST")
        return self.client.request(method, f"/fn/default/{name}{path}", **more)

    def rows(self, what: str, **query: str) -> list[dict[str, Any]]:
        """A list of the control API."""
        answer = self.client.get(f"/api/v1/{what}", params=query)
        assert answer.status_code == 200, answer.text
        return list(answer.json())

    def workers(self, name: str) -> list[dict[str, Any]]:
        """The function's workers."""
        return [row for row in self.rows("workers") if row["function"] == name]

    def usage(self, name: str) -> dict[str, Any]:
        """The function's usage row."""
        return next((row for row in self.rows("usage") if row["function"] == name), {"calls": 0})

    def wait_for_zero(self, name: str) -> None:
        """Until the function has no worker."""
        wait_until(lambda: not self.workers(name), f"{name} goes to zero workers")


def alive(pids: list[int]) -> list[int]:
    """Those of these processes that still live."""
    found = []
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                found.append(pid)
    return found
