"""A function's log over HTTP: its last lines, and those that come while the client listens."""

from __future__ import annotations

from contextlib import aclosing

from aiohttp import web

from gateway.errors import TooMany
from gateway.function_logs import TooManyFollowers
from gateway.web.api_frame import Query
from gateway.web.api_functions import known_function
from gateway.web.api_services import ApiParams, ApiServices

_TYPE = "application/x-ndjson"


class LogsApi:
    """See the module."""

    def __init__(self, services: ApiServices, params: ApiParams) -> None:
        self._services = services
        self._params = params

    def routes(self) -> list[web.RouteDef]:
        """Its address."""
        return [web.get("/api/v1/functions/{namespace}/{function}/logs", self.logs)]

    async def logs(self, request: web.Request) -> web.StreamResponse:
        """The last `tail` lines; with `follow=1` every later one too."""
        query = Query(request, "tail", "follow")
        tail = query.whole("tail", 100, 0, self._params.tail_max)
        follow = query.whole("follow", 0, 0, 1)
        function = known_function(request, self._services)
        if follow:
            return await self._follow(request, function.namespace, function.name, tail)
        rows = await self._services.logs.tail(function.namespace, function.name, tail)
        return web.Response(body=b"".join(row + b"\n" for row in rows), content_type=_TYPE)

    async def _follow(self, request: web.Request, namespace: str, name: str, tail: int) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": _TYPE, "Cache-Control": "no-store"})
        response.force_close()
        async with aclosing(self._services.logs.follow(namespace, name, tail, self._params.beat_s)) as rows:
            try:
                async for row in rows:
                    if not response.prepared:
                        await response.prepare(request)
                    await response.write(row + b"\n")
            except TooManyFollowers as error:
                raise TooMany(str(error), retry_after_s=10.0) from error
            except ConnectionResetError:
                return response  # the reader left, as readers do
        if not response.prepared:
            await response.prepare(request)
        await response.write_eof()
        return response
