"""The connection to one node agent: orders out, reports back."""

from __future__ import annotations

from typing import Protocol

from gateway.links.listener import LinkConnection
from runtime import messages as wire
from runtime.codec import FrameError
from runtime.spec import WorkerSpec


class AgentSupervisor(Protocol):
    """The controller, as an agent's link sees it."""

    def agent_reported(self, agent: str, link: AgentLink, report: wire.Report) -> None:
        """It joined, or told again what it holds."""

    def agent_lost(self, agent: str) -> None:
        """Its connection is gone, and with it all it held."""

    def worker_started(self, agent: str, message: wire.Started) -> None:
        """A worker's process exists."""

    def worker_exited(self, agent: str, message: wire.Exited) -> None:
        """A worker's process is gone."""

    def environment_loaded(self, agent: str, message: wire.EnvironmentLoaded) -> None:
        """A zygote is ready."""

    def environment_failed(self, agent: str, message: wire.EnvironmentFailed) -> None:
        """An environment could not be loaded."""

    def worker_wrote(self, agent: str, message: wire.Log) -> None:
        """Lines of a worker."""


class AgentLink:
    """See the module. Implements `gateway.links.listener.Receiver`."""

    def __init__(self, agent: str, connection: LinkConnection, supervisor: AgentSupervisor) -> None:
        self.agent = agent
        self._connection = connection
        self._supervisor = supervisor

    def start_worker(self, spec: WorkerSpec) -> None:
        """Order a worker."""
        self._connection.send(wire.StartWorker(spec.worker, spec.as_dict()))

    def stop_worker(self, worker: str, grace_ms: int) -> None:
        """Order a worker's end; 0: at once, the whole process group."""
        self._connection.send(wire.StopWorker(worker, grace_ms))

    def load_environment(self, environment: str, python: str, preload: list[str]) -> None:
        """Order a zygote."""
        self._connection.send(wire.LoadEnvironment(environment, python, preload))

    def drop_environment(self, environment: str) -> None:
        """Order a zygote's end."""
        self._connection.send(wire.DropEnvironment(environment))

    def on_message(self, message: wire.Message) -> None:
        """One message of the agent."""
        supervisor, agent = self._supervisor, self.agent
        match message:
            case wire.Started():
                supervisor.worker_started(agent, message)
            case wire.Exited():
                supervisor.worker_exited(agent, message)
            case wire.EnvironmentLoaded():
                supervisor.environment_loaded(agent, message)
            case wire.EnvironmentFailed():
                supervisor.environment_failed(agent, message)
            case wire.Log():
                supervisor.worker_wrote(agent, message)
            case wire.Report():
                supervisor.agent_reported(agent, self, message)
            case _:
                raise FrameError(f"{type(message).__name__} from agent {agent}")

    def on_closed(self) -> None:
        """The connection is gone."""
        self._supervisor.agent_lost(self.agent)
