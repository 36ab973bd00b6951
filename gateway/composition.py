"""The whole system on one page: every part is built here and gets exactly what it uses.

`House.open` starts things in the order in which they need each other; closing goes the other way round, calls first:
no new ones, those under way may end, then workers, records, services.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import time
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any

import uv
from aiohttp import web

from gateway.activator import Activator, ActivatorParams
from gateway.announcement import Announcement, announce, withdraw
from gateway.controller import Controller, ControllerParams
from gateway.coordination import Coordination
from gateway.database.database import Database
from gateway.database.migrations import migrate
from gateway.deploy.archive import ArchiveLimits
from gateway.deploy.bundles import BundleStore
from gateway.deploy.environments import EnvironmentParams, EnvironmentStore
from gateway.deploy.interpreters import own_base_python
from gateway.deploy.pipeline import Deployer, DeployParams
from gateway.embedded.data_directory import DataLock, socket_directory
from gateway.embedded.postgres import EmbeddedPostgres
from gateway.embedded.valkey import EmbeddedValkey
from gateway.errors import Unavailable
from gateway.explain import Explanations
from gateway.function_logs import FunctionLogs
from gateway.gauges import publish_calls, publish_metering
from gateway.identifiers import Uuid7
from gateway.links.agent import AgentLink
from gateway.links.listener import Desk, LinkParams, listen_unix
from gateway.local_agent import LocalAgent, LocalAgentParams
from gateway.metering.journal import Journal
from gateway.metering.record import MeteringRecord
from gateway.metering.usage import Usage
from gateway.metering.writer import Writer
from gateway.prover import PoolProver
from gateway.registry import Registry
from gateway.settings import MIB, Settings
from gateway.tokens import Tokens
from gateway.traffic import Traffic
from gateway.views import PoolView
from gateway.web.api import ApiParams, ApiServices, build_api
from gateway.web.http1 import Front, FrontParams
from gateway.web.metrics import Metrics
from warmpool.pool import WarmPool
from warmpool.values import PoolParams

log = logging.getLogger("gateway")

#: Between two looks for idle client connections.
SWEEP_S = 5.0


class _NoJournal:
    """Metering switched off by the operator."""

    def append(self, record: MeteringRecord) -> None:
        """Forget it."""


class House:
    """One gateway process: `open` builds and starts it, leaving the context stops all of it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stack = AsyncExitStack()
        self._waiting_for: list[str] = ["start"]
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> House:
        await self._stack.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def open(self) -> None:
        """Start everything; returns when calls can be served."""
        settings, stack = self._settings, self._stack
        data = settings.data
        lock = DataLock(data)
        lock.acquire()
        stack.callback(lock.release)

        database, valkey_url = await self._open_services()
        registry = Registry(database, time.time)
        await registry.load()
        coordination = Coordination(valkey_url, lambda namespace, function: self._spawn(_reload(registry)))
        await coordination.start()
        stack.push_async_callback(coordination.stop)
        tokens = Tokens(database, time.time)
        await tokens.load()
        local_token = await tokens.ensure_local_token(data / "token")

        metrics = Metrics()
        journal, writer = self._open_metering(database)
        ledger = journal if journal is not None else _NoJournal()
        if journal is not None and writer is not None:
            publish_metering(metrics, journal, writer)

        logs = FunctionLogs(data / "logs")
        stack.push_async_callback(logs.close)
        explanations = Explanations()

        sockets = socket_directory(data, "links", "links.sock")
        desk = Desk(LinkParams())
        links = await listen_unix(desk, sockets / "links.sock")
        stack.callback(desk.close_all)
        stack.callback(links.close)

        bundles = BundleStore(data / "bundles", ArchiveLimits())
        pool = WarmPool(PoolParams(worker_prefix=f"w{os.getpid()}-{int(time.time()):x}"))
        controller = Controller(
            pool,
            desk,
            connect=f"unix:{sockets / 'links.sock'}",
            scratch_root=str(data / "scratch"),
            bundle_dir=lambda digest: str(bundles.path(digest)),
            logs=logs,
            explanations=explanations,
            params=ControllerParams(),
        )
        traffic = Traffic(controller, registry.account, registry.price_version)
        activator = Activator(
            traffic.lookup,
            tokens,
            controller,
            ledger,
            Uuid7(),
            metrics.observe_record,
            ActivatorParams(),
        )
        controller.attach(activator)
        for function in registry.functions(None):
            live = registry.lookup(function.namespace, function.name)
            if live is not None:
                traffic.serve(live)
        registry.subscribe(traffic.on_change)
        registry.subscribe(coordination.on_change)

        environments = EnvironmentStore(data / "environments", uv.find_uv_bin(), own_base_python(), EnvironmentParams())
        stack.push_async_callback(environments.close)
        deployer = Deployer(registry, bundles, environments, PoolProver(controller), DeployParams())

        view = PoolView(controller)
        front = self._open_front(
            activator,
            ApiServices(
                tokens=tokens,
                registry=registry,
                deployer=deployer,
                pool=view,
                explanations=explanations,
                logs=logs,
                usage=Usage(database, writer),
                waiting_for=self.waiting_for,
                metrics=metrics,
            ),
        )
        publish_calls(metrics, activator, controller, view, front)
        await self._start_agent(desk, controller)
        await self._listen(front, activator, local_token)

    async def _open_services(self) -> tuple[Database, str]:
        """PostgreSQL and Redis: the operator's, or our own. Gives the database and Redis's URL."""
        settings, stack = self._settings, self._stack
        dsn, url = settings.database.url, settings.redis.url
        starts = []
        if not dsn:
            postgres = EmbeddedPostgres(settings.data)
            stack.push_async_callback(postgres.stop)
            starts.append(postgres.start())
        if not url:
            valkey = EmbeddedValkey(settings.data)
            stack.push_async_callback(valkey.stop)
            starts.append(valkey.start())
        addresses = iter(await asyncio.gather(*starts))
        dsn = dsn or next(addresses)
        url = url or next(addresses)
        database = Database(dsn)
        await database.open()
        stack.push_async_callback(database.close)
        await migrate(database)
        return database, url

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something beside the calls, and hold it until it ends."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _open_metering(self, database: Database) -> tuple[Journal | None, Writer | None]:
        if not self._settings.metering.enabled:
            return None, None
        journal = Journal(self._settings.data / "journal")
        self._stack.callback(journal.close)
        writer = Writer(journal, database)
        writer.start()

        async def last_records() -> None:
            try:
                await writer.flush()
            except Unavailable as error:
                log.warning("records stay in the journal until the next start: %s", error)
            await writer.stop()

        self._stack.push_async_callback(last_records)
        return journal, writer

    def _open_front(self, activator: Activator, services: ApiServices) -> Front:
        uploads = self._settings.data / "uploads"
        shutil.rmtree(uploads, ignore_errors=True)  # what a killed gateway left half-way
        uploads.mkdir(mode=0o700)
        api = build_api(services, ApiParams(upload_directory=uploads))
        runner = web.AppRunner(api, access_log=None, handle_signals=False)
        self._runner = runner

        def api_protocol() -> asyncio.Protocol:
            assert runner.server is not None
            return runner.server()

        return Front(activator.begin, api_protocol, FrontParams(), time.monotonic)

    async def _start_agent(self, desk: Desk, controller: Controller) -> None:
        """The pool on this machine."""
        local, data = self._settings.local, self._settings.data
        stack = self._stack
        if local.enabled:
            params = LocalAgentParams(
                connect=controller.connect,
                scratch=data / "scratch",
                memory_bytes=local.memory_mib * MIB,
                cpu_millis=local.cpu_millis,
                workers_max=local.workers_max,
            )
            agent = LocalAgent(desk, lambda connection: AgentLink(LocalAgent.IDENT, connection, controller), params)
            await agent.start()
            stack.push_async_callback(agent.stop)
            await controller.agent_joined()
        controller.start_ticking()
        stack.callback(controller.stop_ticking)

    async def _listen(self, front: Front, activator: Activator, local_token: str) -> None:
        settings, stack = self._settings, self._stack
        await self._runner.setup()
        stack.push_async_callback(self._runner.cleanup)
        loop = asyncio.get_running_loop()
        server = await loop.create_server(front, settings.server.host, settings.server.port, backlog=4096)

        async def leave() -> None:
            """The first thing at the end: no new connections, calls under way may finish."""
            self._waiting_for.append("shutdown")
            server.close()
            front.drain()
            if not await activator.drained(settings.server.drain_s):
                activator.cut_all(Unavailable("the gateway was shut down", retry_after_s=2.0))
            front.drain()

        stack.push_async_callback(leave)
        sweeper = asyncio.create_task(_sweep(front), name="connection sweeper")
        stack.callback(sweeper.cancel)
        host, port = server.sockets[0].getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        url = f"http://{shown}:{port}"
        written = announce(
            Announcement(url, local_token, os.getpid(), str(settings.data), time.time()), dict(os.environ)
        )
        stack.callback(withdraw, written)
        self._waiting_for.clear()
        log.info("ready at %s, data in %s", url, settings.data)

    def waiting_for(self) -> list[str]:
        """What is missing before calls can be served; empty: nothing."""
        return list(self._waiting_for)


async def _reload(registry: Registry) -> None:
    try:
        await registry.reload()
    except Unavailable as error:
        log.warning("another gateway's change is not read yet: %s", error)


async def _sweep(front: Front) -> None:
    while True:
        await asyncio.sleep(SWEEP_S)
        front.sweep()
