"""Deploys over HTTP: the upload into a file, then one line for each step; it goes on if the client goes away."""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web

from gateway.catalog import NAME, NAME_RULE
from gateway.deploy.pipeline import DeployFailed, Phase
from gateway.errors import BadRequest, SamovarError, TooLarge, TooMany, Unavailable
from gateway.web.api_frame import Query, scope
from gateway.web.api_functions import url_of
from gateway.web.api_services import ApiParams, ApiServices

log = logging.getLogger("gateway.api")

#: Progress lines held for a client that reads slowly; more are left out, the last line never.
LINES_MAX = 1000
_WRITE_BYTES = 1024 * 1024

Line = dict[str, Any]


class DeployApi:
    """See the module."""

    def __init__(self, services: ApiServices, params: ApiParams) -> None:
        self._deployer = services.deployer
        self._params = params
        self._uploads = 0
        self._running: set[asyncio.Task[None]] = set()

    def routes(self) -> list[web.RouteDef]:
        """Its address."""
        return [web.post("/api/v1/functions/{namespace}", self.deploy)]

    async def deploy(self, request: web.Request) -> web.StreamResponse:
        """Take the archive and deploy it."""
        begun = time.monotonic()
        Query(request)
        namespace = request.match_info["namespace"]
        scope(namespace)
        if not NAME.fullmatch(namespace):
            raise BadRequest(f"namespace: {NAME_RULE}, not {namespace[:80]!r}")
        async with self._upload_place() as upload:
            await self._receive(request, upload)
            lines: asyncio.Queue[Line | SamovarError | None] = asyncio.Queue()
            task = asyncio.create_task(self._carry_out(namespace, upload, lines, begun), name=f"deploy {namespace}")
            self._running.add(task)
            task.add_done_callback(self._running.discard)
            first = await lines.get()
        if isinstance(first, SamovarError):
            raise first
        return await self._tell(request, first, lines)

    async def close(self) -> None:
        """End the deploys under way; their revisions are marked failed."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _tell(
        self, request: web.Request, line: Line | None, lines: asyncio.Queue[Line | SamovarError | None]
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson", "Cache-Control": "no-store"})
        response.force_close()
        await response.prepare(request)
        while line is not None:
            await response.write(orjson.dumps(line) + b"\n")
            following = await lines.get()
            assert not isinstance(following, SamovarError)
            line = following
        await response.write_eof()
        return response

    async def _carry_out(
        self, namespace: str, upload: Path, lines: asyncio.Queue[Line | SamovarError | None], begun: float
    ) -> None:
        """One deploy from unpacking to its last line, whoever still listens."""
        told = False
        phase: Phase = "bundle"

        def elapsed_ms() -> int:
            return round((time.monotonic() - begun) * 1000)

        def on_progress(now_in: Phase, message: str) -> None:
            nonlocal told, phase
            told, phase = True, now_in
            if lines.qsize() < LINES_MAX:
                line = {"event": "progress", "phase": phase, "message": message, "elapsed_ms": elapsed_ms()}
                lines.put_nowait(line)

        try:
            revision = await self._deployer.deploy(namespace, upload, on_progress)
            url = url_of(revision.namespace, revision.function)
            done = {"event": "deployed", "namespace": revision.namespace, "function": revision.function}
            lines.put_nowait(done | {"revision": revision.number, "url": url, "elapsed_ms": elapsed_ms()})
        except DeployFailed as error:
            lines.put_nowait(_failed(error.phase, error))
        except SamovarError as error:
            lines.put_nowait(_failed(phase, error) if told else error)
        except asyncio.CancelledError:
            stopped = Unavailable("the gateway was stopped during the deploy", retry_after_s=5.0)
            lines.put_nowait(_failed(phase, stopped) if told else stopped)
            raise
        except Exception:
            log.exception("deploy into %s failed", namespace)
            surprise = SamovarError("the platform failed during the deploy; its log says more")
            lines.put_nowait(_failed(phase, surprise) if told else surprise)
        finally:
            lines.put_nowait(None)

    # -- the upload --------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _upload_place(self) -> AsyncIterator[Path]:
        """A file of its own until the bundle is unpacked, within the bound on uploads."""
        if self._uploads >= self._params.uploads_max:
            raise TooMany(f"{self._uploads} uploads are under way", retry_after_s=5.0)
        self._uploads += 1
        path: Path | None = None
        try:
            path = self._make_file()
            yield path
        finally:
            self._uploads -= 1
            if path is not None:
                path.unlink(missing_ok=True)

    def _make_file(self) -> Path:
        directory = self._params.upload_directory
        try:
            if directory is not None:
                directory.mkdir(parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(prefix="samovar-upload-", dir=directory)
        except OSError as error:
            raise Unavailable(f"uploads cannot be stored: {error.strerror}", retry_after_s=10.0) from error
        os.close(descriptor)
        return Path(name)

    async def _receive(self, request: web.Request, upload: Path) -> None:
        """The body into the file. Raises TooLarge, before the body is read where its length is told."""
        limit = self._params.upload_bytes_max
        if request.content_length is not None and request.content_length > limit:
            raise TooLarge(f"body: {request.content_length} bytes; an upload is at most {limit}")
        received = 0
        held: list[bytes] = []
        held_bytes = 0
        try:
            with upload.open("wb", buffering=0) as file:
                while piece := await self._piece(request):
                    received += len(piece)
                    if received > limit:
                        raise TooLarge(f"body: more than {limit} bytes, the most that an upload may have")
                    held.append(piece)
                    held_bytes += len(piece)
                    if held_bytes >= _WRITE_BYTES:
                        await asyncio.to_thread(_write_all, file.fileno(), b"".join(held))
                        held, held_bytes = [], 0
                await asyncio.to_thread(_write_all, file.fileno(), b"".join(held))
        except OSError as error:
            if isinstance(error, ConnectionError | TimeoutError):
                raise
            raise Unavailable(f"the upload cannot be stored: {error.strerror}", retry_after_s=10.0) from error

    async def _piece(self, request: web.Request) -> bytes:
        try:
            async with asyncio.timeout(self._params.upload_idle_s):
                return await request.content.readany()
        except TimeoutError:
            raise BadRequest(f"body: nothing came for {self._params.upload_idle_s:g} s") from None
        except web.RequestPayloadError as error:
            raise BadRequest(f"body: cannot be read to its end: {error}") from None


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _failed(phase: Phase, error: SamovarError) -> Line:
    fields: Line = {"code": error.code, "message": error.message}
    if error.detail is not None:
        fields["detail"] = error.detail
    return {"event": "failed", "phase": phase, "error": fields}
