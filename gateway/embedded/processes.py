"""A server process that lives exactly as long as we do: started, kept, and stopped within known times.

It has its own session (Ctrl-C in our terminal is ours to handle), writes to a log file, is started again when it dies
alone, and gets a signal from the kernel when we die, however we die. The kernel watches the thread that forked, so
everything here is called on the event loop's thread.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from gateway.embedded.identity import Identity, own_identity

log = logging.getLogger("gateway.embedded")

_PR_SET_PDEATHSIG = 1
_LOG_TAIL_BYTES = 2000
_libc = ctypes.CDLL(None, use_errno=True)


class ServerFailed(Exception):
    """A server did not start; the message holds the end of its log."""


@dataclass(frozen=True)
class KeepParams:
    """Times in seconds."""

    poll_s: float = 0.01
    #: From launch to ready.
    start_timeout_s: float = 60.0
    #: After an exit that may have been too early (a predecessor's remains were still in the way).
    retry_pause_s: float = 0.2
    retries_max: int = 25
    #: From the polite signal to the firm one, and from that to SIGKILL.
    stop_grace_s: float = 10.0
    #: Before a server that died alone is started again: growing pauses.
    restart_pause_s: float = 0.1
    restart_pause_max_s: float = 10.0
    #: A log larger than this at start becomes `<name>.old`.
    log_max_bytes: int = 4 * 1024 * 1024


@dataclass(frozen=True)
class Launch:
    """How a server is started."""

    name: str
    command: tuple[str, ...]
    directory: Path
    log_path: Path
    environment: dict[str, str]
    #: Sent by the kernel when we die.
    death_signal: signal.Signals
    #: Sent by `stop`, in this order; SIGKILL follows by itself.
    stop_signals: tuple[signal.Signals, ...] = (signal.SIGTERM,)
    identity: Identity = field(default_factory=own_identity)
    #: Words in the log that mean: try again in a moment.
    passing_problems: tuple[str, ...] = ()


class KeptProcess:
    """See the module."""

    def __init__(
        self,
        launch: Launch,
        ready: Callable[[int], Awaitable[bool]],
        prepare: Callable[[], Awaitable[None]],
        params: KeepParams | None = None,
    ) -> None:
        """`ready(pid)` is polled after a launch; `prepare` runs before each."""
        self._launch = launch
        self._ready = ready
        self._prepare = prepare
        self._params = params if params is not None else KeepParams()
        self._process: subprocess.Popen[bytes] | None = None
        self._keeper: asyncio.Task[None] | None = None
        #: Starts after it had died alone; a metric.
        self.restarts = 0

    @property
    def pid(self) -> int:
        """0: not running."""
        return self._process.pid if self._process is not None and self._process.returncode is None else 0

    async def start(self) -> None:
        """Start, wait until it is ready, keep it. Raises ServerFailed."""
        await self._start_once()
        self._keeper = asyncio.create_task(self._keep(), name=f"{self._launch.name} keeper")

    async def stop(self) -> None:
        """End it, politely first; no process is left."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
            self._keeper = None
        if self._process is not None:
            await stop_process(self._process, self._launch.stop_signals, self._params)
            self._process = None

    async def _start_once(self) -> None:
        params, launch = self._params, self._launch
        for _ in range(params.retries_max):
            await self._prepare()
            start_of_log = _rotate(launch.log_path, params.log_max_bytes)
            self._process = process = spawn(launch)
            try:
                async with asyncio.timeout(params.start_timeout_s):
                    while process.poll() is None:
                        if await self._ready(process.pid):
                            return
                        await asyncio.sleep(params.poll_s)
            except TimeoutError:
                said = f"not ready within {params.start_timeout_s:g} s"
                break
            except BaseException:
                await stop_process(process, (), params)
                raise
            tail = log_tail(launch.log_path, start_of_log)
            said = f"ended with {process.returncode}: {tail or 'no word in ' + str(launch.log_path)}"
            if not any(word in tail for word in launch.passing_problems):
                break
            await asyncio.sleep(params.retry_pause_s)
        await stop_process(process, (), params)
        raise ServerFailed(f"{launch.name} did not start: {said}")

    async def _keep(self) -> None:
        params = self._params
        pause_s = params.restart_pause_s
        while True:
            assert self._process is not None
            if self._process.poll() is None:
                await asyncio.sleep(params.poll_s * 5)
                continue
            log.error("%s ended with %s; starting it again", self._launch.name, self._process.returncode)
            await asyncio.sleep(pause_s)
            try:
                await self._start_once()
            except (ServerFailed, OSError) as error:
                log.error("%s", error)
                pause_s = min(pause_s * 2, params.restart_pause_max_s)
            else:
                self.restarts += 1
                pause_s = params.restart_pause_s


def spawn(launch: Launch) -> subprocess.Popen[bytes]:
    """Start the process. Raises ServerFailed."""
    parent = os.getpid()

    def before_exec() -> None:
        launch.identity.enter()
        # After the change of identity, which clears it.
        if _libc.prctl(_PR_SET_PDEATHSIG, int(launch.death_signal), 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
        if os.getppid() != parent:
            os._exit(1)

    descriptor = os.open(launch.log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        return subprocess.Popen(
            launch.command,
            cwd=launch.directory,
            env=launch.environment,
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            start_new_session=True,
            umask=0o077,
            preexec_fn=before_exec,  # noqa: PLW1509 - it takes no lock that another thread could hold
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ServerFailed(f"{launch.name} cannot be started as {launch.identity.description}: {error}") from error
    finally:
        os.close(descriptor)


async def stop_process(
    process: subprocess.Popen[bytes], signals: tuple[signal.Signals, ...], params: KeepParams
) -> None:
    """Each signal in turn with its grace, then SIGKILL to the group; returns when the process is gone."""
    for number in signals:
        if process.poll() is not None:
            return
        process.send_signal(number)
        if await poll_until(lambda: process.poll() is not None, params.stop_grace_s, params.poll_s):
            return
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        await poll_until(lambda: process.poll() is not None, params.stop_grace_s, params.poll_s)


async def poll_until(condition: Callable[[], bool], within_s: float, poll_s: float) -> bool:
    """True once the condition holds; False when `within_s` was not enough."""
    loop = asyncio.get_running_loop()
    end = loop.time() + within_s
    while not condition():
        if loop.time() > end:
            return False
        await asyncio.sleep(poll_s)
    return True


def log_tail(path: Path, start: int = 0) -> str:
    """The end of what a log says from `start` on."""
    try:
        with path.open("rb") as file:
            file.seek(max(start, file.seek(0, os.SEEK_END) - _LOG_TAIL_BYTES))
            return file.read().decode("utf-8", "replace").strip()
    except OSError:
        return ""


def _rotate(path: Path, max_bytes: int) -> int:
    """Puts a log that has grown too large aside; gives the size of the one now written to."""
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return 0
    if size <= max_bytes:
        return size
    path.replace(path.with_name(path.name + ".old"))
    return 0
