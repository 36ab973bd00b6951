"""A gateway of the benchmark's own: started as its users start it, spoken to over HTTP, ended by its process id."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx

from loadtests.bench.machine import PROJECT
from loadtests.bench.requests import Address, Target

T = TypeVar("T")

FUNCTIONS = Path(__file__).parent / "functions"
START_TIMEOUT_S = 60.0
#: Building an environment downloads its packages the first time.
DEPLOY_TIMEOUT_S = 300.0
API_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 20.0
ZERO_TIMEOUT_S = 60.0
POLL_S = 0.02
LOG_TAIL_CHARACTERS = 2000


class GatewayBroke(Exception):
    """The gateway did not do what the measurement needs; the message quotes it."""


def wait_for(look: Callable[[], T | None], what: str, within_s: float) -> T:
    """Look again and again until there is something to see. Raises GatewayBroke when there never is."""
    deadline = time.monotonic() + within_s
    while True:
        if found := look():
            return found
        if time.monotonic() > deadline:
            raise GatewayBroke(f"{what}: not within {within_s:g} s")
        time.sleep(POLL_S)


def bundle(folder: Path) -> bytes:
    """The gzip tar of a function's folder, as a deploy wants it."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                archive.add(path, str(path.relative_to(folder)))
    return buffer.getvalue()


def last_event(ndjson: str) -> dict[str, Any]:
    """How a deploy ended. Raises GatewayBroke unless it ended well."""
    lines = [line for line in ndjson.splitlines() if line.strip()]
    event: dict[str, Any] = json.loads(lines[-1]) if lines else {}
    if event.get("event") != "deployed":
        raise GatewayBroke(f"deploy: {json.dumps(event)[:LOG_TAIL_CHARACTERS]}")
    return event


class GatewayProcess:
    """One running gateway."""

    def __init__(self, data: Path, config: str = "") -> None:
        """Start it on a directory and wait until it is ready. Raises GatewayBroke."""
        self.data = data
        data.mkdir(parents=True, exist_ok=True)
        self._log_path = data / "gateway.log"
        command = [sys.executable, "-m", "gateway", "--data", str(data), "--port", "0", "--die-with-parent"]
        if config:
            (data / "samovar.toml").write_text(config)
            command += ["--config", str(data / "samovar.toml")]
        # Its own state directory, so that the user's command line does not find this gateway.
        environment = {**os.environ, "XDG_STATE_HOME": str(data / "state")}
        self._log = self._log_path.open("ab")
        self._process = subprocess.Popen(
            command, cwd=PROJECT, env=environment, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log
        )
        self._client: httpx.Client | None = None
        self._deployed: set[str] = set()
        try:
            local = wait_for(self._local, "the gateway writes local.json", START_TIMEOUT_S)
            self.token: str = local["token"]
            url = urlsplit(local["url"])
            self.address = Address(url.hostname or "127.0.0.1", url.port or 80)
            headers = {"authorization": f"Bearer {self.token}"}
            self._client = httpx.Client(base_url=local["url"], headers=headers, timeout=API_TIMEOUT_S, trust_env=False)
            wait_for(self._ready, "the gateway becomes ready", START_TIMEOUT_S)
        except BaseException:
            self.close()
            raise

    def _local(self) -> dict[str, Any] | None:
        if self._process.poll() is not None:
            raise GatewayBroke(f"the gateway ended with {self._process.returncode}: {self._log_tail()}")
        try:
            local: dict[str, Any] = json.loads((self.data / "local.json").read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return None
        return local if local.get("pid") == self._process.pid else None

    def _ready(self) -> bool:
        assert self._client is not None
        try:
            return self._client.get("/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def _log_tail(self) -> str:
        return self._log_path.read_text(errors="replace")[-LOG_TAIL_CHARACTERS:].strip()

    @property
    def pid(self) -> int:
        """The gateway's process."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """It has not ended."""
        return self._process.poll() is None

    def deploy(self, folder: str) -> Target:
        """Deploy one of the benchmark's functions, once; gives its address. Raises GatewayBroke."""
        name = f"bench-{folder}"
        if name not in self._deployed:
            assert self._client is not None
            content = bundle(FUNCTIONS / folder)
            answer = self._client.post("/api/v1/functions/default", content=content, timeout=DEPLOY_TIMEOUT_S)
            if answer.status_code != 200:
                raise GatewayBroke(f"deploy of {folder}: {answer.status_code} {answer.text[:LOG_TAIL_CHARACTERS]}")
            last_event(answer.text)
            self._deployed.add(name)
        return Target(self.address, f"/fn/default/{name}", self.token)

    def workers(self, folder: str) -> list[dict[str, Any]]:
        """The function's workers. Raises GatewayBroke."""
        assert self._client is not None
        answer = self._client.get("/api/v1/workers", params={"namespace": "default"})
        if answer.status_code != 200:
            raise GatewayBroke(f"workers: {answer.status_code} {answer.text[:LOG_TAIL_CHARACTERS]}")
        return [row for row in answer.json() if row["function"] == f"bench-{folder}"]

    def worker_pids(self, folder: str) -> list[int]:
        """The processes of the function's ready workers. Raises GatewayBroke when there are none."""
        pids = [int(row["pid"]) for row in self.workers(folder) if row["state"] == "ready"]
        if not pids:
            raise GatewayBroke(f"bench-{folder} has no worker")
        return pids

    def wait_for_zero(self, folder: str) -> None:
        """Until the function has no worker. Raises GatewayBroke."""
        wait_for(lambda: not self.workers(folder), f"bench-{folder} goes to zero workers", ZERO_TIMEOUT_S)

    def close(self) -> None:
        """End it with all it started."""
        if self._client is not None:
            self._client.close()
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._log.close()
