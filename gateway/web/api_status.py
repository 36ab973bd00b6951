"""How the gateway is over HTTP: health, readiness, metrics, workers, usage."""

from __future__ import annotations

from aiohttp import web

from gateway.errors import BadRequest, Forbidden
from gateway.web.api_frame import Query, json_answer, principal, scope
from gateway.web.api_services import ApiServices
from gateway.web.metrics import CONTENT_TYPE


class StatusApi:
    """See the module."""

    def __init__(self, services: ApiServices) -> None:
        self._services = services

    def routes(self) -> list[web.RouteDef]:
        """Its addresses."""
        return [
            web.get("/healthz", self.health),
            web.get("/readyz", self.ready),
            web.get("/metrics", self.metrics),
            web.get("/api/v1/workers", self.workers),
            web.get("/api/v1/usage", self.usage),
        ]

    async def health(self, request: web.Request) -> web.Response:
        """The process runs."""
        return json_answer({"status": "ok"})

    async def ready(self, request: web.Request) -> web.Response:
        """Whether calls can be served."""
        waiting_for = self._services.waiting_for()
        if waiting_for:
            return json_answer({"status": "waiting", "waiting_for": waiting_for}, status=503)
        return json_answer({"status": "ready", "waiting_for": []})

    async def metrics(self, request: web.Request) -> web.Response:
        """Prometheus text. It names every namespace's functions, so a namespace's token does not do."""
        Query(request)
        own = principal().namespace
        if own is not None:
            raise Forbidden(f"metrics are of every namespace; this token is for {own!r} only")
        return web.Response(body=self._services.metrics.render(), headers={"Content-Type": CONTENT_TYPE})

    async def workers(self, request: web.Request) -> web.Response:
        """A row for each worker that the token may see."""
        namespace = scope(Query(request, "namespace").name("namespace"))
        rows = self._services.pool.workers()
        return json_answer([row for row in rows if namespace is None or row["namespace"] == namespace])

    async def usage(self, request: web.Request) -> web.Response:
        """Sums for each function."""
        query = Query(request, "namespace", "since", "until")
        namespace = scope(query.name("namespace"))
        since, until = query.moment("since"), query.moment("until")
        if since is not None and until is not None and since > until:
            raise BadRequest(f"since: {since:g} is after until ({until:g})")
        return json_answer(await self._services.usage.rows(namespace, since, until))
