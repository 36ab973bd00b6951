"""The pool on this machine: keeps one node agent running beside the gateway, as Slurm would in an allocation.

The same agent program, the same link, the same orders as on a compute node: only who starts it differs. It dies
with the gateway, and is started again, with a growing pause, when it dies alone.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gateway.links.listener import Desk, LinkConnection, Receiver

log = logging.getLogger("gateway.local")


@dataclass(frozen=True)
class LocalAgentParams:
    """How the local agent is started and kept."""

    connect: str
    scratch: Path
    #: 0: what the machine has.
    memory_bytes: int = 0
    cpu_millis: int = 0
    workers_max: int = 512
    restart_pause_s: float = 0.5
    restart_pause_max_s: float = 30.0
    stop_grace_s: float = 5.0


class LocalAgent:
    """See the module."""

    IDENT = "local"

    def __init__(self, desk: Desk, make: Callable[[LinkConnection], Receiver], params: LocalAgentParams) -> None:
        self._desk = desk
        self._make = make
        self._params = params
        self._process: asyncio.subprocess.Process | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._stopping = False

    async def start(self) -> None:
        """Start the agent and keep it running."""
        await self._launch()
        self._keeper = asyncio.create_task(self._keep(), name="local agent keeper")

    async def _launch(self) -> None:
        params = self._params
        token = secrets.token_urlsafe(24)
        self._desk.expect("agent", self.IDENT, token, self._make)
        command = [sys.executable, "-m", "runtime.agent"]
        command += ["--connect", params.connect, "--token", token, "--ident", self.IDENT]
        command += ["--scratch", str(params.scratch), "--max-workers", str(params.workers_max), "--die-with-parent"]
        if params.memory_bytes:
            command += ["--memory-bytes", str(params.memory_bytes)]
        if params.cpu_millis:
            command += ["--cpu-millis", str(params.cpu_millis)]
        self._process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.DEVNULL)

    async def _keep(self) -> None:
        pause_s = self._params.restart_pause_s
        while not self._stopping:
            assert self._process is not None
            code = await self._process.wait()
            if self._stopping:
                return
            log.error("the local node agent ended with code %s; starting another in %.1f s", code, pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, self._params.restart_pause_max_s)
            await self._launch()

    async def stop(self) -> None:
        """End the agent and all its workers, within the grace."""
        self._stopping = True
        process = self._process
        if process is not None and process.returncode is None:
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), self._params.stop_grace_s)
            except TimeoutError:
                process.kill()
                await process.wait()
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)

    @property
    def pid(self) -> int:
        """The agent's process, 0 when there is none."""
        return self._process.pid if self._process is not None else 0
