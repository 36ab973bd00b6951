"""A simulated world around the real `WarmPool`: agents, workers, callers and their misfortunes, from one seed.

The world carries out what the pool commands, late and not always, and keeps its own books of what callers, workers
and agents saw, apart from the pool's. After every event the pool's `check()` runs and the two are compared. Time is
virtual; the only source of chance is the seed, so a run is a seed and a commit, and its `log` replays.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

from warmpool import commands, events
from warmpool.pool import WarmPool
from warmpool.values import Need, PoolParams, RevisionSpec, ScaleParams, Slice, StartKind

MIB = 1024 * 1024
#: Virtual seconds within which everything must have come to rest after the last arrival.
REST_S = 400.0


class Contradiction(AssertionError):
    """The pool did what no caller, worker or agent should see."""


@dataclass(frozen=True)
class Plan:
    """How long and how rough. Chances are per occasion; rates per virtual second."""

    seconds: float = 60.0
    agents: int = 2
    revisions: int = 5
    tick_s: float = 0.1
    calls_per_s: float = 20.0
    burst_chance: float = 0.03
    burst: int = 30
    start_failure: float = 0.05
    worker_deaths_per_s: float = 0.1
    agent_losses_per_s: float = 0.02
    changes_per_s: float = 0.2
    noise_per_s: float = 4.0
    #: Mean after which an impatient caller goes; 0: nobody is impatient.
    patience_s: float = 8.0
    queue_limits: tuple[int, ...] = (20, 1000)
    params: PoolParams = field(
        default_factory=lambda: PoolParams(
            max_workers=40, max_queued=300, max_starting_per_agent=5, max_environments_per_agent=2
        )
    )


@dataclass
class _Process:
    """A worker as the world knows it."""

    revision: str
    agent: str
    slice_id: str
    calls: set[str] = field(default_factory=set)
    ready: bool = False
    stopping: bool = False


class World:
    """See the module. `run()` lives through the plan, then waits for rest; any contradiction raises."""

    def __init__(self, seed: int, plan: Plan | None = None) -> None:
        self.chance = random.Random(seed)
        self.plan = plan if plan is not None else Plan()
        self.pool = WarmPool(self.plan.params)
        self.now = 0.0
        #: Every event with its time, and every command, in order.
        self.log: list[tuple[float, events.Event]] = []
        self.commands: list[commands.Command] = []
        self.answers: Counter[str] = Counter()
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._serial = 0
        self.specs: dict[str, RevisionSpec] = {}
        self.waiting: dict[str, list[str]] = {}
        self.call_revision: dict[str, str] = {}
        self.running: dict[str, str] = {}
        self.workers: dict[str, _Process] = {}
        self.agents: dict[str, tuple[Slice, ...]] = {}
        self.environments: dict[str, dict[str, None]] = {}
        self._calls = 0
        self._effects: dict[type, Callable[..., None]] = {
            commands.Dispatch: self._dispatched,
            commands.Reject: self._rejected,
            commands.StartWorker: self._start,
            commands.StopWorker: self._stop,
            commands.LoadEnvironment: self._load,
            commands.DropEnvironment: self._drop,
            commands.Note: lambda _: None,
        }

    # -- time and events ---------------------------------------------------------------------------------

    def at(self, when: float, do: Callable[..., None], *args: Any) -> None:
        """Do this then."""
        self._serial += 1
        heappush(self._heap, (when, self._serial, do, args))

    def soon(self, mean_s: float, do: Callable[..., None], *args: Any) -> None:
        """Do this after a random while."""
        self.at(self.now + self.chance.expovariate(1.0 / mean_s), do, *args)

    def tell(self, event: events.Event) -> list[commands.Command]:
        """Give the pool an event and carry out its commands; check everything."""
        self.log.append((self.now, event))
        answer = self.pool.handle(event, self.now)
        self.commands.extend(answer)
        for command in answer:
            self._effects[type(command)](command)
        self.pool.check()
        self._compare()
        return answer

    def run(self) -> None:
        """The whole plan, then rest."""
        for n in range(self.plan.revisions):
            self.deploy(f"f{n}")
        for n in range(self.plan.agents):
            self.join(f"agent{n}")
        self.soon(0.1, self._arrivals)
        self.soon(1.0 / self.plan.worker_deaths_per_s, self._death)
        self.soon(1.0 / self.plan.agent_losses_per_s, self._agent_loss)
        self.soon(1.0 / self.plan.changes_per_s, self._change)
        self.soon(1.0 / self.plan.noise_per_s, self._noise)
        self.at(self.plan.tick_s, self._tick)
        while self._heap:
            self.now, _, do, args = heappop(self._heap)
            do(*args)
        self._rest()

    @property
    def rough(self) -> bool:
        """Arrivals and faults still happen."""
        return self.now < self.plan.seconds

    def _tick(self) -> None:
        self.tell(events.Tick())
        if self.now < self.plan.seconds + REST_S:
            due = self.pool.next_due(self.now)
            pause = self.plan.tick_s if self.rough else max(self.plan.tick_s, (due or self.now) - self.now)
            if self.rough or due is not None or self._heap:
                self.at(self.now + pause, self._tick)

    # -- callers -----------------------------------------------------------------------------------------

    def _arrivals(self) -> None:
        if not self.rough:
            return
        names = list(self.specs)
        if names:
            name = names[min(int(self.chance.expovariate(1.0)), len(names) - 1)]
            count = self.plan.burst if self.chance.random() < self.plan.burst_chance else 1
            for _ in range(count):
                self.call(name)
        quiet = self.chance.random() < 0.005
        self.soon(15.0 if quiet else 1.0 / self.plan.calls_per_s, self._arrivals)

    def call(self, revision: str) -> str:
        """One call arrives."""
        self._calls += 1
        name = f"call{self._calls}"
        self.call_revision[name] = revision
        self.waiting.setdefault(revision, []).append(name)
        answer = self.tell(events.InvocationArrived(name, revision))
        if revision in self.specs and len(self.waiting[revision]) > self.specs[revision].queue_limit:
            raise Contradiction(f"{name} waits beyond the limit of {revision}")
        if self.plan.patience_s and self.chance.random() < 0.2:
            self.soon(self.plan.patience_s, self._cancel, name)
        if revision not in self.specs and not any(isinstance(c, commands.Reject) for c in answer):
            raise Contradiction(f"{name} of an unknown revision was not rejected")
        return name

    def _cancel(self, name: str) -> None:
        waits = self.waiting.get(self.call_revision[name], [])
        if name in waits:
            waits.remove(name)
            self._answered(name)
        self.tell(events.InvocationCancelled(name))

    def _answered(self, name: str) -> None:
        self.answers[name] += 1
        if self.answers[name] > 1:
            raise Contradiction(f"{name} was answered twice")

    def _leave_queue(self, name: str) -> None:
        waits = self.waiting[self.call_revision[name]]
        if name not in waits:
            raise Contradiction(f"{name} does not wait")
        waits.remove(name)
        self._answered(name)

    def _rejected(self, command: commands.Reject) -> None:
        self._leave_queue(command.invocation)
        if not command.reason or command.retry_after_s < 0:
            raise Contradiction(f"an empty reason or a negative wait: {command}")

    def _dispatched(self, command: commands.Dispatch) -> None:
        name, process = command.invocation, self.workers.get(command.worker)
        revision = self.call_revision[name]
        waits = self.waiting[revision]
        if process is None or not process.ready or process.stopping or process.revision != revision:
            raise Contradiction(f"{name} was sent to {command.worker}, which is {process}")
        if waits[0] != name:
            raise Contradiction(f"{name} overtook {waits[0]}")
        self._leave_queue(name)
        process.calls.add(name)
        if len(process.calls) > self.specs[revision].concurrency:
            raise Contradiction(f"{command.worker} runs {len(process.calls)} calls")
        self.running[name] = command.worker
        self.soon(self.chance.choice((0.01, 0.05, 0.3, 2.0)), self._finish, name)

    def _finish(self, name: str) -> None:
        worker = self.running.pop(name, None)
        if worker is not None:
            self.workers[worker].calls.discard(name)
        self.tell(events.InvocationFinished(name))  # late when its worker was lost

    # -- workers -----------------------------------------------------------------------------------------

    def _start(self, command: commands.StartWorker) -> None:
        if command.worker in self.workers:
            raise Contradiction(f"{command.worker} is started twice")
        if command.agent not in self.agents:
            raise Contradiction(f"{command.worker} is placed on {command.agent}, which is lost")
        if command.slice_id not in [one.slice_id for one in self.agents[command.agent]]:
            raise Contradiction(f"{command.worker} is placed on {command.slice_id}, which is not there")
        if command.start_kind is StartKind.WARM and (
            self.specs[command.revision].environment not in self.environments[command.agent]
        ):
            raise Contradiction(f"{command.worker} is to be forked from nothing")
        self.workers[command.worker] = _Process(command.revision, command.agent, command.slice_id)
        most = self.specs[command.revision].scale.max_workers
        count = sum(process.revision == command.revision for process in self.workers.values())
        if most and count > most:
            raise Contradiction(f"{command.worker} is number {count} of {command.revision}, which may have {most}")
        mean = 0.02 if command.start_kind is StartKind.WARM else 0.8
        fails = self.rough and self.chance.random() < self.plan.start_failure
        self.soon(mean, self._start_fails if fails else self._ready, command.worker)

    def _ready(self, worker: str) -> None:
        process = self.workers.get(worker)
        if process is not None and not process.stopping:
            process.ready = True
        self.tell(events.WorkerReady(worker))

    def _start_fails(self, worker: str) -> None:
        if self.chance.random() < 0.3:
            self._dies(worker)
            return
        self.workers.pop(worker, None)
        self.tell(events.WorkerFailed(worker, "it raised", self.chance.random() < 0.5))

    def _dies(self, worker: str) -> None:
        process = self.workers.pop(worker, None)
        for name in sorted(process.calls) if process is not None else ():
            self.running.pop(name, None)
        self.tell(events.WorkerLost(worker, "its process ended"))

    def _stop(self, command: commands.StopWorker) -> None:
        process = self.workers.get(command.worker)
        if process is not None:
            if process.calls:
                raise Contradiction(f"{command.worker} was stopped while it ran {process.calls}")
            process.stopping = True
            process.ready = False
        self.soon(0.1, self._dies, command.worker)

    def _death(self) -> None:
        if not self.rough:
            return
        if self.workers:
            self._dies(self.chance.choice(list(self.workers)))
        self.soon(1.0 / self.plan.worker_deaths_per_s, self._death)

    # -- agents ------------------------------------------------------------------------------------------

    def join(self, name: str, held: list[str] | None = None) -> None:
        """An agent joins, or tells again what it holds."""
        if name not in self.agents:
            count = self.chance.randint(1, 2)
            size = self.chance.choice((4, 10, 16))
            self.agents[name] = tuple(
                Slice(f"{name}/{n}", name, "cpu", 2000, size * 256 * MIB, self.chance.choice((4, 8, 16)))
                for n in range(count)
            )
            self.environments.setdefault(name, {})
        up = [(w, p) for w, p in self.workers.items() if p.agent == name and (p.ready or p.stopping)]
        workers = [events.HeldWorker(w, p.revision, p.slice_id) for w, p in up if held is None or w in held]
        self.tell(events.AgentReported(name, self.agents[name], tuple(workers), tuple(self.environments.get(name, ()))))

    def _agent_loss(self) -> None:
        if not self.rough:
            return
        if self.agents:
            name = self.chance.choice(list(self.agents))
            partition = self.chance.random() < 0.4
            slices = self.agents.pop(name)
            on_it = {w: p for w, p in self.workers.items() if p.agent == name}
            for worker, process in on_it.items():
                del self.workers[worker]
                for call in sorted(process.calls):
                    self.running.pop(call, None)
            self.tell(events.AgentLost(name))
            survivors = on_it if partition else {}
            if not partition:
                self.environments[name] = {}
            self.soon(5.0, self._rejoin, name, slices if partition else None, survivors)
        self.soon(1.0 / self.plan.agent_losses_per_s, self._agent_loss)

    def _rejoin(self, name: str, slices: tuple[Slice, ...] | None, survivors: dict[str, _Process]) -> None:
        if name in self.agents:
            return
        if slices is not None:
            self.agents[name] = slices
        for worker, process in survivors.items():
            if process.ready:
                process.calls = set()
                self.workers[worker] = process
        self.join(name)

    def _load(self, command: commands.LoadEnvironment) -> None:
        self.soon(0.5, self._loaded, command.agent, command.environment)

    def _loaded(self, agent: str, environment: str) -> None:
        if self.chance.random() < 0.1:
            self.environments.get(agent, {}).pop(environment, None)
            self.tell(events.EnvironmentFailed(agent, environment, "it raised"))
            return
        if agent in self.agents:
            self.environments[agent][environment] = None
        self.tell(events.EnvironmentLoaded(agent, environment, self.chance.random() < 0.9, ""))

    def _drop(self, command: commands.DropEnvironment) -> None:
        self.environments.get(command.agent, {}).pop(command.environment, None)

    # -- revisions ---------------------------------------------------------------------------------------

    def deploy(self, name: str) -> None:
        """A revision appears."""
        chance = self.chance
        least = chance.choice((0, 0, 0, 1, 2))
        scale = ScaleParams(
            min_workers=least,
            max_workers=chance.choice((0, 0, 3, 12)),
            idle_timeout_s=chance.choice((0.3, 2.0, 10.0)),
            scale_down_delay_s=chance.choice((0.0, 0.0, 4.0)),
        )
        self.specs[name] = RevisionSpec(
            name,
            f"env{chance.randint(0, 3)}",
            chance.choice((1, 1, 2, 3, 8)),
            Need(memory_bytes=chance.choice((128, 256, 700)) * MIB),
            scale,
            queue_limit=chance.choice(self.plan.queue_limits),
            reachable=chance.random() < 0.9,
            preload=tuple(chance.sample(("numpy", "scipy", "pandas"), chance.randint(0, 2))),
        )
        self.tell(events.RevisionChanged(self.specs[name]))
        if chance.random() < 0.5:
            self.tell(events.WorkerRequested(name, "it proves itself"))

    def _change(self) -> None:
        if not self.rough:
            return
        chance, names = self.chance, list(self.specs)
        what = chance.random()
        if not names or what < 0.15:
            self.deploy(f"f{len(self.log)}")
        elif what < 0.3:
            name = chance.choice(names)
            del self.specs[name]
            self.tell(events.RevisionRemoved(name))
            for call in list(self.waiting.get(name, ())):
                raise Contradiction(f"{call} still waits for the removed {name}")
            if chance.random() < 0.3 and not any(p.revision == name for p in self.workers.values()):
                self.deploy(name)
        elif what < 0.5:
            self.tell(events.WorkerRequested(chance.choice(names), "because"))
        else:
            self._change_settings(chance.choice(names))
        self.soon(1.0 / self.plan.changes_per_s, self._change)

    def _change_settings(self, name: str) -> None:
        old, chance = self.specs[name], self.chance
        scale = ScaleParams(
            min_workers=chance.choice((0, 0, 1)),
            max_workers=chance.choice((0, 2, 10)),
            stable_window_s=chance.choice((60.0, 60.0, 30.0)),
            idle_timeout_s=old.scale.idle_timeout_s,
        )
        self.specs[name] = RevisionSpec(
            name, old.environment, old.concurrency, old.need, scale, old.queue_limit, chance.random() < 0.7, old.preload
        )
        self.tell(events.RevisionChanged(self.specs[name]))

    # -- noise -------------------------------------------------------------------------------------------

    def _noise(self) -> None:
        """Duplicate, late and unknown events: none may change anything for anybody."""
        if not self.rough:
            return
        chance = self.chance
        past = chance.randint(1, max(1, self._calls))
        some_call = f"call{past}"
        live = some_call in self.running or some_call in self.waiting.get(self.call_revision.get(some_call, ""), ())
        gone = f"w-{chance.randint(1, 500)}"
        noise: list[events.Event] = [
            events.InvocationFinished("nobody"),
            events.InvocationCancelled("nobody"),
            events.WorkerReady("nobody"),
            events.WorkerLost("nobody", "?"),
            events.WorkerFailed("nobody", "?", True),
            events.WorkerRequested("nobody", "?"),
            events.AgentLost("nobody"),
            events.EnvironmentLoaded("nobody", "env0", True, ""),
            events.EnvironmentFailed("nobody", "env0", "?"),
            events.RevisionRemoved("nobody"),
        ]
        if live:
            noise.append(events.InvocationArrived(some_call, self.call_revision[some_call]))
        if some_call not in self.running:
            noise.append(events.InvocationFinished(some_call))
        if some_call in self.running:
            noise.append(events.InvocationCancelled(some_call))
        if gone not in self.workers:
            noise += [events.WorkerReady(gone), events.WorkerLost(gone, "?"), events.WorkerFailed(gone, "?", True)]
        if self.agents and chance.random() < 0.1:
            self.join(chance.choice(list(self.agents)))
        event = chance.choice(noise)
        answer = self.tell(event)
        if answer:
            raise Contradiction(f"{event} made the pool do {answer}")
        self.soon(1.0 / self.plan.noise_per_s, self._noise)

    # -- comparing ---------------------------------------------------------------------------------------

    def _compare(self) -> None:
        """The pool's views against what the world saw."""
        views = self.pool.workers()
        if len(views) > self.plan.params.max_workers:
            raise Contradiction(f"{len(views)} workers in the pool")
        free: Counter[str] = Counter()
        for view in views:
            process = self.workers.get(view.worker)
            if process is None:
                raise Contradiction(f"the pool believes in {view.worker}")
            if view.in_flight != len(process.calls):
                raise Contradiction(f"{view.worker}: {view.in_flight} in flight, {process.calls}")
            if process.ready:
                free[view.revision] += (
                    self.specs[view.revision].concurrency - view.in_flight if (view.revision in self.specs) else 0
                )
        for name, waits in self.waiting.items():
            if waits and free[name] > 0:
                raise Contradiction(f"{len(waits)} wait for {name} while {free[name]} places are free")

    def _rest(self) -> None:
        """Nobody is left over, and everything is at its minimum."""
        left = [name for name in self.call_revision if self.answers[name] != 1]
        if left and self.agents:
            fit = [name for name in left if self._fits(self.call_revision[name])]
            if fit:
                raise Contradiction(f"never answered: {fit[:5]}")
        for name, spec in self.specs.items():
            view = self.pool.revision(name)
            least = spec.scale.min_workers if spec.reachable else 0
            if spec.scale.max_workers:
                least = min(least, spec.scale.max_workers)
            waits = len(self.waiting.get(name, ()))
            if view is None or (not waits and view.ready + view.starting + view.draining > least):
                raise Contradiction(f"{name} rests with {view}, its minimum is {least}")

    def _fits(self, revision: str) -> bool:
        spec = self.specs.get(revision)
        slices = [one for offered in self.agents.values() for one in offered]
        return spec is not None and any(one.memory_bytes >= spec.need.memory_bytes for one in slices)
