"""The workers that an agent holds, each from the order to start it until it was reported gone."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from runtime import scratch as scratch_dirs
from runtime.control import OversizedPacket
from runtime.environments import Environments
from runtime.gateway_link import BadAddress, dial
from runtime.log_lines import LogRate
from runtime.log_pipe import WorkerLog
from runtime.messages import Exited, Log, Message, Started
from runtime.process_setup import start_variables
from runtime.scratch import Scratch
from runtime.spec import WorkerSpec
from runtime.zygote_process import ZygoteFailed, ZygoteProcess

log = logging.getLogger("samovar.agent")


@dataclass
class _Worker:
    spec: WorkerSpec
    ordered_at: float
    task: asyncio.Task[None] | None = None
    zygote: ZygoteProcess | None = None
    log: WorkerLog | None = None
    scratch: Path | None = None
    how: str = ""
    note: str = ""
    stop_timer: asyncio.TimerHandle | None = None
    ending: list[str] = field(default_factory=list)


class WorkerTable:
    """See the module. `report` takes messages for the gateway; `congested` says that logs have no room there."""

    def __init__(
        self, scratch: Scratch, workers_max: int, report: Callable[[Message], None], congested: Callable[[], bool]
    ) -> None:
        self._scratch = scratch
        self._workers_max = workers_max
        self._report = report
        self._congested = congested
        self._table: dict[str, _Worker] = {}
        self._empty = asyncio.Event()
        self._empty.set()
        self._removals: set[asyncio.Future[None]] = set()

    def names(self) -> list[str]:
        """Workers held, starting and stopping ones included."""
        return list(self._table)

    # -- starting ----------------------------------------------------------------------------------------

    def start(self, spec: WorkerSpec, environments: Environments) -> None:
        """Start a worker; reports Started and, at its end or when it cannot be started, Exited."""
        name = spec.worker
        if name in self._table:
            log.error("worker %s was ordered twice", name)
            return
        if len(self._table) >= self._workers_max:
            self._report(Exited(name, -1, 0, f"this agent holds its maximum of {self._workers_max} workers"))
            return
        worker = self._table[name] = _Worker(spec, time.monotonic())
        self._empty.clear()
        worker.task = asyncio.get_running_loop().create_task(self._start(worker, environments))

    async def _start(self, worker: _Worker, environments: Environments) -> None:
        connection = -1
        try:
            if not self._holds(worker):
                return
            spec = worker.spec = self._with_scratch(worker)
            launcher = await environments.launcher(spec.environment, spec.python)
            # Only now: the gateway does not wait long for a connection to introduce itself.
            connection = (await dial(spec.connect)).detach()
            if not launcher.zygote.usable:  # dropped while we dialled
                launcher = await environments.launcher(spec.environment, spec.python)
            if not self._holds(worker):
                return
            at_start = start_variables(spec)
            spawn = launcher.spawn or bool(at_start)
            worker.how = "spawn" if spawn else "zygote"
            worker.note = launcher.note
            if at_start and not launcher.spawn:
                worker.note = f"spawned because {', '.join(at_start)} must be set when the process starts"
            worker.log = WorkerLog(self._emitter(spec.worker), LogRate())
            descriptors, connection = [connection, *worker.log.hand_over()], -1
            launcher.zygote.start_worker(spec, spawn, descriptors)
            worker.zygote = launcher.zygote
        except (OSError, ValueError, ZygoteFailed, OversizedPacket, BadAddress) as error:
            self._gone(worker, -1, 0, f"it could not be started: {error or type(error).__name__}")
        except Exception as error:
            log.exception("worker %s", worker.spec.worker)
            self._gone(worker, -1, 0, f"it could not be started: {type(error).__name__}: {error}")
        finally:
            if connection >= 0:
                os.close(connection)

    def _holds(self, worker: _Worker) -> bool:
        """It was not stopped meanwhile."""
        return self._table.get(worker.spec.worker) is worker

    def _with_scratch(self, worker: _Worker) -> WorkerSpec:
        spec = worker.spec
        place = Path(spec.scratch_dir) if spec.scratch_dir else self._scratch.path_for(spec.worker)
        scratch_dirs.make(place)
        worker.scratch = place
        return replace(spec, scratch_dir=str(place))

    def _emitter(self, name: str) -> Callable[[str, list[bytes]], bool]:
        def emit(stream: str, lines: list[bytes]) -> bool:
            if self._congested():
                return False
            self._report(Log(name, stream, lines))
            return True

        return emit

    def started(self, name: str, pid: int) -> None:
        """Its process exists."""
        worker = self._table.get(name)
        if worker is not None:
            start_us = int((time.monotonic() - worker.ordered_at) * 1e6)
            self._report(Started(name, pid, worker.how, start_us, worker.note))

    # -- stopping ----------------------------------------------------------------------------------------

    def stop(self, name: str, grace_ms: int) -> None:
        """End a worker; unknown ones are gone already."""
        worker = self._table.get(name)
        if worker is None:
            return
        if worker.zygote is None:
            self._gone(worker, -1, 0, "stopped before it was started")
            return
        if worker.stop_timer is not None:
            worker.stop_timer.cancel()
        if grace_ms <= 0:
            self._kill(worker, "")
            return
        worker.zygote.signal_worker(name, signal.SIGTERM)
        note = f"it did not end within {grace_ms} ms of SIGTERM"
        worker.stop_timer = asyncio.get_running_loop().call_later(grace_ms / 1000, self._kill, worker, note)

    def _kill(self, worker: _Worker, note: str) -> None:
        if worker.zygote is not None:
            if note:
                worker.ending.append(note)
            worker.zygote.kill_worker(worker.spec.worker)

    async def stop_all(self, grace_s: float, limit_s: float) -> None:
        """End every worker, and wait at most `limit_s` beyond the grace until all are gone."""
        for name in list(self._table):
            self.stop(name, int(grace_s * 1000))
        try:
            await asyncio.wait_for(self._empty.wait(), grace_s + limit_s)
        except TimeoutError:
            log.error("workers that do not end: %s", ", ".join(self._table))

    def exited(self, name: str, code: int, signum: int, note: str) -> None:
        """Its process is gone, with its group."""
        worker = self._table.get(name)
        if worker is not None:
            self._gone(worker, code, signum, note)

    def _gone(self, worker: _Worker, code: int, signum: int, note: str) -> None:
        name = worker.spec.worker
        if self._table.pop(name, None) is None:
            return
        if worker.stop_timer is not None:
            worker.stop_timer.cancel()
        if worker.log is not None:
            worker.log.finish()
        self._report(Exited(name, code, signum, "; ".join(filter(None, [note, *worker.ending]))))
        if worker.scratch is not None:
            removal = asyncio.get_running_loop().run_in_executor(None, scratch_dirs.remove, worker.scratch)
            self._removals.add(removal)
            removal.add_done_callback(self._removals.discard)
        if not self._table:
            self._empty.set()
