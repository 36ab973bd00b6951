"""From an upload to live traffic: bundle, manifest, environment, proof, switch. The old revision serves until the last.

What is wrong with the upload itself is raised before the first progress is told and before anything is stored; after
that every failure is a `DeployFailed` that names its phase. Changes of one function take turns.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, TypeVar

from gateway.catalog import MIB, Function, Manifest, Revision
from gateway.deploy.bundles import MANIFEST, Bundle
from gateway.deploy.environments import Environment
from gateway.deploy.manifest import MANIFEST_BYTES_MAX, parse_manifest
from gateway.deploy.requirements import FILE_BYTES_MAX
from gateway.deploy.requirements import FILE_NAME as REQUIREMENTS
from gateway.deploy.turns import Turns
from gateway.errors import BadRequest, Fault, SamovarError, TooMany

log = logging.getLogger("gateway.deploy")

Phase = Literal["bundle", "environment", "proof", "traffic"]
#: Told as it goes: phase and a line for people.
OnProgress = Callable[[Phase, str], None]
T = TypeVar("T")

#: A proof's failures that are not the function's own.
PLATFORM_KINDS = frozenset({"no_capacity", "worker_unreachable", "unavailable", "internal"})


class DeployFailed(SamovarError):
    """A phase failed after the upload was accepted; the live revision serves on. Code and detail are the cause's."""

    status = 400

    def __init__(self, phase: Phase, code: str, fault: Fault, message: str, detail: object) -> None:
        super().__init__(message, detail=detail)
        self.phase = phase
        self.code = code
        self.fault = fault


class ProofFailed(Exception):
    """The revision's first worker did not get ready. `kind` as in `runtime.messages.StartFailed`, or a code."""

    def __init__(self, kind: str, error_type: str, message: str, traceback: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.error_type = error_type
        self.message = message
        self.traceback = traceback


class Proof(NamedTuple):
    """What a revision's first worker told: the handler's shape, and what loading it imported."""

    shape: str
    imports: tuple[str, ...]
    init_us: int


class Rollback(NamedTuple):
    """Traffic went from revision `previous` (None: nothing was live) to `revision`."""

    revision: Revision
    previous: int | None


class Prover(Protocol):
    """Starts a worker of a revision that is not live yet."""

    async def prove(self, revision: Revision) -> Proof:
        """Raises ProofFailed."""


class Bundles(Protocol):
    """The bundle store."""

    async def unpack(self, upload: Path, accept: Callable[[Path], T]) -> tuple[Bundle, T]:
        """Store an archive, unless `accept` raises."""


class Environments(Protocol):
    """The environment store."""

    async def resolve(self, manifest: Manifest) -> Environment:
        """The manifest's environment, built if need be."""


class Registry(Protocol):
    """What is deployed. All but `function` answer once it is stored."""

    def function(self, namespace: str, name: str) -> Function | None:
        """A function; None when there is none."""

    async def create_revision(
        self, manifest: Manifest, bundle_digest: str, environment_digest: str, python: str
    ) -> Revision:
        """The next revision, `building`; its function and namespace come into being with it."""

    async def mark_ready(self, revision: Revision, shape: str, preload: tuple[str, ...]) -> Revision:
        """The revision was proved."""

    async def mark_failed(self, revision: Revision, error: str) -> Revision:
        """The revision was not."""

    async def route(self, namespace: str, function: str, number: int) -> Revision:
        """All traffic to this revision."""

    async def rollback_target(self, namespace: str, function: str, number: int | None) -> Revision:
        """Revision `number`, or the ready one before the live one. Raises NotFound and Conflict."""

    async def delete_function(self, namespace: str, function: str) -> None:
        """Forget the function. Raises NotFound."""


@dataclass(frozen=True)
class DeployParams:
    """Bounds of deploying."""

    #: Deploys accepted and not finished; one more is answered 429.
    pending_max: int = 64
    #: Environments and proofs worked on at once; the rest wait.
    running_max: int = 4
    unpacking_max: int = 2
    #: A revision that a shutdown interrupts is marked failed within this time.
    farewell_s: float = 3.0
    preload_max: int = 1000


class Deployer:
    """See the module."""

    def __init__(
        self, registry: Registry, bundles: Bundles, environments: Environments, prover: Prover, params: DeployParams
    ) -> None:
        self._registry = registry
        self._bundles = bundles
        self._environments = environments
        self._prover = prover
        self._params = params
        self._turns = Turns()
        self._pending = 0
        self._unpacking = asyncio.Semaphore(params.unpacking_max)
        self._running = asyncio.Semaphore(params.running_max)

    async def deploy(self, namespace: str, upload: Path, on_progress: OnProgress) -> Revision:
        """Deploy the archive in the file `upload` into `namespace`; gives the revision that is live now.

        Raises BadRequest, TooMany or Unavailable before the first progress, DeployFailed after it.
        """
        async with self._admitted():
            async with self._unpacking:
                bundle, manifest = await self._bundles.unpack(upload, lambda folder: read_manifest(folder, namespace))
            on_progress("bundle", f"{bundle.files} files, {bundle.bytes / MIB:.1f} MiB, {bundle.digest[:12]}")
            name = f"{manifest.namespace}/{manifest.name}"
            if self._turns.taken(name):
                on_progress("bundle", "waiting for another change of this function to end")
            async with self._turns.turn(name), self._running:
                environment = await self._install(manifest, on_progress)
                revision = await self._prove(manifest, bundle, environment, on_progress)
                return await self._switch(revision, on_progress)

    async def rollback(self, namespace: str, function: str, number: int | None) -> Rollback:
        """Send traffic to an earlier revision. Raises NotFound and Conflict."""
        async with self._admitted(), self._turns.turn(f"{namespace}/{function}"):
            target = await self._registry.rollback_target(namespace, function, number)
            row = self._registry.function(namespace, function)
            revision = await self._registry.route(namespace, function, target.number)
            return Rollback(revision, row.live if row is not None else None)

    async def delete(self, namespace: str, function: str) -> None:
        """Forget a function. Raises NotFound."""
        async with self._admitted(), self._turns.turn(f"{namespace}/{function}"):
            await self._registry.delete_function(namespace, function)

    @asynccontextmanager
    async def _admitted(self) -> AsyncIterator[None]:
        if self._pending >= self._params.pending_max:
            raise TooMany(f"{self._pending} deploys are under way", retry_after_s=10.0)
        self._pending += 1
        try:
            yield
        finally:
            self._pending -= 1

    async def _install(self, manifest: Manifest, on_progress: OnProgress) -> Environment:
        count = len(manifest.requirements)
        on_progress("environment", f"{count} requirements" if count else "no requirements, nothing to install")
        with _phase("environment"):
            environment = await self._environments.resolve(manifest)
        if count:
            on_progress("environment", f"ready, {environment.digest[:12]}")
        return environment

    async def _prove(
        self, manifest: Manifest, bundle: Bundle, environment: Environment, on_progress: OnProgress
    ) -> Revision:
        with _phase("proof"):
            revision = await self._registry.create_revision(
                manifest, bundle.digest, environment.digest, environment.python
            )
        on_progress("proof", f"starting a worker of revision {revision.number}")
        try:
            with _phase("proof"):
                proof = await self._prover.prove(revision)
                preload = proof.imports[: self._params.preload_max]
                revision = await self._registry.mark_ready(revision, proof.shape, preload)
        except DeployFailed as failure:
            await self._give_up(revision, failure.message)
            raise
        except asyncio.CancelledError:
            await self._give_up(revision, "the gateway stopped while this revision was proved")
            raise
        on_progress("proof", f"starts, shape {proof.shape}, loaded in {proof.init_us / 1000:.1f} ms")
        return revision

    async def _give_up(self, revision: Revision, why: str) -> None:
        marking = asyncio.ensure_future(self._registry.mark_failed(revision, why))
        try:
            await asyncio.wait_for(asyncio.shield(marking), self._params.farewell_s)
        except Exception:
            log.exception("%s: the failed revision cannot be marked so", revision.key)

    async def _switch(self, revision: Revision, on_progress: OnProgress) -> Revision:
        on_progress("traffic", f"to revision {revision.number}")
        with _phase("traffic"):
            return await self._registry.route(revision.namespace, revision.function, revision.number)


@contextmanager
def _phase(phase: Phase) -> Iterator[None]:
    """Whatever goes wrong inside becomes a DeployFailed of this phase."""
    try:
        yield
    except ProofFailed as error:
        raise _of_proof(error) from error
    except SamovarError as error:
        raise DeployFailed(phase, error.code, error.fault, error.message, error.detail) from error
    except Exception as error:
        log.exception("deploy: the %s phase failed", phase)
        message = f"the platform failed: {type(error).__name__}"
        raise DeployFailed(phase, "internal", "platform", message, None) from error


def _of_proof(error: ProofFailed) -> DeployFailed:
    message = error.message
    if error.error_type and not message.startswith(error.error_type):
        message = f"{error.error_type}: {message}"
    detail = {"kind": error.kind, "type": error.error_type, "traceback": error.traceback}
    fault: Fault = "platform" if error.kind in PLATFORM_KINDS else "function"
    return DeployFailed("proof", error.kind, fault, message, {k: v for k, v in detail.items() if v})


def read_manifest(folder: Path, namespace: str) -> Manifest:
    """The manifest of an unpacked bundle, for a deploy into `namespace`. Raises BadRequest."""
    requirements = folder / REQUIREMENTS
    manifest = parse_manifest(
        _start_of(folder / MANIFEST, MANIFEST_BYTES_MAX + 1),
        default_namespace=namespace,
        requirements_txt=_start_of(requirements, FILE_BYTES_MAX + 1) if requirements.is_file() else None,
    )
    if manifest.namespace != namespace:
        raise BadRequest(
            f"namespace: {MANIFEST} says {manifest.namespace!r}, the deploy is into {namespace!r}; they must agree "
            f"(without the key, the folder can be deployed into any)"
        )
    return manifest


def _start_of(file: Path, bytes_max: int) -> bytes:
    with file.open("rb") as opened:
        return opened.read(bytes_max)
