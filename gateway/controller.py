"""Carries out what the pool decides, and tells it what happened. The only owner of the live `WarmPool`.

Events are stamped here with the one clock, handled in order (an event caused by a command waits its turn), and
every command has its few lines of effect below. No decision is taken here.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from gateway.call import Call
from gateway.catalog import Revision
from gateway.errors import SamovarError, WorkerBroke, WorkerUnreachable
from gateway.links.agent import AgentLink
from gateway.links.listener import Desk, LinkConnection
from gateway.links.worker import WorkerLink, fail_calls
from gateway.live_workers import LiveWorker, ending_of, for_callers
from gateway.proofs import Proofs
from gateway.revisions import revision_spec, worker_spec
from runtime import messages as wire
from warmpool import commands, events
from warmpool.pool import WarmPool
from warmpool.values import Slice

log = logging.getLogger("gateway.controller")


@dataclass(frozen=True)
class ControllerParams:
    """Bounds of carrying out."""

    tick_s: float = 0.1
    #: SIGTERM to SIGKILL for a worker that is not needed any more.
    stop_grace_s: float = 2.0
    #: A worker's connection ended: how long its exit code is waited for before its callers are told without it.
    exit_code_wait_s: float = 1.5


class Rejections(Protocol):
    """The activator, as the controller sees it."""

    def call(self, invocation: str) -> Call | None:
        """A call that has not been answered."""

    def reject(self, command: commands.Reject, detail: SamovarError | None) -> None:
        """Answer it without running it."""


class LogSink(Protocol):
    """Where workers' lines go."""

    def append(
        self, namespace: str, function: str, revision: int, worker: str, stream: str, lines: list[bytes], at: float
    ) -> None:
        """Keep these lines."""


class Explanations(Protocol):
    """Where decisions go for `samovar explain`."""

    def record(
        self, namespace: str, function: str, revision: int, decision: str, reason: str, worker: str, at: float
    ) -> None:
        """Keep this decision."""


class Controller:
    """See the module."""

    def __init__(
        self,
        pool: WarmPool,
        desk: Desk,
        connect: str,
        scratch_root: str,
        bundle_dir: Callable[[str], str],
        logs: LogSink,
        explanations: Explanations,
        params: ControllerParams,
    ) -> None:
        self._pool = pool
        self._desk = desk
        #: Where workers dial us.
        self.connect = connect
        self._scratch_root = scratch_root
        self._bundle_dir = bundle_dir
        self._logs = logs
        self._explanations = explanations
        self._params = params
        self._activator: Rejections
        self._inbox: deque[events.Event] = deque()
        self._handling = False
        self._agents: dict[str, AgentLink] = {}
        self._workers: dict[str, LiveWorker] = {}
        self._revisions: dict[str, Revision] = {}
        self._start_errors: dict[str, SamovarError] = {}
        self.proofs = Proofs()
        self._agent_waiters: list[asyncio.Future[None]] = []
        self._ticker: asyncio.TimerHandle | None = None
        self.events_handled = 0
        self._effects: dict[type, Callable[..., None]] = {
            commands.Dispatch: self._dispatch,
            commands.Reject: self._reject,
            commands.StartWorker: self._start_worker,
            commands.StopWorker: self._stop_worker,
            commands.LoadEnvironment: self._load_environment,
            commands.DropEnvironment: self._drop_environment,
            commands.Note: self._note,
        }

    def attach(self, activator: Rejections) -> None:
        """The other half of the circle, told once by the composition."""
        self._activator = activator

    # -- events in, commands out -------------------------------------------------------------------------

    def handle(self, event: events.Event) -> None:
        """Give the pool one event and carry out what it answers."""
        self._inbox.append(event)
        if self._handling:
            return
        self._handling = True
        try:
            while self._inbox:
                self.events_handled += 1
                for command in self._pool.handle(self._inbox.popleft(), time.monotonic()):
                    self._effects[type(command)](command)
        finally:
            self._handling = False

    def start_ticking(self) -> None:
        """Begin sending Tick."""
        self._ticker = asyncio.get_running_loop().call_later(self._params.tick_s, self._tick)

    def stop_ticking(self) -> None:
        """No more Tick."""
        if self._ticker is not None:
            self._ticker.cancel()

    def _tick(self) -> None:
        try:
            self.handle(events.Tick())
        finally:
            self.start_ticking()

    # -- gateway.activator.Pool --------------------------------------------------------------------------

    def arrive(self, call: Call) -> None:
        """A call wants a worker."""
        self.handle(events.InvocationArrived(call.invocation, call.route.revision))

    def leave(self, call: Call) -> None:
        """A waiting call does not any more."""
        self.handle(events.InvocationCancelled(call.invocation))

    # -- revisions ---------------------------------------------------------------------------------------

    def revision_changed(self, revision: Revision, reachable: bool) -> None:
        """A revision is there, or is routed or not any more, or its preload is known."""
        self._revisions[revision.key] = revision
        self.handle(events.RevisionChanged(revision_spec(revision, reachable)))

    def revision_removed(self, revision: Revision) -> None:
        """A revision is gone for good."""
        self.handle(events.RevisionRemoved(revision.key))
        self._revisions.pop(revision.key, None)
        self._start_errors.pop(revision.key, None)

    # -- effects -----------------------------------------------------------------------------------------

    def _dispatch(self, command: commands.Dispatch) -> None:
        call = self._activator.call(command.invocation)
        worker = self._workers.get(command.worker)
        if call is None or worker is None or worker.link is None:
            # The call was answered, or the worker lost, in the moment between: its slot is free again.
            if call is not None:
                call.on_worker_lost(WorkerUnreachable("the worker was lost before the call reached it"))
            self.handle(events.InvocationFinished(command.invocation))
            return
        hot = command.start_kind == "hot"
        worker.link.dispatch(
            call, command.start_kind.value, 0 if hot else worker.start_us, 0 if hot else worker.init_us
        )

    def _reject(self, command: commands.Reject) -> None:
        call = self._activator.call(command.invocation)
        detail = self._start_errors.get(call.route.revision) if call and command.code == "start_failed" else None
        self._activator.reject(command, detail)

    def _start_worker(self, command: commands.StartWorker) -> None:
        revision = self._revisions.get(command.revision)
        agent = self._agents.get(command.agent)
        if revision is None or agent is None:
            self.handle(events.WorkerFailed(command.worker, "its agent or revision is gone", False))
            return
        self._explain(revision, "start worker", command.reason, command.worker)
        token = secrets.token_urlsafe(24)
        worker = LiveWorker(revision, command.agent, command.slice_id, time.monotonic())
        self._workers[command.worker] = worker

        def make(connection: LinkConnection) -> WorkerLink:
            worker.link = WorkerLink(command.worker, connection, self)
            worker.pid = connection.pid
            return worker.link

        self._desk.expect("worker", command.worker, token, make)
        spec = worker_spec(
            revision,
            command.worker,
            token,
            connect=self.connect,
            bundle_dir=self._bundle_dir(revision.bundle_digest),
            scratch_root=self._scratch_root,
        )
        agent.start_worker(spec)
        limit = revision.manifest.timeouts.start_s
        worker.deadline = asyncio.get_running_loop().call_later(limit, self._start_overdue, command.worker, limit)

    def _start_overdue(self, name: str, limit_s: float) -> None:
        worker = self._workers.get(name)
        if worker is not None and worker.ready is None:
            message = f"the worker was not ready within the start timeout of {limit_s:g} s"
            self._start_failed(name, worker, WorkerBroke(message), by_function=True)
            self._kill(name, worker)

    def _stop_worker(self, command: commands.StopWorker) -> None:
        worker = self._workers.get(command.worker)
        agent = self._agents.get(command.agent)
        if worker is not None:
            worker.stopping = command.reason
            self._explain(worker.revision, "stop worker", command.reason, command.worker)
        if agent is None:
            self.handle(events.WorkerLost(command.worker, "its agent is gone"))
            return
        agent.stop_worker(command.worker, int(self._params.stop_grace_s * 1000))

    def _load_environment(self, command: commands.LoadEnvironment) -> None:
        agent = self._agents.get(command.agent)
        python = next((r.python for r in self._revisions.values() if r.environment_digest == command.environment), None)
        if agent is None or python is None:
            failed = events.EnvironmentFailed(command.agent, command.environment, "nothing uses it any more")
            self.handle(failed)
            return
        log.info("load environment %s on %s: %s", command.environment, command.agent, command.reason)
        agent.load_environment(command.environment, python, list(command.preload))

    def _drop_environment(self, command: commands.DropEnvironment) -> None:
        agent = self._agents.get(command.agent)
        if agent is not None:
            log.info("drop environment %s on %s: %s", command.environment, command.agent, command.reason)
            agent.drop_environment(command.environment)

    def _note(self, command: commands.Note) -> None:
        revision = self._revisions.get(command.revision)
        if revision is not None:
            self._explain(revision, command.decision, command.reason, "")

    def _explain(self, revision: Revision, decision: str, reason: str, worker: str) -> None:
        log.debug("%s: %s %s: %s", revision.key, decision, worker, reason)
        self._explanations.record(
            revision.namespace, revision.function, revision.number, decision, reason, worker, time.time()
        )

    # -- gateway.links.worker.Supervisor -----------------------------------------------------------------

    def worker_ready(self, worker: str, ready: wire.Ready) -> None:
        """Its handler is loaded."""
        live = self._workers.get(worker)
        if live is None or live.ready is not None or live.failure is not None:
            return
        live.ready = ready
        live.init_us = ready.init_us
        live.start_us = max(0, int((time.monotonic() - live.ordered_at) * 1e6) - ready.init_us)
        if live.deadline is not None:
            live.deadline.cancel()
        self._start_errors.pop(live.revision.key, None)
        note = f"ready after {live.start_us / 1000:.1f} ms of start and {live.init_us / 1000:.1f} ms of loading"
        self._explain(live.revision, "worker ready", note, worker)
        self.proofs.ready(live.revision.key, live)
        self.handle(events.WorkerReady(worker))

    def worker_start_failed(self, worker: str, failure: wire.StartFailed) -> None:
        """Its handler could not be loaded."""
        live = self._workers.get(worker)
        if live is None or live.failure is not None:
            return
        live.failure = failure
        detail = {"kind": failure.kind, "type": failure.error_type, "traceback": failure.traceback}
        error = WorkerBroke(f"{failure.error_type}: {failure.message}", detail=detail)
        self._start_failed(worker, live, error, by_function=True)

    def _start_failed(self, name: str, live: LiveWorker, error: SamovarError, by_function: bool) -> None:
        if live.deadline is not None:
            live.deadline.cancel()
        self._desk.forget("worker", name)
        self._explain(live.revision, "start failed", error.message, name)
        self._start_errors[live.revision.key] = for_callers(error)
        self.proofs.failed(live.revision.key, error)
        self.handle(events.WorkerFailed(name, error.message, by_function))

    def call_ended(self, call: Call) -> None:
        """A worker is done with this call: its slot is free."""
        self.handle(events.InvocationFinished(call.invocation))

    def replace_worker(self, worker: str, reason: str) -> None:
        """It does not yield: kill it, with its whole process group."""
        live = self._workers.get(worker)
        if live is not None and not live.stopping:
            live.stopping = f"killed: {reason}"
            self._explain(live.revision, "kill worker", reason, worker)
            self._kill(worker, live)

    def _kill(self, name: str, live: LiveWorker) -> None:
        agent = self._agents.get(live.agent)
        if agent is not None:
            agent.stop_worker(name, 0)

    def link_lost(self, worker: str, calls: list[Call]) -> None:
        """Its connection is gone. Its callers are told once the exit code is known, or soon without it."""
        live = self._workers.get(worker)
        if live is None:
            fail_calls(calls, WorkerUnreachable("the worker was lost"))
            return
        live.link = None
        live.orphans = calls
        if live.ready is None and live.failure is None:
            # Wait for the exit to say why; Exited settles it.
            self._kill(worker, live)
            return
        if not live.stopping:
            self._kill(worker, live)  # a closed connection with a living process behind it is of no use
        self.handle(events.WorkerLost(worker, live.stopping or "its connection ended"))
        if calls:
            asyncio.get_running_loop().call_later(self._params.exit_code_wait_s, self._settle_orphans, live, "")

    def _settle_orphans(self, live: LiveWorker, ending: str) -> None:
        calls, live.orphans = live.orphans, []
        if not calls:
            return
        what = ending or "its connection ended and the process does not say why"
        fail_calls(calls, WorkerBroke(f"the worker died while it ran this call: {what}"))

    # -- gateway.links.agent.AgentSupervisor -------------------------------------------------------------

    def agent_reported(self, agent: str, link: AgentLink, report: wire.Report) -> None:
        """It joined, or told again what it holds. Workers that it holds of an earlier gateway are not ours."""
        self._agents[agent] = link
        slices = tuple(Slice(f"{agent}/{s[0]}", agent, s[1], s[2], s[3], s[4]) for s in report.slices)
        held = tuple(
            events.HeldWorker(name, live.revision.key, live.slice_id)
            for name in report.workers
            if (live := self._workers.get(name)) is not None and live.ready is not None
        )
        for name in report.workers:
            if name not in self._workers:
                link.stop_worker(name, 0)
        log.info("agent %s on %s holds %d slices, %d workers", agent, report.node, len(slices), len(held))
        self.handle(events.AgentReported(agent, slices, held, tuple(report.environments)))
        for waiter in self._agent_waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._agent_waiters.clear()

    def agent_lost(self, agent: str) -> None:
        """Its connection is gone, with all it held."""
        self._agents.pop(agent, None)
        log.warning("agent %s is lost", agent)
        self.handle(events.AgentLost(agent))
        for name in [n for n, live in self._workers.items() if live.agent == agent]:
            live = self._workers.pop(name)
            self._desk.forget("worker", name)
            if live.deadline is not None:
                live.deadline.cancel()
            fail_calls(live.orphans, WorkerUnreachable("the node of this call's worker was lost"))
            live.orphans = []
            if live.link is not None:
                fail_calls(live.link.take_calls(), WorkerUnreachable("the node of this call's worker was lost"))
                live.link.close()
            self.proofs.failed(live.revision.key, WorkerUnreachable("the node was lost during the start"))

    def worker_started(self, agent: str, message: wire.Started) -> None:
        """A worker's process exists."""
        live = self._workers.get(message.worker)
        if live is not None:
            live.pid, live.how = message.pid, message.how
            if message.note:
                self._explain(live.revision, f"worker started by {message.how}", message.note, message.worker)

    def worker_exited(self, agent: str, message: wire.Exited) -> None:
        """A worker's process is gone, with its whole group."""
        live = self._workers.pop(message.worker, None)
        if live is None:
            return
        ending = ending_of(message)
        if live.ready is None and live.failure is None:
            error = WorkerBroke(f"the worker died before it was ready: {ending}", detail={"note": message.note})
            self._start_failed(message.worker, live, error, by_function=True)
        if live.deadline is not None:
            live.deadline.cancel()
        if not live.stopping:
            self._explain(live.revision, "worker died", ending, message.worker)
        if live.link is not None:
            # The news of the exit came before the end of the connection.
            live.orphans += live.link.take_calls()
            live.link.close()
        self._settle_orphans(live, live.stopping or ending)
        self.handle(events.WorkerLost(message.worker, live.stopping or ending))

    def environment_loaded(self, agent: str, message: wire.EnvironmentLoaded) -> None:
        """A zygote is ready, or the environment turned out not to be forkable."""
        forkable = message.mode == "zygote"
        if message.note or not forkable:
            self._explain_environment(message.environment, f"environment loads by {message.mode}", message.note)
        self.handle(events.EnvironmentLoaded(agent, message.environment, forkable, message.note))

    def environment_failed(self, agent: str, message: wire.EnvironmentFailed) -> None:
        """An environment could not be loaded."""
        self._explain_environment(message.environment, "environment failed", message.message)
        self.handle(events.EnvironmentFailed(agent, message.environment, message.message))

    def _explain_environment(self, environment: str, decision: str, reason: str) -> None:
        log.info("environment %s: %s: %s", environment, decision, reason)
        for revision in self._revisions.values():
            if revision.environment_digest == environment:
                self._explain(revision, decision, reason, "")

    def worker_wrote(self, agent: str, message: wire.Log) -> None:
        """Lines of a worker."""
        live = self._workers.get(message.worker)
        if live is not None:
            r = live.revision
            self._logs.append(
                r.namespace, r.function, r.number, message.worker, message.stream, message.lines, time.time()
            )

    # -- views and shutdown ------------------------------------------------------------------------------

    async def agent_joined(self) -> None:
        """Wait until some agent has reported."""
        if not self._agents:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._agent_waiters.append(waiter)
            await waiter

    def live(self, worker: str) -> LiveWorker | None:
        """What is held of one worker, for views."""
        return self._workers.get(worker)

    def pool(self) -> WarmPool:
        """The pool, for views only."""
        return self._pool
