"""A gateway that plays the API of docs/api.md from memory, on a free port, and the command line run against it."""

from __future__ import annotations

import asyncio
import io
import json
import os
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from samovar.main import run

TOKEN = "smv_test"


@dataclass
class Call:
    """One request as it arrived."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name), None)


@dataclass
class PlayedGateway:
    """Answers by method and path; `calls` is what came in."""

    url: str = ""
    calls: list[Call] = field(default_factory=list)
    #: "METHOD /path" -> (status, headers, JSON value or bytes or list of NDJSON events).
    answers: dict[str, tuple[int, dict[str, str], Any]] = field(default_factory=dict)

    def on(self, what: str, value: Any, status: int = 200, **headers: str) -> None:
        """Answer these requests so; header names with "_" for "-"."""
        self.answers[what] = (status, {key.replace("_", "-"): text for key, text in headers.items()}, value)

    def refuse(self, what: str, status: int, code: str, message: str, **more: Any) -> None:
        """Answer these requests with an error as the API has them."""
        self.on(what, {"error": {"code": code, "message": message, "fault": "caller", **more}}, status)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.content.read()  # of any size, unlike request.read()
        headers = [(k.decode("latin-1"), v.decode("latin-1")) for k, v in request.raw_headers]
        self.calls.append(Call(request.method, request.raw_path, headers, body))
        what = f"{request.method} {request.raw_path.partition('?')[0]}"
        if request.raw_path.startswith("/api/") and request.headers.get("authorization") != f"Bearer {TOKEN}":
            return web.json_response({"error": {"code": "unauthorized", "message": "no token"}}, status=401)
        if what not in self.answers:
            error = {"code": "not_found", "message": f"there is no {request.path}", "fault": "caller"}
            return web.json_response({"error": error}, status=404)
        status, more, value = self.answers[what]
        if isinstance(value, bytes):
            return web.Response(status=status, headers=more, body=value)
        if isinstance(value, tuple):
            lines = "".join(json.dumps(event) + "\n" for event in value)
            return web.Response(status=status, text=lines, content_type="application/x-ndjson")
        return web.json_response(value, status=status, headers=more)

    def uploaded(self) -> dict[str, bytes]:
        """The files of the last upload."""
        with tarfile.open(fileobj=io.BytesIO(self.calls_to("POST /api/v1/functions/")[-1].body)) as tar:
            return {m.name: tar.extractfile(m).read() for m in tar.getmembers()}  # type: ignore[union-attr]

    def calls_to(self, prefix: str) -> list[Call]:
        """The calls whose method and target begin so."""
        return [call for call in self.calls if f"{call.method} {call.target}".startswith(prefix)]


@pytest.fixture
def played() -> Iterator[PlayedGateway]:
    """The gateway, in a thread of its own."""
    gateway = PlayedGateway()
    loop = asyncio.new_event_loop()
    started = threading.Event()
    stop = asyncio.Event()

    async def serve() -> None:
        server = web.Server(gateway.handle)
        runner = web.ServerRunner(server)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        gateway.url = f"http://127.0.0.1:{port}"
        started.set()
        await stop.wait()
        await runner.cleanup()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    assert started.wait(30)
    yield gateway
    loop.call_soon_threadsafe(stop.set)
    thread.join(30)
    loop.close()


@dataclass(frozen=True)
class Ran:
    """How one command ended."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()

    @property
    def value(self) -> Any:
        return json.loads(self.out)


Cli = Callable[..., Ran]


@pytest.fixture
def bare_cli(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    """The command line in an empty directory, in an environment that names no gateway."""
    for name in ("SAMOVAR_URL", "SAMOVAR_TOKEN", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)

    def call(*arguments: str) -> Ran:
        capfdbinary.readouterr()
        code = run(list(arguments))
        out, err = capfdbinary.readouterr()
        return Ran(code, out, err.decode())

    return call


@pytest.fixture
def cli(bare_cli: Cli, played: PlayedGateway, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The command line, told about the played gateway by its environment."""
    monkeypatch.setenv("SAMOVAR_URL", played.url)
    monkeypatch.setenv("SAMOVAR_TOKEN", TOKEN)
    return bare_cli


Announce = Callable[..., Path]


@pytest.fixture
def announce() -> Announce:
    """Writes an announcement as a gateway does."""

    def write(path: Path, url: str, token: str = TOKEN, mode: int = 0o600, **more: Any) -> Path:
        values = {"url": url, "token": token, "pid": os.getpid(), "data": str(path.parent), "started_at": time.time()}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values | more))
        path.chmod(mode)
        return path

    return write


@pytest.fixture
def function_folder(tmp_path: Path) -> Path:
    """A small function's folder."""
    folder = tmp_path / "sums"
    folder.mkdir()
    (folder / "function.toml").write_text('name = "sums"\nhandler = "handler:main"\n')
    (folder / "handler.py").write_text("def main(event, context):\n    return sum(event)\n")
    return folder
