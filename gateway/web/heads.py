"""What a request's head must be like before anything is done with it: pure checks, no connection.

The parser refuses what no reading of RFC 9112 allows. Refused here is what some other reader of the same bytes (a
proxy in front of us) could understand differently, and what is larger than we want to hold.
"""

from __future__ import annotations

from typing import Literal

Headers = list[tuple[bytes, bytes]]

#: Longest method that is looked for at the start of a request line.
_METHOD_BYTES_MAX = 32

_FUNCTIONS = b"/fn/"


class BadHead(Exception):
    """A head that is refused, with the status and the words of the refusal."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def whose(data: bytes) -> Literal["function", "api", "unknown"]:
    """Who serves the request that starts with `data`? `unknown`: too little of it is there to say. What is no request
    line at all goes the `function` way, where the parser says what is wrong with it."""
    space = data.find(b" ", 0, _METHOD_BYTES_MAX)
    if space < 0:
        return "function" if b"\n" in data or len(data) >= _METHOD_BYTES_MAX else "unknown"
    if data.startswith(_FUNCTIONS, space + 1):
        return "function"
    end = data.find(b" ", space + 1)
    if end < 0 and data.find(b"\n", space) < 0:
        return "unknown"
    target, _ = origin_form(data[space + 1 : end]) if end > 0 else (b"", b"")
    return "function" if target.startswith(_FUNCTIONS) else "api"


def origin_form(target: bytes) -> tuple[bytes, bytes]:
    """A target without scheme and authority, and the authority that it named (empty when it named none)."""
    if target.startswith(b"/") or b"://" not in target:
        return target, b""
    authority, slash, path = target.split(b"://", 1)[1].partition(b"/")
    return slash + path, authority


class Head:
    """A request's head, read. Never changed, since equal ones on a connection are read once and shared."""

    __slots__ = (
        "content_length",
        "expect_continue",
        "headers",
        "http10",
        "keep_alive",
        "memo",
        "method",
        "names",
        "target",
    )

    def __init__(self, method: str, target: bytes, headers: Headers, http10: bool = False, keep_alive: bool = True):
        self.method = method
        #: Path and query as the client sent them.
        self.target = target
        #: As they came: order, repeats and case kept.
        self.headers = headers
        #: Their names in lower case, in the same order.
        self.names = [pair[0].lower() for pair in headers]
        self.http10 = http10
        #: The client does not end the connection after this request.
        self.keep_alive = keep_alive
        #: Announced length; None when chunked or absent.
        self.content_length: int | None = None
        self.expect_continue = False
        #: For whoever serves requests: what follows from the head alone, so that it is found once.
        self.memo: object = None

    def value(self, name: bytes) -> bytes | None:
        """Of the first header of this (lower-case) name."""
        return self.headers[self.names.index(name)][1] if name in self.names else None


def read_head(
    method: str, target: bytes, version: str, headers: Headers, keep_alive: bool, bytes_max: int | None
) -> Head:
    """The head that the parser found, checked. `bytes_max` None: it is known to be small. Raises BadHead."""
    if version not in {"1.1", "1.0"}:
        raise BadHead(505, f"HTTP/{version} is not spoken here; HTTP/1.1 is")
    if method == "CONNECT":
        raise BadHead(501, "CONNECT is not offered")
    if bytes_max is not None:
        size = len(target) + sum(len(name) + len(value) + 4 for name, value in headers)
        if size > bytes_max:
            raise BadHead(431, f"request line and headers have {size} bytes; the limit is {bytes_max}")
    if not target.startswith(b"/"):
        target, headers = _in_origin_form(target, headers)
    head = Head(method, target, headers, version == "1.0", keep_alive)
    hosts = head.names.count(b"host")
    if hosts != 1 and (hosts or not head.http10):
        raise BadHead(400, "a request has exactly one Host header")
    length = head.value(b"content-length")
    if length is not None:
        head.content_length = int(length)
    elif (coding := head.value(b"transfer-encoding")) is not None:
        if head.http10:
            raise BadHead(400, "Transfer-Encoding has no meaning in HTTP/1.0")
        if coding.strip().lower() != b"chunked":
            raise BadHead(501, "Transfer-Encoding: chunked is the only one understood")
    expect = head.value(b"expect")
    head.expect_continue = expect is not None and expect.lower() == b"100-continue" and not head.http10
    return head


def _in_origin_form(target: bytes, headers: Headers) -> tuple[bytes, Headers]:
    target, authority = origin_form(target)
    if authority:
        # RFC 9112 3.2.2: the target's own authority is the host, whatever the Host header says.
        host = authority.rpartition(b"@")[2]
        headers = [(name, host if name.lower() == b"host" else value) for name, value in headers]
    return target, headers
