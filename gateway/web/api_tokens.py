"""Tokens over HTTP, for administrators."""

from __future__ import annotations

import math
from typing import Any

from aiohttp import web

from gateway.catalog import NAME, NAME_RULE
from gateway.errors import BadRequest, Forbidden
from gateway.web.api_frame import Query, json_answer, json_body, principal
from gateway.web.api_services import ApiParams, ApiServices

NAME_CHARS_MAX = 100
EXPIRES_IN_S_MAX = 10 * 366 * 24 * 3600.0

_RULES = {
    "namespace": f"{NAME_RULE}; null: every namespace",
    "name": f"is text for people, 1 to {NAME_CHARS_MAX} characters that can be printed",
    "expires_in_s": f"is a number of seconds above 0, at most {EXPIRES_IN_S_MAX:.0f}",
    "admin": "is true or false",
}


class TokensApi:
    """See the module."""

    def __init__(self, services: ApiServices, params: ApiParams) -> None:
        self._tokens = services.tokens
        self._params = params

    def routes(self) -> list[web.RouteDef]:
        """Its addresses."""
        return [
            web.get("/api/v1/tokens", self.list),
            web.post("/api/v1/tokens", self.create),
            web.delete("/api/v1/tokens/{token_id}", self.delete),
        ]

    async def list(self, request: web.Request) -> web.Response:
        """Every token, without its secret."""
        _require_admin()
        Query(request)
        return json_answer(self._tokens.rows())

    async def create(self, request: web.Request) -> web.Response:
        """A new one; the answer is the only place that ever shows the secret."""
        _require_admin()
        Query(request)
        body = await json_body(request, self._params, _RULES)
        for field in ("namespace", "name"):
            if field not in body:
                raise BadRequest(f"{field}: is missing; it {_RULES[field]}")
        namespace, name = body["namespace"], body["name"]
        expires_in_s, admin = body.get("expires_in_s"), body.get("admin", False)
        _check("namespace", namespace, namespace is None or (isinstance(namespace, str) and _is_name(namespace)))
        _check("name", name, isinstance(name, str) and 0 < len(name) <= NAME_CHARS_MAX and name.isprintable())
        _check("expires_in_s", expires_in_s, expires_in_s is None or _is_duration(expires_in_s))
        _check("admin", admin, isinstance(admin, bool))
        row, secret = await self._tokens.create(namespace, name, admin, expires_in_s)
        answer = json_answer({"id": row["id"], "token": secret, **row}, status=201)
        answer.headers["Cache-Control"] = "no-store"
        return answer

    async def delete(self, request: web.Request) -> web.Response:
        """It is not accepted from now on."""
        _require_admin()
        Query(request)
        token_id = request.match_info["token_id"]
        await self._tokens.revoke(token_id)
        return json_answer({"deleted": token_id})


def _require_admin() -> None:
    if not principal().admin:
        raise Forbidden("tokens are for administrators; this token is none")


def _check(field: str, value: Any, fits: bool) -> None:
    if not fits:
        raise BadRequest(f"{field}: {_RULES[field]}, not {str(value)[:80]!r}")


def _is_name(value: str) -> bool:
    return NAME.fullmatch(value) is not None


def _is_duration(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) and 0 < value <= EXPIRES_IN_S_MAX
