"""Requests as the bytes that go on the wire, made once and sent many times; and what a right answer is."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Address:
    """Where a server listens."""

    host: str
    port: int


@dataclass(frozen=True)
class Target:
    """A server and the path of the echo on it."""

    address: Address
    path: str
    token: str = ""


#: What the null call says, and hears back.
PAYLOAD: dict[str, Any] = {"name": "samovar", "numbers": [1, 2, 3], "warm": True}


def post(target: Target, body: bytes, content_type: str = "application/json") -> bytes:
    """A whole HTTP/1.1 request on a connection that is kept."""
    lines = [f"POST {target.path} HTTP/1.1", f"Host: {target.address.host}:{target.address.port}"]
    if target.token:
        lines.append(f"Authorization: Bearer {target.token}")
    lines += [f"Content-Type: {content_type}", f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


def post_json(target: Target, value: Any) -> bytes:
    """The same with a JSON body."""
    return post(target, json.dumps(value, separators=(",", ":")).encode())


class ExpectedJson:
    """Takes an answer's body in pieces and says whether it is this JSON, however it was spelled."""

    def __init__(self, value: Any) -> None:
        self.value = value
        #: The spelling seen last, so that a reader can recognise it without decoding.
        self.spelling = b""
        self._pieces: list[bytes] = []

    def feed(self, piece: bytes) -> None:
        """More of the body."""
        self._pieces.append(piece)

    def is_right(self) -> bool:
        """At the end of the body; ready for the next one after it."""
        body = b"".join(self._pieces)
        self._pieces.clear()
        try:
            right = bool(json.loads(body) == self.value)
        except ValueError:
            return False
        if right:
            self.spelling = body
        return right


class ExpectedBytes:
    """Takes an answer's body in pieces and says whether it is exactly this, without keeping any of it."""

    spelling = b""

    def __init__(self, body: bytes) -> None:
        self._body = memoryview(body)
        self._at = 0
        self._right = True

    def feed(self, piece: bytes) -> None:
        """More of the body."""
        end = self._at + len(piece)
        self._right = self._right and self._body[self._at : end] == piece
        self._at = end

    def is_right(self) -> bool:
        """At the end of the body; ready for the next one after it."""
        right = self._right and self._at == len(self._body)
        self._at, self._right = 0, True
        return right
