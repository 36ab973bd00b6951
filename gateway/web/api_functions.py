"""Functions over HTTP: list, show, delete, roll back, explain."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from gateway.catalog import Function, Revision
from gateway.errors import BadRequest, NotFound
from gateway.web.api_frame import Query, address, json_answer, json_body, scope
from gateway.web.api_services import ApiParams, ApiServices


class FunctionsApi:
    """See the module."""

    def __init__(self, services: ApiServices, params: ApiParams) -> None:
        self._services = services
        self._params = params

    def routes(self) -> list[web.RouteDef]:
        """Its addresses."""
        one = "/api/v1/functions/{namespace}/{function}"
        return [
            web.get("/api/v1/functions", self.list),
            web.get(one, self.show),
            web.delete(one, self.delete),
            web.post(f"{one}/rollback", self.rollback),
            web.get(f"{one}/explain", self.explain),
        ]

    async def list(self, request: web.Request) -> web.Response:
        """All that the token may see."""
        namespace = scope(Query(request, "namespace").name("namespace"))
        functions = self._services.registry.functions(namespace)
        counts = self._services.pool.worker_counts()
        rows = [self._row(function, counts) for function in functions]
        return json_answer(sorted(rows, key=lambda row: (row["namespace"], row["name"])))

    async def show(self, request: web.Request) -> web.Response:
        """One function with its revisions."""
        Query(request)
        function = self._function(request)
        revisions = self._services.registry.revisions(function.namespace, function.name)
        shown = next((r for r in revisions if r.number == function.live), revisions[-1] if revisions else None)
        row = self._row(function, self._services.pool.worker_counts())
        row["manifest"] = shown.manifest.as_dict() if shown is not None else None
        row["revisions"] = [_revision_row(revision, function.live) for revision in revisions]
        return json_answer(row)

    async def delete(self, request: web.Request) -> web.Response:
        """Forget it, its log and its decisions."""
        Query(request)
        namespace, name = address(request)
        services = self._services
        await services.deployer.delete(namespace, name)
        await services.logs.forget(namespace, name)
        services.explanations.forget(namespace, name)
        return json_answer({"deleted": f"{namespace}/{name}"})

    async def rollback(self, request: web.Request) -> web.Response:
        """Traffic to an earlier revision."""
        Query(request)
        namespace, name = address(request)
        body = await json_body(request, self._params, {"revision": "a revision's number"})
        number = body.get("revision")
        if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
            raise BadRequest(f"revision: is a revision's number, not {number!r}")
        revision, previous = await self._services.deployer.rollback(namespace, name, number)
        return json_answer(
            {"namespace": namespace, "function": name, "revision": revision.number, "previous": previous}
        )

    async def explain(self, request: web.Request) -> web.Response:
        """The latest decisions about it."""
        limit = Query(request, "limit").whole("limit", 50, 1, self._params.explain_max)
        function = self._function(request)
        return json_answer(self._services.explanations.recent(function.namespace, function.name, limit))

    def _function(self, request: web.Request) -> Function:
        return known_function(request, self._services)

    def _row(self, function: Function, counts: dict[str, int]) -> dict[str, Any]:
        return {
            "namespace": function.namespace,
            "name": function.name,
            "live": function.live,
            "public": function.public,
            "url": url_of(function.namespace, function.name),
            "state": self._state(function),
            "workers": counts.get(f"{function.namespace}/{function.name}", 0),
            "updated_at": function.updated_at,
        }

    def _state(self, function: Function) -> str:
        """`ready` when it serves; else what became of the latest revision."""
        if function.live is not None:
            return "ready"
        revisions = self._services.registry.revisions(function.namespace, function.name)
        return revisions[-1].state if revisions else "failed"


def url_of(namespace: str, name: str) -> str:
    """A function's address, below the gateway's own."""
    return f"/fn/{namespace}/{name}"


def known_function(request: web.Request, services: ApiServices) -> Function:
    """The function of the path. Raises Forbidden and NotFound."""
    namespace, name = address(request)
    function = services.registry.function(namespace, name)
    if function is None:
        raise NotFound(f"no function {namespace}/{name}")
    return function


def _revision_row(revision: Revision, live: int | None) -> dict[str, Any]:
    return {
        "number": revision.number,
        "state": revision.state,
        "live": revision.number == live,
        "shape": revision.shape,
        "environment": revision.environment_digest,
        "error": revision.error,
        "created_at": revision.created_at,
    }
