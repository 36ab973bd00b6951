"""One zygote as its node agent holds it: start it, give it orders, hear what becomes of its workers."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess
from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

from runtime import control
from runtime.log_lines import LineCutter
from runtime.spec import WorkerSpec

log = logging.getLogger("samovar.agent")

#: Longest that an environment's modules may take to import.
LOAD_LIMIT_S = 120.0
#: The last lines that a zygote wrote, told when it fails.
_TAIL_LINES = 8
_TAIL_LINE_BYTES = 400


class ZygoteFailed(Exception):
    """The zygote could not be started, or ended before it was ready; the message says how."""


@dataclass(frozen=True)
class Installation:
    """Where the runtime itself lives, and what zygotes get of the agent's world."""

    bootstrap: str
    runtime_dir: str
    msgpack_dir: str
    variables: dict[str, str] = field(default_factory=dict)

    def command(self, python: str, role: str, descriptor: str, parent: int) -> list[str]:
        """How an interpreter is started in a role; see runtime/bootstrap.py."""
        options = [role, descriptor, str(parent), self.runtime_dir, self.msgpack_dir]
        return [python, "-I", self.bootstrap, *options]


@dataclass(frozen=True)
class Loaded:
    """A zygote's first word."""

    forkable: bool
    load_us: int
    note: str


class ZygoteListener(Protocol):
    """Who is told what becomes of a zygote's workers."""

    def worker_started(self, worker: str, pid: int) -> None:
        """The process exists."""

    def worker_exited(self, worker: str, code: int, signum: int, note: str) -> None:
        """The process is gone, with its group."""

    def zygote_ended(self, zygote: ZygoteProcess, why: str) -> None:
        """The zygote is gone, and all its workers with it (each was told before)."""


class ZygoteProcess:
    """See the module."""

    def __init__(self, python: str, installation: Installation, listener: ZygoteListener) -> None:
        self._python = python
        self._installation = installation
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._loaded: asyncio.Future[Loaded] = self._loop.create_future()
        self._outbox: deque[tuple[bytes, list[int]]] = deque()
        self._tail: deque[bytes] = deque(maxlen=_TAIL_LINES)
        self._cutter = LineCutter(_TAIL_LINE_BYTES)
        self._retired = False
        self._hung_up = False
        self._process: subprocess.Popen[bytes]
        self._control: socket.socket
        self.workers: set[str] = set()
        self.alive = False
        #: Set when the process was waited for.
        self.gone = asyncio.Event()

    @property
    def pid(self) -> int:
        """The zygote's process id."""
        return self._process.pid

    @property
    def usable(self) -> bool:
        """It takes orders."""
        return self.alive and not self._hung_up

    # -- life --------------------------------------------------------------------------------------------

    async def start(self, preload: list[str]) -> Loaded:
        """Start it and have it import these modules. Raises ZygoteFailed."""
        order = control.encode({"op": "load", "preload": preload})
        self._launch()
        self._send(order, [])
        try:
            return await asyncio.wait_for(asyncio.shield(self._loaded), LOAD_LIMIT_S)
        except TimeoutError:
            self._process.kill()
            raise ZygoteFailed(f"its imports took longer than {LOAD_LIMIT_S:g} s") from None
        except asyncio.CancelledError:
            self._process.kill()
            raise

    def _launch(self) -> None:
        self._control, theirs = control.socket_pair()
        self._control.setblocking(False)
        output, their_output = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(output, False)
        command = self._installation.command(self._python, "zygote", str(theirs.fileno()), os.getpid())
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=their_output, stderr=their_output, cwd="/",
                env=self._installation.variables, pass_fds=[theirs.fileno()], start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            self._control.close()
            os.close(output)
            raise ZygoteFailed(f"{self._python} cannot be started: {error.strerror}") from error
        finally:
            theirs.close()
            os.close(their_output)
        self.alive = True
        self._loop.add_reader(output, self._on_output, output)
        self._loop.add_reader(self._control, self._on_control)

    def retire(self) -> None:
        """Let it end as soon as it has no workers."""
        self._retired = True
        self._end_if_unused()

    def _end_if_unused(self) -> None:
        if self._retired and not self.workers:
            self.hang_up()

    def hang_up(self) -> None:
        """Have it end now, with all its workers."""
        if self.usable:
            self._hung_up = True
            self._control.shutdown(socket.SHUT_RDWR)

    def kill(self) -> None:
        """End it the hard way."""
        if not self.gone.is_set():
            self._process.kill()

    # -- orders ------------------------------------------------------------------------------------------

    def start_worker(self, spec: WorkerSpec, spawn: bool, descriptors: list[int]) -> None:
        """Have a worker forked, or spawned. Takes the descriptors over. Raises OversizedPacket, ZygoteFailed."""
        try:
            if not self.usable:
                raise ZygoteFailed("the environment's zygote has ended")
            command = self._installation.command(spec.python, "worker", control.SPEC_PLACE, self.pid) if spawn else []
            packet = control.encode({"op": "start", "spec": spec.as_dict(), "spawn": command})
        except BaseException:
            for descriptor in descriptors:
                os.close(descriptor)
            raise
        self.workers.add(spec.worker)
        self._send(packet, descriptors)

    def signal_worker(self, worker: str, signum: signal.Signals) -> None:
        """Send a signal to a worker's main process."""
        self._send(control.encode({"op": "signal", "worker": worker, "signal": int(signum)}), [])

    def kill_worker(self, worker: str) -> None:
        """SIGKILL to a worker's whole process group."""
        self._send(control.encode({"op": "kill", "worker": worker}), [])

    def _send(self, packet: bytes, descriptors: list[int]) -> None:
        self._outbox.append((packet, descriptors))
        if len(self._outbox) == 1:
            self._write()

    def _write(self) -> None:
        while self._outbox and self.alive:
            packet, descriptors = self._outbox[0]
            try:
                socket.send_fds(self._control, [packet], descriptors)
            except BlockingIOError:  # it is importing or forking
                self._loop.add_writer(self._control, self._write)
                return
            except OSError:
                break  # it is gone; the reading side will say so
            self._outbox.popleft()
            for descriptor in descriptors:
                os.close(descriptor)
        if self.alive:
            self._loop.remove_writer(self._control)

    # -- news --------------------------------------------------------------------------------------------

    def _on_output(self, output: int) -> None:
        try:
            data = os.read(output, 64 * 1024)
        except BlockingIOError:
            return
        if not data:
            self._loop.remove_reader(output)
            os.close(output)
        for line in self._cutter.feed(data) if data else self._cutter.finish():
            self._tail.append(line)
            log.info("zygote %d: %s", self.pid, line.decode(errors="replace"))

    def _on_control(self) -> None:
        try:
            packet = self._control.recv(control.PACKET_BYTES_MAX)
        except BlockingIOError:
            return
        except OSError:
            packet = b""
        if not packet:
            self._on_end()
            return
        news = control.decode(packet)
        if news["op"] == "loaded":
            if not self._loaded.done():
                self._loaded.set_result(Loaded(news["forkable"], news["load_us"], news["note"]))
        elif news["op"] == "started":
            self._listener.worker_started(news["worker"], news["pid"])
        elif news["op"] == "exited":
            self._worker_exited(news["worker"], news["code"], news["signal"], news["note"])

    def _worker_exited(self, worker: str, code: int, signum: int, note: str) -> None:
        self.workers.discard(worker)
        self._listener.worker_exited(worker, code, signum, note)
        self._end_if_unused()

    def _on_end(self) -> None:
        self.alive = False
        self._loop.remove_reader(self._control)
        self._loop.remove_writer(self._control)
        self._control.close()
        for _, descriptors in self._outbox:
            for descriptor in descriptors:
                os.close(descriptor)
        self._outbox.clear()
        ending = self._loop.run_in_executor(None, self._process.wait)
        ending.add_done_callback(lambda done: self._buried(done.result()))

    def _buried(self, code: int) -> None:
        self.gone.set()
        why = f"the zygote ended by signal {-code}" if code < 0 else f"the zygote ended with code {code}"
        if not self._loaded.done():
            tail = b"\n".join(self._tail).decode(errors="replace")
            self._loaded.set_exception(ZygoteFailed(f"{why} while it was loading{': ' + tail if tail else ''}"))
            self._loaded.exception()  # looked at, whether or not anybody waits
        for worker in list(self.workers):
            self._worker_exited(worker, -1, int(signal.SIGKILL), why)
        self._listener.zygote_ended(self, why)
