"""Calls a sample's handler in this process, and compares an answer with what its folder says it should be."""

from __future__ import annotations

import asyncio
import importlib
import json
import math
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


@contextmanager
def module_of(folder: Path, name: str = "handler") -> Iterator[ModuleType]:
    """A module of the sample, imported as in a worker: its folder first on the path, nothing left behind."""
    own = {path.stem for path in folder.glob("*.py")}
    for module in own:
        sys.modules.pop(module, None)
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield importlib.import_module(name)
    finally:
        sys.path.remove(str(folder))
        for module in own:
            sys.modules.pop(module, None)


async def call_asgi(
    app: Any, *, path: bytes = b"", query: bytes = b"", method: str = "POST", body: bytes | list[bytes] = b"",
    headers: list[tuple[bytes, bytes]] | None = None, gone_after: int | None = None,
) -> Answer:  # fmt: skip
    """One call as a worker makes it; with `gone_after` the client leaves after that many pieces of the answer."""
    pieces = body if isinstance(body, list) else [body]
    incoming = [
        {"type": "http.request", "body": piece, "more_body": place < len(pieces) - 1}
        for place, piece in enumerate(pieces)
    ]
    left = asyncio.Event()
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        if incoming:
            return incoming.pop(0)
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)
        if gone_after is not None and len(sent) - 1 >= gone_after:
            left.set()

    mount = "/fn/default/sample"
    raw_path = mount.encode() + path
    scope = {
        "type": "http", "asgi": {"version": "3.0", "spec_version": "2.4"}, "http_version": "1.1", "method": method,
        "scheme": "http", "path": raw_path.decode("latin-1"), "raw_path": raw_path, "query_string": query,
        "root_path": mount, "headers": headers or [(b"content-type", b"application/json")],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2), "state": {},
    }  # fmt: skip
    await app(scope, receive, send)
    assert sent[0]["type"] == "http.response.start"
    answer_headers = [(k.decode("latin-1"), v.decode("latin-1")) for k, v in sent[0].get("headers", [])]
    return Answer(sent[0]["status"], answer_headers, b"".join(m.get("body", b"") for m in sent[1:]))


def call_event(main: Any, event: Any) -> Answer:
    """One call of an event handler, its result as the HTTP answer it means."""
    result = main(event, None)
    if isinstance(result, dict) and "statusCode" in result:
        body = result.get("body", b"")
        is_bytes = isinstance(body, bytes)
        headers = list(result.get("headers", {}).items()) or [("content-type", "application/json")]
        return Answer(result["statusCode"], headers, body if is_bytes else json.dumps(body).encode())
    return Answer(200, [("content-type", "application/json")], json.dumps(result).encode())


def differences(answer: Answer, rules: dict[str, Any]) -> list[str]:
    """In what the answer is not as expected.json says; empty when it is."""
    found = []
    if answer.status != rules["status"]:
        found.append(f"status {answer.status}, not {rules['status']}")
    got = {name.lower(): value.partition(";")[0].strip() for name, value in answer.headers}
    for name, value in rules.get("headers", {}).items():
        if got.get(name) != value:
            found.append(f"{name}: {got.get(name)!r}, not {value!r}")
    if "json" in rules and not same(json.loads(answer.body), rules["json"]):
        found.append(f"body {answer.body!r}")
    if "json_has" in rules:
        body = json.loads(answer.body)
        found += [f"{key}: {body.get(key)!r}" for key, v in rules["json_has"].items() if not same(body.get(key), v)]
    if "text" in rules and answer.body.decode() != rules["text"]:
        found.append(f"body {answer.body!r}")
    if "png" in rules:
        width, height = struct.unpack(">II", answer.body[16:24])
        if answer.body[:8] != b"\x89PNG\r\n\x1a\n" or {"width": width, "height": height} != rules["png"]:
            found.append(f"a PNG of {width}x{height}" if answer.body[:4] == b"\x89PNG" else "no PNG")
    return found


def same(got: Any, wanted: Any) -> bool:
    """Equal, numbers with a fraction to six places."""
    if isinstance(wanted, float):
        return isinstance(got, int | float) and math.isclose(got, wanted, abs_tol=1e-6)
    if isinstance(wanted, list):
        return isinstance(got, list) and len(got) == len(wanted) and all(map(same, got, wanted))
    if isinstance(wanted, dict):
        return isinstance(got, dict) and got.keys() == wanted.keys() and all(same(got[k], v) for k, v in wanted.items())
    return bool(got == wanted)


@pytest.fixture
def calls() -> SimpleNamespace:
    """The ways a test here calls a sample."""
    return SimpleNamespace(module_of=module_of, asgi=call_asgi, event=call_event, differences=differences, same=same)
