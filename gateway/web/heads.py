"""What a request's head must be like before anything is done with it: pure checks, no connection.

The parser refuses what no reading of RFC 9112 allows. Refused here is what some other reader of the same bytes (a
proxy in front of us) could understand differently, and what is larger than we want to hold.
"""

from __future__ import annotations

from typing import Literal

from gateway.web.exchange import Exchange

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


def check_head(exchange: Exchange, version: str, bytes_max: int, small: bool) -> None:
    """Read out of a whole head what its connection must know; fields of `exchange` are set. `small`: it is known to
    keep within `bytes_max`. Raises BadHead."""
    if version != "1.1":
        if version != "1.0":
            raise BadHead(505, f"HTTP/{version} is not spoken here; HTTP/1.1 is")
        exchange.http10 = True
    if exchange.method == "CONNECT":
        raise BadHead(501, "CONNECT is not offered")
    headers = exchange.headers
    if not small:
        size = len(exchange.target) + sum(len(name) + len(value) + 4 for name, value in headers)
        if size > bytes_max:
            raise BadHead(431, f"request line and headers have {size} bytes; the limit is {bytes_max}")
    exchange.names = names = [pair[0].lower() for pair in headers]
    hosts = names.count(b"host")
    if hosts != 1 and (hosts or not exchange.http10):
        raise BadHead(400, "a request has exactly one Host header")
    if b"content-length" in names:
        exchange.content_length = int(headers[names.index(b"content-length")][1])
    elif b"transfer-encoding" in names:
        _check_transfer_encoding(exchange, headers[names.index(b"transfer-encoding")][1])
    if b"expect" in names and not exchange.http10:
        exchange.expect_continue = headers[names.index(b"expect")][1].lower() == b"100-continue"
    if not exchange.target.startswith(b"/"):
        _to_origin_form(exchange)


def _check_transfer_encoding(exchange: Exchange, value: bytes) -> None:
    if exchange.http10:
        raise BadHead(400, "Transfer-Encoding has no meaning in HTTP/1.0")
    if value.strip().lower() != b"chunked":
        raise BadHead(501, "Transfer-Encoding: chunked is the only one understood")


def _to_origin_form(exchange: Exchange) -> None:
    exchange.target, authority = origin_form(exchange.target)
    if authority:
        # RFC 9112 3.2.2: the target's own authority is the host, whatever the Host header says.
        host = authority.rpartition(b"@")[2]
        exchange.headers = [(n, host if n.lower() == b"host" else v) for n, v in exchange.headers]
