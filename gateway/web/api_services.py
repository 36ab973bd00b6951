"""What the control API needs of the rest of the gateway, each as narrow as its use."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from gateway.catalog import Function, Revision
from gateway.deploy.pipeline import OnProgress, Rollback


class Principal(Protocol):
    """Who asks."""

    @property
    def token_id(self) -> str:
        """The token's public id."""

    @property
    def namespace(self) -> str | None:
        """The only namespace it may see and touch; None: every one."""

    @property
    def admin(self) -> bool:
        """May handle tokens."""


class Tokens(Protocol):
    """The tokens that there are."""

    def authenticate(self, header: bytes | str | None, now: float) -> Principal:
        """The principal of an Authorization header. Raises Unauthorized."""

    async def create(
        self, namespace: str | None, name: str, admin: bool, expires_in_s: float | None
    ) -> tuple[dict[str, Any], str]:
        """A new token: its row and, this once, the secret."""

    def rows(self) -> list[dict[str, Any]]:
        """A row for each token that was not deleted, without secrets."""

    async def revoke(self, token_id: str) -> None:
        """It is not accepted from now on. Raises NotFound."""


class Registry(Protocol):
    """What is deployed, from memory."""

    def functions(self, namespace: str | None) -> Sequence[Function]:
        """All functions, of one namespace or of all."""

    def function(self, namespace: str, name: str) -> Function | None:
        """A function; None when there is none."""

    def revisions(self, namespace: str, name: str) -> Sequence[Revision]:
        """Its revisions, oldest first."""


class Deployer(Protocol):
    """Changes what is deployed."""

    async def deploy(self, namespace: str, upload: Path, on_progress: OnProgress) -> Revision:
        """See gateway.deploy.pipeline."""

    async def rollback(self, namespace: str, function: str, number: int | None) -> Rollback:
        """See gateway.deploy.pipeline."""

    async def delete(self, namespace: str, function: str) -> None:
        """See gateway.deploy.pipeline."""


class PoolView(Protocol):
    """The pool's numbers."""

    def workers(self) -> list[dict[str, Any]]:
        """One row a worker."""

    def worker_counts(self) -> dict[str, int]:
        """Workers by "namespace/function"."""


class Explanations(Protocol):
    """The latest decisions."""

    def recent(self, namespace: str, function: str, limit: int) -> list[dict[str, Any]]:
        """Newest first."""

    def forget(self, namespace: str, function: str) -> None:
        """The function is gone."""


class Logs(Protocol):
    """What functions wrote."""

    async def tail(self, namespace: str, function: str, count: int) -> list[bytes]:
        """The last lines, each one JSON object."""

    def follow(self, namespace: str, function: str, count: int, beat_s: float) -> AsyncGenerator[bytes, None]:
        """The last lines and every new one; b"" for a beat."""

    def let_followers_go(self) -> None:
        """End every `follow`."""

    async def forget(self, namespace: str, function: str) -> None:
        """The function is gone."""


class Usage(Protocol):
    """Sums of metering records."""

    async def rows(self, namespace: str | None, since: float | None, until: float | None) -> list[dict[str, Any]]:
        """One row a function. Raises Unavailable."""


class Metrics(Protocol):
    """The gateway's counts."""

    def render(self) -> bytes:
        """Prometheus text."""


@dataclass(frozen=True)
class ApiServices:
    """Everything that the API speaks for."""

    tokens: Tokens
    registry: Registry
    deployer: Deployer
    pool: PoolView
    explanations: Explanations
    logs: Logs
    usage: Usage
    #: What is missing before calls can be served; empty: nothing.
    waiting_for: Callable[[], list[str]]
    metrics: Metrics
    #: Seconds since the epoch.
    now: Callable[[], float] = time.time


@dataclass(frozen=True)
class ApiParams:
    """Bounds of the API."""

    upload_bytes_max: int = 512 * 1024 * 1024
    uploads_max: int = 8
    #: Between two pieces of an upload.
    upload_idle_s: float = 60.0
    #: Where uploads are kept while they are unpacked; None: the system's place for temporary files.
    upload_directory: Path | None = None
    json_bytes_max: int = 64 * 1024
    json_body_s: float = 30.0
    tail_max: int = 10_000
    explain_max: int = 1_000
    #: An empty line goes to followers of logs this often, so that broken connections are noticed.
    beat_s: float = 15.0
