"""The node agent: holds a part of a node for a gateway, and starts and ends workers there as it is told.

`python -m runtime.agent --connect unix:/path|tcp:host:port --token T --ident NAME --scratch DIR`. It dials the
gateway, reports what it holds and obeys. When its gateway is gone, or it gets SIGTERM, it ends every worker and leaves.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import resource
import signal
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

from runtime import linux, machine
from runtime.environments import Environments
from runtime.gateway_link import BadAddress, GatewayLink, dial, parse_address
from runtime.messages import (
    PROTOCOL_VERSION,
    DropEnvironment,
    Hello,
    LoadEnvironment,
    Message,
    Report,
    Shutdown,
    StartWorker,
    StopWorker,
)
from runtime.process_setup import INHERITED_VARIABLES
from runtime.scratch import Scratch
from runtime.spec import WorkerSpec
from runtime.worker_table import WorkerTable
from runtime.zygote_process import Installation, ZygoteProcess

log = logging.getLogger("samovar.agent")

#: The one slice of an agent that was not told to cut its node otherwise.
SLICE_ID, SLICE_KIND = "cpu", "cpu"
#: SIGTERM to SIGKILL for workers when the agent itself is told to leave, and when its gateway is gone.
TERMINATED_GRACE_S = 2.0
ORPHANED_GRACE_S = 1.0
#: Beyond the grace: for killed processes to be gone, and then for zygotes.
END_LIMIT_S = 2.0
#: After a zygote's end: how often, and in how many rounds without any, its workers' leftovers are looked for.
BURIAL_PAUSE_S = 0.03
BURIAL_QUIET_ROUNDS = 4


@dataclass(frozen=True)
class AgentParams:
    """What an agent is started with."""

    connect: str
    token: str
    ident: str
    scratch: Path
    memory_bytes: int
    cpu_millis: int
    workers_max: int


class Agent:
    """See the module. Make it inside a running loop."""

    def __init__(self, params: AgentParams) -> None:
        self._params = params
        self._scratch = Scratch(params.scratch)
        self._link = GatewayLink(self._on_message)
        self._workers = WorkerTable(self._scratch, params.workers_max, self._link.send, lambda: self._link.congested)
        self._environments = Environments(self._installation(), self._link.send, self)
        self._burial: asyncio.Task[None] | None = None
        #: Set when it is time to leave: why, and the workers' grace in seconds.
        self._leave: asyncio.Future[tuple[str, float]] = asyncio.get_running_loop().create_future()

    def _installation(self) -> Installation:
        home = self._params.scratch / ".zygote"
        here = Path(__file__).resolve().parent
        import msgpack

        variables = {name: os.environ[name] for name in INHERITED_VARIABLES if name in os.environ}
        variables |= {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(home),
            "TMPDIR": str(home),
            "LANG": "C.UTF-8",
            # torch then asks the driver's management library instead of initialising CUDA
            "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
        }
        return Installation(
            bootstrap=str(here / "bootstrap.py"),
            runtime_dir=str(here.parent),
            msgpack_dir=str(Path(msgpack.__file__).resolve().parent.parent),
            variables=variables,
        )

    # -- life --------------------------------------------------------------------------------------------

    async def run(self) -> int:
        """Dial, report, obey until it is time to leave. Gives the exit status."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._leave_because, "SIGTERM", TERMINATED_GRACE_S)
        self._scratch.prepare()
        (self._scratch.root / ".zygote").mkdir(mode=0o700, exist_ok=True)
        linux.inherit_orphans()
        sock = await dial(self._params.connect)
        await loop.create_connection(lambda: self._link, sock=sock)
        self._link.ended.add_done_callback(lambda done: self._leave_because(done.result(), ORPHANED_GRACE_S))
        self._introduce()
        why, grace_s = await self._leave
        log.info("leaving: %s", why)
        await self._end_all(grace_s)
        return 0

    def _introduce(self) -> None:
        params = self._params
        self._link.send(Hello("agent", params.ident, params.token, PROTOCOL_VERSION, os.getpid()))
        whole = [SLICE_ID, SLICE_KIND, params.cpu_millis, params.memory_bytes, params.workers_max]
        self._link.send(Report(socket.gethostname(), [whole], [], []))

    def _leave_because(self, why: str, grace_s: float) -> None:
        if not self._leave.done():
            self._leave.set_result((why, grace_s))

    async def _end_all(self, grace_s: float) -> None:
        await self._workers.stop_all(grace_s, END_LIMIT_S)
        zygotes = list(self._environments.zygotes)
        for zygote in zygotes:
            zygote.hang_up()
        try:
            await asyncio.wait_for(asyncio.gather(*(zygote.gone.wait() for zygote in zygotes)), END_LIMIT_S)
        except TimeoutError:
            for zygote in zygotes:
                zygote.kill()
            await asyncio.gather(*(zygote.gone.wait() for zygote in zygotes))
        await self._bury_strays()
        self._link.close()

    # -- orders ------------------------------------------------------------------------------------------

    def _on_message(self, message: Message) -> None:
        if self._leave.done():
            return  # too late; the gateway hears of every end
        if isinstance(message, StartWorker):
            self._workers.start(WorkerSpec.from_dict({**message.spec, "worker": message.worker}), self._environments)
        elif isinstance(message, StopWorker):
            self._workers.stop(message.worker, message.grace_ms)
        elif isinstance(message, LoadEnvironment):
            self._environments.load(message.environment, message.python, message.preload)
        elif isinstance(message, DropEnvironment):
            self._environments.drop(message.environment)
        elif isinstance(message, Shutdown):
            self._leave_because("the gateway says so", message.grace_ms / 1000)
        else:
            log.error("the gateway sent %s, which is no order", type(message).__name__)

    # -- runtime.zygote_process.ZygoteListener -----------------------------------------------------------

    def worker_started(self, worker: str, pid: int) -> None:
        """A worker's process exists."""
        self._workers.started(worker, pid)

    def worker_exited(self, worker: str, code: int, signum: int, note: str) -> None:
        """A worker's process is gone, with its group."""
        self._workers.exited(worker, code, signum, note)

    def zygote_ended(self, zygote: ZygoteProcess, why: str) -> None:
        """A zygote is gone. What its workers had started is now ours to end."""
        self._environments.zygote_ended(zygote, why)
        if not self._leave.done():
            self._burial = asyncio.get_running_loop().create_task(self._bury_strays())

    async def _bury_strays(self) -> None:
        """Kill and forget every child that is no zygote, until no more come: a zygote's workers die after it."""
        quiet_rounds = 0
        while quiet_rounds < BURIAL_QUIET_ROUNDS:
            quiet_rounds += 1
            zygotes = {zygote.pid for zygote in self._environments.zygotes if not zygote.gone.is_set()}
            for pid in linux.own_children():
                if pid not in zygotes:
                    quiet_rounds = 0
                    try:
                        os.kill(pid, signal.SIGKILL)
                        os.waitpid(pid, os.WNOHANG)  # noqa: ASYNC222 - does not wait; else in the next round
                    except (ProcessLookupError, ChildProcessError):
                        pass  # waited for elsewhere
            await asyncio.sleep(BURIAL_PAUSE_S)


def parse(arguments: list[str]) -> tuple[AgentParams, bool]:
    """The command line; whether to die with the parent. Exits with status 2 and a message for bad ones."""
    parser = argparse.ArgumentParser(prog="python -m runtime.agent", description="Hold a part of a node for a gateway.")
    parser.add_argument("--connect", required=True, help="unix:/path or tcp:host:port of the gateway")
    parser.add_argument("--token", required=True, help="one-time token to introduce itself with")
    parser.add_argument("--ident", required=True, help="name to introduce itself with")
    parser.add_argument("--scratch", required=True, type=Path, help="directory for workers' private directories")
    parser.add_argument("--memory-bytes", type=int, default=0, help="memory to offer; 0: what is here less a reserve")
    parser.add_argument("--cpu-millis", type=int, default=0, help="thousandths of a processor; 0: what is here")
    parser.add_argument("--max-workers", type=int, default=512)
    parser.add_argument("--die-with-parent", action="store_true")
    given = parser.parse_args(arguments)
    try:
        parse_address(given.connect)
    except BadAddress as error:
        parser.error(str(error))
    for name in ("memory_bytes", "cpu_millis", "max_workers"):
        if getattr(given, name) < 0:
            parser.error(f"--{name.replace('_', '-')} must not be negative")
    params = AgentParams(
        given.connect,
        given.token,
        given.ident,
        given.scratch.absolute(),
        given.memory_bytes or machine.memory_bytes(),
        given.cpu_millis or machine.cpu_millis(),
        given.max_workers,
    )
    return params, given.die_with_parent


def main() -> int:
    """The process."""
    parent = os.getppid()
    params, die_with_parent = parse(sys.argv[1:])
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    if die_with_parent:
        linux.die_with_parent(signal.SIGTERM, parent)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for the parent, who tells us
    linux.name_process("samovar-agent")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # two pipes a worker

    async def run() -> int:
        return await Agent(params).run()

    try:
        return asyncio.run(run())
    except OSError as error:
        log.error("the agent cannot work: %s", error)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
