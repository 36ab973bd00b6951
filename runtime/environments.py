"""The environments that an agent holds: a zygote each, made anew when more is to be imported before the fork.

A zygote never changes once it is loaded. When an environment is to have more modules, another zygote is made beside
the first and takes its place if it may be forked; the first ends with its last worker. So an import that
crashes, hangs or starts a thread harms no running worker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import NamedTuple

from runtime.messages import EnvironmentFailed, EnvironmentLoaded, Message
from runtime.zygote_process import Installation, Loaded, ZygoteFailed, ZygoteListener, ZygoteProcess

log = logging.getLogger("samovar.agent")

#: Zygotes held at once, old ones with workers not counted.
ENVIRONMENTS_MAX = 128
#: Modules imported for one environment, over all its functions.
PRELOAD_MAX = 4_000


class Launcher(NamedTuple):
    """Where a worker of an environment comes from. `note` is empty for a zygote that was there already."""

    zygote: ZygoteProcess
    spawn: bool
    note: str


@dataclass
class _Environment:
    name: str
    python: str
    #: Everything that was ever asked to be imported, in order.
    wanted: list[str] = field(default_factory=list)
    zygote: ZygoteProcess | None = None
    #: The zygote may not be forked: workers are spawned. `note` says why.
    spawn: bool = False
    note: str = ""
    #: The zygote was made with imports, or may not be forked whatever is imported.
    settled: bool = False
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Environments:
    """See the module. `report` takes messages for the gateway."""

    def __init__(self, installation: Installation, report: Callable[[Message], None], listener: ZygoteListener) -> None:
        self._installation = installation
        self._report = report
        self._listener = listener
        self._table: dict[str, _Environment] = {}
        #: Every zygote whose process has not been waited for.
        self.zygotes: set[ZygoteProcess] = set()
        self._orders: set[asyncio.Task[None]] = set()

    # -- for workers -------------------------------------------------------------------------------------

    async def launcher(self, name: str, python: str) -> Launcher:
        """A zygote to start a worker from; made if there is none, waited for if it is being made.

        Raises ZygoteFailed.
        """
        environment = self._environment(name, python)
        if environment.zygote is not None:
            return Launcher(environment.zygote, environment.spawn, environment.note if environment.spawn else "")
        async with environment.lock:
            note = "waited for its environment to be loaded"
            if environment.zygote is None:
                await self._make_bare(environment)
                note = "its environment was not loaded yet, and was loaded without imports"
            assert environment.zygote is not None
            return Launcher(environment.zygote, environment.spawn, environment.note if environment.spawn else note)

    def _environment(self, name: str, python: str) -> _Environment:
        environment = self._table.get(name)
        if environment is None:
            if len(self._table) >= ENVIRONMENTS_MAX:
                raise ZygoteFailed(f"this agent holds its maximum of {ENVIRONMENTS_MAX} environments")
            environment = self._table[name] = _Environment(name, python)
        return environment

    async def _make(self, environment: _Environment, preload: list[str]) -> tuple[ZygoteProcess, Loaded]:
        zygote = ZygoteProcess(environment.python, self._installation, self._listener)
        self.zygotes.add(zygote)
        try:
            loaded = await zygote.start(preload)
        except BaseException:
            if not zygote.alive:
                self.zygotes.discard(zygote)
            raise
        return zygote, loaded

    async def _make_bare(self, environment: _Environment) -> None:
        """A zygote without imports: for forking if it may be, else to spawn workers from."""
        try:
            zygote, loaded = await self._make(environment, [])
        except ZygoteFailed:
            self._table.pop(environment.name, None)
            raise
        environment.zygote, environment.spawn, environment.note = zygote, not loaded.forkable, loaded.note
        environment.settled = environment.spawn

    # -- orders ------------------------------------------------------------------------------------------

    def load(self, name: str, python: str, preload: list[str]) -> None:
        """Have a zygote with these modules imported, beside those asked for before; reports how it went."""
        self._keep(self._load(name, python, preload))

    def _keep(self, order: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(order)
        self._orders.add(task)
        task.add_done_callback(self._orders.discard)

    async def _load(self, name: str, python: str, preload: list[str]) -> None:
        try:
            environment = self._environment(name, python)
            async with environment.lock:
                load_us, note = await self._load_locked(environment, preload)
                mode = "spawn" if environment.spawn else "zygote"
                self._report(EnvironmentLoaded(name, mode, load_us, environment.note if environment.spawn else note))
        except ZygoteFailed as error:
            self._report(EnvironmentFailed(name, str(error)))
        except Exception as error:
            log.exception("environment %s", name)
            self._report(EnvironmentFailed(name, f"{type(error).__name__}: {error}"))

    async def _load_locked(self, environment: _Environment, preload: list[str]) -> tuple[int, str]:
        """Gives the time it took and what is to be noted of it."""
        known = set(environment.wanted)
        new = [module for module in dict.fromkeys(preload) if module not in known]
        new = new[: PRELOAD_MAX - len(known)]
        if environment.zygote is not None and not new:
            return 0, environment.note
        environment.wanted += new
        if not environment.wanted:
            await self._make_bare(environment)
            return 0, environment.note
        try:
            zygote, loaded = await self._make(environment, environment.wanted)
        except ZygoteFailed as error:
            return 0, await self._fall_back(environment, str(error))
        if not loaded.forkable:
            zygote.retire()
            return loaded.load_us, await self._fall_back(environment, loaded.note)
        before = environment.zygote
        environment.zygote, environment.spawn, environment.note = zygote, False, loaded.note
        environment.settled = True
        if before is not None:
            before.retire()
        return loaded.load_us, loaded.note

    async def _fall_back(self, environment: _Environment, reason: str) -> str:
        """These imports forbid forking. A zygote with earlier imports stays in use; else workers are spawned."""
        if environment.zygote is None:
            await self._make_bare(environment)
        if not environment.settled:
            environment.spawn, environment.note = True, reason
        return reason

    def drop(self, name: str) -> None:
        """Do without this environment; its workers go on."""
        environment = self._table.pop(name, None)
        if environment is not None:
            self._keep(self._retire(environment))

    async def _retire(self, environment: _Environment) -> None:
        async with environment.lock:  # it may just be loading
            if environment.zygote is not None:
                environment.zygote.retire()

    def zygote_ended(self, zygote: ZygoteProcess, why: str) -> None:
        """Its process is gone."""
        self.zygotes.discard(zygote)
        for environment in list(self._table.values()):
            if environment.zygote is zygote:
                environment.zygote = None
                environment.settled = environment.spawn = False
                environment.wanted.clear()
                self._report(EnvironmentFailed(environment.name, why))
