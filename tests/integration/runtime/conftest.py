"""The gateway's listening side as a test double: real frames, a real node agent process, real workers."""

from __future__ import annotations

import asyncio
import itertools
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
import pytest_asyncio

from runtime import messages as wire
from runtime.codec import Decoder, encode
from runtime.spec import WorkerSpec

PROJECT = Path(__file__).parents[3]
#: How long anything that is waited for may take; a bound, not an expectation.
PATIENCE_S = 60.0


class Ending(NamedTuple):
    """How a call ended."""

    status: int
    headers: list[list[bytes]]
    body: bytes
    stats: list[int]
    failed: wire.Failed | None


def alive(pid: int) -> bool:
    """The process exists and is no zombie."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


async def until(condition: Callable[[], Any], what: str) -> Any:
    """Poll until `condition` gives something true."""
    end = asyncio.get_running_loop().time() + PATIENCE_S
    while True:
        if found := condition():
            return found
        assert asyncio.get_running_loop().time() < end, f"never happened: {what}"
        await asyncio.sleep(0.01)


class Peer(asyncio.Protocol):
    """One connection; messages are kept in the order they came."""

    def __init__(self, gateway: GatewayDouble) -> None:
        self._gateway = gateway
        self._decoder = Decoder()
        self._transport: asyncio.Transport
        self.hello: wire.Hello | None = None
        self.messages: asyncio.Queue[wire.Message | None] = asyncio.Queue()
        self.closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        for message in self._decoder.feed(data):
            if self.hello is None:
                assert isinstance(message, wire.Hello)
                self.hello = message
                self._gateway.introduced(self)
            else:
                self.messages.put_nowait(message)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self.messages.put_nowait(None)

    def send(self, message: wire.Message) -> None:
        self._transport.write(encode(message))

    def close(self) -> None:
        self._transport.abort()

    async def next(self) -> wire.Message | None:
        """The next message; None when the connection ended."""
        return await asyncio.wait_for(self.messages.get(), PATIENCE_S)


@dataclass
class Worker:
    """A worker as the gateway sees it."""

    name: str
    gateway: GatewayDouble
    peer: Peer | None = None
    started: wire.Started | None = None
    exited: wire.Exited | None = None
    ready: wire.Ready | None = None
    failed: wire.StartFailed | None = None
    log: list[tuple[str, bytes]] = field(default_factory=list)
    _numbers: Any = field(default_factory=lambda: itertools.count(1))

    def request(self, body: bytes = b"", **more: Any) -> wire.Request:
        """Send a request; gives it."""
        values: dict[str, Any] = {
            "call": next(self._numbers),
            "invocation": "0190-test",
            "method": "POST",
            "mount": b"/fn/default/f",
            "target": b"/",
            "headers": [[b"Content-Type", b"application/json"], [b"Host", b"lab.example:8080"]],
            "body": body,
            "last": True,
            "timeout_ms": 30_000,
            "scheme": "http",
            "peer": "127.0.0.1",
        }
        request = wire.Request(**(values | more))
        assert self.peer is not None
        self.peer.send(request)
        return request

    async def ending(self, call: int, credit: bool = True) -> Ending:
        """Take messages until the call ended; other calls' messages are not expected."""
        assert self.peer is not None
        status, headers, body = 0, [], bytearray()
        while True:
            message = await self.peer.next()
            if message is None:
                return Ending(0, [], bytes(body), [], None)
            if isinstance(message, wire.Credit):
                continue
            assert getattr(message, "call", None) == call, message
            if isinstance(message, wire.Failed):
                return Ending(status, headers, bytes(body), message.stats, message)
            if isinstance(message, wire.Response):
                status, headers, data = message.status, message.headers, message.body
            else:
                assert isinstance(message, wire.Body), message
                data = message.data
            body += data
            if message.last:
                return Ending(status, headers, bytes(body), message.stats, None)
            if credit and data:
                self.peer.send(wire.Credit(call, len(data)))

    async def call(self, body: bytes = b"", **more: Any) -> Ending:
        """One call from beginning to end."""
        return await self.ending(self.request(body, **more).call)

    def stop(self, grace_ms: int = 0) -> None:
        """Order its end."""
        self.gateway.order(wire.StopWorker(self.name, grace_ms))

    async def gone(self) -> wire.Exited:
        """Wait until its exit was reported."""
        await until(lambda: self.exited, f"{self.name} exits")
        assert self.exited is not None
        return self.exited

    def log_text(self) -> bytes:
        """All lines it wrote."""
        return b"\n".join(line for _, line in self.log)


class GatewayDouble:
    """See the module."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.connect = f"unix:{folder / 'link.sock'}"
        self.workers: dict[str, Worker] = {}
        self.agent: Peer | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self.report: wire.Report | None = None
        self.environments: list[wire.EnvironmentLoaded | wire.EnvironmentFailed] = []
        self._names = itertools.count(1)
        self._servers: list[asyncio.Server] = []
        self._listener: asyncio.Task[None] | None = None

    async def start(self, *options: str) -> None:
        """Listen, start an agent, wait for its report."""
        loop = asyncio.get_running_loop()
        path = str(self.folder / "link.sock")
        self._servers.append(await loop.create_unix_server(lambda: Peer(self), path, backlog=512))
        command = [sys.executable, "-m", "runtime.agent", "--connect", self.connect, "--token", "secret"]
        command += ["--ident", "here", "--scratch", str(self.folder / "scratch"), "--die-with-parent", *options]
        self.agent_log = (self.folder / "agent.log").open("wb")
        self.process = subprocess.Popen(command, cwd=PROJECT, stderr=self.agent_log)
        await until(lambda: self.report or self.process.poll() is not None, "the agent reports")  # type: ignore[union-attr]
        assert self.report is not None, (self.folder / "agent.log").read_text()

    async def listen_on_loopback(self) -> int:
        """Listen on a free TCP port too; gives it."""
        server = await asyncio.get_running_loop().create_server(lambda: Peer(self), "127.0.0.1", 0)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    def introduced(self, peer: Peer) -> None:
        """A connection said who it is."""
        assert peer.hello is not None
        assert peer.hello.token == "secret"
        assert peer.hello.version == wire.PROTOCOL_VERSION
        if peer.hello.role == "agent":
            self.agent = peer
            self._listener = asyncio.get_running_loop().create_task(self._listen(peer))
        else:
            self.workers[peer.hello.ident].peer = peer

    async def _listen(self, peer: Peer) -> None:
        while (message := await peer.messages.get()) is not None:
            if isinstance(message, wire.Report):
                self.report = message
            elif isinstance(message, wire.Started):
                self.workers[message.worker].started = message
            elif isinstance(message, wire.Exited):
                self.workers[message.worker].exited = message
            elif isinstance(message, wire.Log):
                self.workers[message.worker].log += [(message.stream, line) for line in message.lines]
            elif isinstance(message, (wire.EnvironmentLoaded, wire.EnvironmentFailed)):
                self.environments.append(message)
            else:
                raise AssertionError(message)

    def order(self, message: wire.Message) -> None:
        """Tell the agent."""
        assert self.agent is not None
        self.agent.send(message)

    def bundle(self, files: dict[str, str] | str) -> Path:
        """A bundle's directory with these files; a text alone is handler.py."""
        place = self.folder / f"bundle{next(self._names)}"
        for name, text in ({"handler.py": files} if isinstance(files, str) else files).items():
            file = place / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(textwrap.dedent(text))
        return place

    def begin(self, files: dict[str, str] | str | Path, **more: Any) -> Worker:
        """Order a worker."""
        name = f"w{next(self._names)}"
        place = files if isinstance(files, Path) else self.bundle(files)
        values: dict[str, Any] = {
            "worker": name,
            "connect": self.connect,
            "token": "secret",
            "namespace": "default",
            "function": "f",
            "revision": 7,
            "environment": "env",
            "python": sys.executable,
            "bundle_dir": str(place),
            "handler": "handler:main",
            "memory_bytes": 256 * 1024 * 1024,
        }
        spec = WorkerSpec(**(values | more))
        worker = self.workers[name] = Worker(name, self)
        self.order(wire.StartWorker(name, spec.as_dict()))
        return worker

    async def settled(self, worker: Worker) -> Worker:
        """Wait until it is ready, has failed to start, or is gone."""
        await until(lambda: worker.peer or worker.exited, "the worker introduces itself")
        if worker.peer is not None:
            message = await worker.peer.next()
            if isinstance(message, wire.Ready):
                worker.ready = message
            elif message is not None:
                assert isinstance(message, wire.StartFailed)
                worker.failed = message
        return worker

    async def worker(self, files: dict[str, str] | str | Path, **more: Any) -> Worker:
        """Start a worker and wait until it is ready."""
        worker = await self.settled(self.begin(files, **more))
        assert worker.ready is not None, (worker.failed, worker.exited, (self.folder / "agent.log").read_text())
        return worker

    async def load(self, preload: list[str], environment: str = "env", python: str = sys.executable) -> Any:
        """Order an environment and wait for how it went."""
        before = len(self.environments)
        self.order(wire.LoadEnvironment(environment, python, preload))
        await until(lambda: len(self.environments) > before, "the environment is loaded")
        return self.environments[-1]

    def family(self) -> list[int]:
        """The agent and all below it."""
        assert self.process is not None
        top = psutil.Process(self.process.pid)
        return [top.pid, *(child.pid for child in top.children(recursive=True))]

    async def ended(self) -> int:
        """Wait for the agent's end; its exit status."""
        process = self.process
        assert process is not None
        await until(lambda: process.poll() is not None, "the agent ends")
        return int(process.returncode)

    async def stop(self) -> None:
        """End all."""
        if self.process is not None:
            if self.process.poll() is None:
                self.process.send_signal(signal.SIGTERM)
            await self.ended()
            self.agent_log.close()
        if self._listener is not None:
            self._listener.cancel()
        for server in self._servers:
            server.close()


@pytest.fixture
async def make_gateway(tmp_path: Path) -> AsyncIterator[Callable[..., Awaitable[GatewayDouble]]]:
    """Makes a gateway double with one agent that is given these options."""
    made: list[GatewayDouble] = []

    async def make(*options: str) -> GatewayDouble:
        double = GatewayDouble(tmp_path)
        made.append(double)
        await double.start(*options)
        return double

    yield make
    for double in made:
        await double.stop()


@pytest.fixture
async def gateway(make_gateway: Callable[..., Awaitable[GatewayDouble]]) -> GatewayDouble:
    """A gateway double with one agent."""
    return await make_gateway()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GatewayDouble]:
    """One for a module's tests that do no harm to the agent; they run with the module's event loop."""
    double = GatewayDouble(tmp_path_factory.mktemp("shared"))
    await double.start()
    yield double
    await double.stop()


@pytest.fixture
def wait_until() -> Callable[..., Any]:
    """See `until`."""
    return until


@pytest.fixture
def is_alive() -> Callable[[int], bool]:
    """See `alive`."""
    return alive
