"""The ASGI shape: an application called with (scope, receive, send), as FastAPI and Starlette make them."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import unquote_to_bytes

from runtime.answers import CallCancelled
from runtime.call_stream import CallStream
from runtime.faults import traceback_of
from runtime.messages import Header, Request
from runtime.shapes.event_result import BadResult
from runtime.shapes.lifespan import Lifespan

Application = Callable[..., Awaitable[None]]

_VERSION = {"version": "3.0", "spec_version": "2.3"}
_DISCONNECT = {"type": "http.disconnect"}
_DEFAULT_PORTS = {"http": 80, "https": 443}


def http_scope(request: Request, state: dict[str, Any]) -> dict[str, Any]:
    """The connection scope. `root_path` is the function's mount point, `path` and `raw_path` begin with it."""
    below, _, query = request.target.partition(b"?")
    raw_path = request.mount + (below or b"/")
    headers = [(name.lower(), value) for name, value in request.headers]
    return {
        "type": "http",
        "asgi": dict(_VERSION),
        "http_version": "1.1",
        "method": request.method,
        "scheme": request.scheme,
        "root_path": _text(request.mount),
        "path": _text(raw_path),
        "raw_path": raw_path,
        "query_string": query,
        "headers": headers,
        "client": _client(request.peer),
        "server": _server(headers, request.scheme),
        "state": state.copy(),
        "extensions": {},
    }


def _text(raw: bytes) -> str:
    return unquote_to_bytes(raw).decode("utf-8", "replace")


def _client(peer: str) -> tuple[str, int] | None:
    """("address", port) of "address", "address:port" or "[address]:port"; port 0 when it is not told."""
    host, _, port = peer.rpartition(":")
    if host and port.isdigit() and (":" not in host or host.startswith("[")):
        return host.strip("[]"), int(port)
    return (peer.strip("[]"), 0) if peer else None


def _server(headers: list[tuple[bytes, bytes]], scheme: str) -> tuple[str, int | None] | None:
    host = next((value.decode("latin-1") for name, value in headers if name == b"host"), "")
    if not host:
        return None
    name, _, port = host.rpartition(":")
    if name and port.isdigit():
        return name.strip("[]"), int(port)
    return host.strip("[]"), _DEFAULT_PORTS.get(scheme)


def _answer_headers(given: Any) -> list[Header]:
    headers: list[Header] = []
    for name, value in given:
        if not isinstance(name, bytes) or not isinstance(value, bytes):
            raise TypeError(f"headers are pairs of bytes, not of {type(name).__name__} and {type(value).__name__}")
        headers.append([name, value])
    return headers


class HttpCall:
    """The two callables that an application gets for one call."""

    def __init__(self, stream: CallStream) -> None:
        self._stream = stream
        self._body_read = False
        self._started = False
        self.complete = False

    async def receive(self) -> dict[str, Any]:
        """The next piece of the body; once that is over, word that the caller is gone or has its answer."""
        if not self._body_read:
            try:
                data, self._body_read = await self._stream.read()
            except CallCancelled:
                return dict(_DISCONNECT)
            return {"type": "http.request", "body": data, "more_body": not self._body_read}
        await self._stream.until_gone()
        return dict(_DISCONNECT)

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """A part of the answer. Raises RuntimeError for one out of order, TypeError for one that is not bytes."""
        kind = message["type"]
        if kind == "http.response.start":
            if self._started:
                raise RuntimeError("http.response.start was sent twice")
            self._started = True
            self._stream.head(int(message["status"]), _answer_headers(message.get("headers") or ()))
        elif kind == "http.response.body":
            if not self._started or self.complete:
                when = "after the answer was complete" if self.complete else "before http.response.start"
                raise RuntimeError(f"http.response.body was sent {when}")
            body = message.get("body", b"")
            if not isinstance(body, (bytes, bytearray, memoryview)):
                raise TypeError(f"a body is bytes, not {type(body).__name__}")
            self.complete = not message.get("more_body", False)
            await self._stream.write(bytes(body), self.complete)
        else:
            raise RuntimeError(f"a message of type {kind!r} has no place in an HTTP answer")


class AsgiService:
    """Implements `runtime.loop_driver.Service`."""

    cancellable = True

    def __init__(self, application: Application, bundle_dir: str) -> None:
        self._application = application
        self._bundle_dir = bundle_dir
        self._lifespan = Lifespan(application, bundle_dir, _VERSION)

    async def start(self) -> None:
        """Run the application's startup. Raises LoadError."""
        await self._lifespan.startup()

    async def serve(self, stream: CallStream) -> None:
        """One call."""
        call = HttpCall(stream)
        scope = http_scope(stream.request, self._lifespan.state)
        try:
            await self._application(scope, call.receive, call.send)
        except Exception as error:
            if stream.ended:  # the caller has the whole answer; only the log can tell
                print(traceback_of(error, self._bundle_dir), end="", file=sys.stderr, flush=True)
            raise
        if not call.complete and not stream.gone:
            raise BadResult("the application ended without a complete answer")

    async def stop(self) -> None:
        """Run the application's shutdown."""
        await self._lifespan.shutdown()
