"""Environments by digest: what a function's requirements need, built once with uv and shared by all that ask the same.

Equal requirements (in their one spelling, order aside) for the same interpreter have an equal digest and so share an
environment; it keeps the versions that were current when it was first built. Wheels only, unless the operator allows
more: building from source would run a package's code in the gateway's place. For the same reason byte code is
compiled by the base interpreter without the environment's start-up files.

On disk an environment is a folder named by its digest, renamed there when it is whole.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import logging
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from gateway.catalog import Manifest
from gateway.deploy.interpreters import Interpreter, Interpreters, uv_environment
from gateway.deploy.programs import Ended, ProgramOverdue, run_program
from gateway.deploy.requirements import normalised
from gateway.errors import SamovarError, Unavailable

log = logging.getLogger("gateway.deploy.environments")

UNFINISHED = ".building-"
LOCKS = ".locks"
#: Part of every digest; a new number builds all environments anew.
LAYOUT_VERSION = 1

#: Not compiled ahead: packages' own tests, often half of their files.
_SELDOM_IMPORTED = r"[/\\]tests?[/\\]"


class EnvironmentFailed(SamovarError):
    """The requirements cannot be installed; `detail["output"]` is what uv says."""

    code, fault, status = "environment_failed", "caller", 400


@dataclass(frozen=True)
class EnvironmentParams:
    """Bounds of building."""

    #: One build, all its steps.
    build_s: float = 900.0
    builds_max: int = 2
    #: How long a build by another gateway process is waited for.
    lock_s: float = 1000.0
    lock_poll_s: float = 0.2
    #: Kept of what uv wrote: the end.
    output_bytes_max: int = 16 * 1024
    #: Allow source distributions, whose build runs their code with the gateway's rights.
    source_builds: bool = False
    #: An unfinished folder older than this belongs to a gateway that was killed.
    leftover_age_s: float = 24 * 3600.0


@dataclass(frozen=True)
class Environment:
    """An environment that can be used. `python`: its interpreter, absolute."""

    digest: str
    python: str


class EnvironmentStore:
    """All environments of a data directory."""

    def __init__(self, root: Path, uv: str, base_python: str, params: EnvironmentParams) -> None:
        self._root = root.absolute()
        self._uv = uv
        self._params = params
        self._interpreters = Interpreters(uv, base_python)
        self._building: dict[str, asyncio.Task[Environment]] = {}
        self._slots = asyncio.Semaphore(params.builds_max)
        self._swept = False
        #: Environments built by this process; a metric.
        self.built = 0

    async def resolve(self, manifest: Manifest) -> Environment:
        """The environment of this manifest, built first if it is not there.

        Without requirements it is the bare interpreter and nothing is built. Raises BadRequest (no such Python),
        EnvironmentFailed (uv says no) and Unavailable (the disk, another process). Being cancelled does not stop a
        build that others may wait for.
        """
        interpreter = await self._interpreters.find(manifest.python)
        requirements = sorted({normalised(text) for text in manifest.requirements})
        if not requirements:
            return Environment(f"base-{interpreter.version}", interpreter.path)
        digest = digest_of(requirements, interpreter)
        ready = self._ready(digest)
        if ready is not None:
            return ready
        task = self._building.get(digest)
        if task is None:
            task = asyncio.create_task(self._build(digest, requirements, interpreter), name=f"environment {digest}")
            self._building[digest] = task
            task.add_done_callback(lambda done: self._built(digest, done))
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Stop the builds under way."""
        tasks = list(self._building.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _built(self, digest: str, task: asyncio.Task[Environment]) -> None:
        del self._building[digest]
        if not task.cancelled():
            task.exception()  # everybody who waits gets it; nobody may be left to

    def _ready(self, digest: str) -> Environment | None:
        python = self._root / digest / "bin" / "python"
        return Environment(digest, str(python)) if python.exists() else None

    async def _build(self, digest: str, requirements: list[str], interpreter: Interpreter) -> Environment:
        async with self._slots:
            try:
                await asyncio.to_thread(self._prepare)
                async with self._locked(digest):
                    return self._ready(digest) or await self._build_locked(digest, requirements, interpreter)
            except OSError as error:
                raise Unavailable(f"environments cannot be stored: {error.strerror}", retry_after_s=10.0) from error

    async def _build_locked(self, digest: str, requirements: list[str], interpreter: Interpreter) -> Environment:
        begun = time.monotonic()
        folder = Path(tempfile.mkdtemp(prefix=UNFINISHED, dir=self._root))
        try:
            async with asyncio.timeout(self._params.build_s):
                await self._fill(folder / digest, folder / "requirements.txt", requirements, interpreter)
            (folder / digest).rename(self._root / digest)
        except TimeoutError:
            message = f"the environment was not built within {self._params.build_s:g} s"
            raise EnvironmentFailed(message) from None
        finally:
            await asyncio.shield(asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True))
        ready = self._ready(digest)
        if ready is None:
            raise Unavailable("the environment's interpreter is missing right after it was built")
        self.built += 1
        log.info("environment %s: %d requirements in %.1f s", digest, len(requirements), time.monotonic() - begun)
        return ready

    async def _fill(self, place: Path, listing: Path, requirements: list[str], interpreter: Interpreter) -> None:
        listing.write_text("".join(f"{line}\n" for line in requirements))
        # Relocatable: scripts find their interpreter beside them, so the finished folder can be renamed.
        create = [self._uv, "venv", "--relocatable", "--no-project", "--python", interpreter.path, str(place)]
        made = await self._run(create)
        if made.code != 0:
            raise EnvironmentFailed("the virtual environment cannot be made", detail={"output": made.output})
        # Copied, not linked: a function that scribbles into its environment must not reach uv's cache.
        install = [self._uv, "pip", "install", "--python", str(place / "bin" / "python"), "--link-mode", "copy"]
        install += [] if self._params.source_builds else ["--no-build"]
        installed = await self._run([*install, "-r", str(listing)])
        if installed.code != 0:
            output = installed.output.replace(str(place), "<environment>")
            raise EnvironmentFailed("the requirements cannot be installed", detail={"output": output})
        packages = next(iter((place / "lib").glob("python*/site-packages")), place / "lib")
        compiler = [interpreter.path, "-I", "-S", "-m", "compileall", "-q", "-j", "0", "-x", _SELDOM_IMPORTED]
        compiled = await self._run([*compiler, "-s", str(place.parent), str(packages)])
        if compiled.code != 0:  # templates and old syntax in packages are common; what is used compiles when imported
            log.debug("environment %s: not everything was compiled: %s", place.name, compiled.output[-400:])

    async def _run(self, arguments: list[str]) -> Ended:
        params = self._params
        try:
            return await run_program(arguments, uv_environment(os.environ), params.build_s, params.output_bytes_max)
        except ProgramOverdue as error:
            message = f"the environment was not built within {params.build_s:g} s"
            raise EnvironmentFailed(message, detail={"output": error.output}) from None

    def _prepare(self) -> None:
        (self._root / LOCKS).mkdir(parents=True, exist_ok=True)
        if self._swept:
            return
        self._swept = True
        for folder in self._root.glob(UNFINISHED + "*"):
            try:
                if time.time() - folder.stat().st_mtime > self._params.leftover_age_s:
                    shutil.rmtree(folder, ignore_errors=True)
            except OSError:
                continue  # another gateway was quicker

    @asynccontextmanager
    async def _locked(self, digest: str) -> AsyncIterator[None]:
        """Alone with this digest among all gateways that share the directory."""
        descriptor = os.open(self._root / LOCKS / digest, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            until = time.monotonic() + self._params.lock_s
            while not _lock(descriptor):
                if time.monotonic() > until:
                    raise Unavailable("another gateway has been building this environment for too long")
                await asyncio.sleep(self._params.lock_poll_s)
            yield
        finally:
            os.close(descriptor)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def digest_of(requirements: list[str], interpreter: Interpreter) -> str:
    """The environment's name: equal for equal requirements, interpreter and platform."""
    platform_name = [sys.platform, platform.machine(), *platform.libc_ver()]
    facts = [LAYOUT_VERSION, sorted(requirements), interpreter.path, interpreter.version, platform_name]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]
