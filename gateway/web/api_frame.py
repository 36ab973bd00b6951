"""What every part of the control API shares: who asks, errors in their one shape, checked parameters and bodies."""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

import orjson
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from gateway.catalog import NAME, NAME_RULE
from gateway.errors import BadRequest, Forbidden, NotFound, SamovarError, TooLarge
from gateway.web.answers import error_body, error_headers
from gateway.web.api_services import ApiParams, ApiServices, Principal

log = logging.getLogger("gateway.api")

#: Of the request that this context answers; set by the middleware before any handler runs.
_principal: ContextVar[Principal] = ContextVar("principal")
PUBLIC_PATHS = frozenset({"/healthz", "/readyz"})


class MethodNotAllowed(SamovarError):
    """The address is there, the method is not."""

    code, fault, status = "method_not_allowed", "caller", 405


def json_answer(value: object, status: int = 200) -> web.Response:
    """A whole JSON answer."""
    return web.Response(body=orjson.dumps(value), status=status, content_type="application/json")


def error_answer(error: SamovarError) -> web.Response:
    """The answer that an error is."""
    headers = [(name.decode(), value.decode()) for name, value in error_headers(error)]
    return web.Response(body=error_body(error), status=error.status, headers=headers)


def guard(services: ApiServices) -> Middleware:
    """The one middleware: authenticates, and turns everything that is raised into an answer that closes."""

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            if request.path not in PUBLIC_PATHS:
                header = request.headers.get("Authorization")
                _principal.set(services.tokens.authenticate(header, services.now()))
            response = await handler(request)
        except SamovarError as error:
            response = error_answer(error)
        except web.HTTPException as error:
            response = _of_http(request, error)
        except (asyncio.CancelledError, ConnectionError):
            raise
        except Exception:
            ident = secrets.token_hex(8)
            log.exception("%s %s failed, error %s", request.method, request.path, ident)
            response = error_answer(SamovarError(f"the gateway failed, error {ident}", detail={"id": ident}))
        if not response.prepared:
            response.force_close()
        return response

    return middleware


def _of_http(request: web.Request, error: web.HTTPException) -> web.Response:
    if error.status == 404:
        return error_answer(NotFound(f"no such address: {request.path}"))
    if error.status == 405:
        response = error_answer(MethodNotAllowed(f"{request.path} does not take {request.method}"))
        response.headers["Allow"] = error.headers.get("Allow", "")
        return response
    if error.status == 413:
        return error_answer(TooLarge(f"body: larger than {request.client_max_size} bytes"))
    return error_answer(BadRequest(error.reason or "the request cannot be read"))


# -- who may do what -----------------------------------------------------------------------------------------


def principal() -> Principal:
    """Who asks."""
    return _principal.get()


def scope(asked: str | None) -> str | None:
    """The namespace that a list is about; None: every one. Raises Forbidden for another's."""
    own = principal().namespace
    if own is not None and asked not in (None, own):
        raise Forbidden(f"this token is for namespace {own!r}, not {asked!r}")
    return own if own is not None else asked


def address(request: web.Request) -> tuple[str, str]:
    """Namespace and function of the path. Raises Forbidden for another's namespace."""
    namespace = request.match_info["namespace"]
    scope(namespace)
    return namespace, request.match_info["function"]


# -- parameters and bodies -----------------------------------------------------------------------------------


class Query:
    """The query's parameters, each checked. Those that are not in `known`, or are there twice, are refused."""

    def __init__(self, request: web.Request, *known: str) -> None:
        self._values: dict[str, str] = {}
        for name, value in request.query.items():
            if name not in known:
                there = f"there are {', '.join(known)}" if known else "there is none here"
                raise BadRequest(f"{name[:80]!r}: unknown parameter; {there}")
            if name in self._values:
                raise BadRequest(f"{name}: is given twice")
            self._values[name] = value

    def name(self, key: str) -> str | None:
        """A namespace's or function's name."""
        value = self._values.get(key)
        if value is not None and not NAME.fullmatch(value):
            raise BadRequest(f"{key}: {NAME_RULE}, not {value[:80]!r}")
        return value

    def whole(self, key: str, default: int, low: int, high: int) -> int:
        """A whole number from `low` to `high`."""
        value = self._values.get(key)
        if value is None:
            return default
        if not value.isascii() or not value.isdigit() or len(value) > 18 or not low <= int(value) <= high:
            raise BadRequest(f"{key}: is a whole number from {low} to {high}, not {value[:80]!r}")
        return int(value)

    def moment(self, key: str) -> float | None:
        """Seconds since the epoch."""
        value = self._values.get(key)
        if value is None:
            return None
        try:
            seconds = float(value)
        except ValueError:
            seconds = math.nan
        if not math.isfinite(seconds) or abs(seconds) > 1e11:
            raise BadRequest(f"{key}: is a time in seconds since 1970, not {value[:80]!r}")
        return seconds


async def json_body(request: web.Request, params: ApiParams, known: Mapping[str, str]) -> dict[str, Any]:
    """The body's JSON object; an empty body is an empty one. `known`: field -> its rule, for unknown ones.

    Raises BadRequest, and TooLarge through aiohttp's own bound.
    """
    try:
        async with asyncio.timeout(params.json_body_s):
            body = await request.read()
    except TimeoutError:
        raise BadRequest(f"body: did not arrive within {params.json_body_s:g} s") from None
    if not body.strip():
        return {}
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"body: is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise BadRequest("body: is a JSON object")
    for key in value:
        if key not in known:
            raise BadRequest(f"{key[:80]!r}: unknown field; there are {', '.join(known)}")
    return value
