"""What the gateway says over HTTP: errors in their one shape, and the headers added to a function's answer."""

from __future__ import annotations

import math

import orjson

from gateway.errors import SamovarError
from gateway.web.exchange import HOP_BY_HOP, Headers, status_line

JSON_TYPE = (b"content-type", b"application/json")


class UnreadableAnswer(ValueError):
    """A worker's head that cannot be put on the wire; the message says why."""


def error_body(error: SamovarError) -> bytes:
    """`{"error": {"code", "message", "fault", "detail"?}}`."""
    fields: dict[str, object] = {"code": error.code, "message": error.message, "fault": error.fault}
    if error.detail is not None:
        fields["detail"] = error.detail
    # A message may quote a handler's lone surrogates, which JSON cannot carry.
    try:
        return orjson.dumps({"error": fields})
    except TypeError:
        clean = {key: str(value).encode("utf-8", "replace").decode() for key, value in fields.items()}
        return orjson.dumps({"error": clean})


def error_headers(error: SamovarError) -> Headers:
    """Content type, whose fault it is and, where it helps, when to come back."""
    headers: Headers = [JSON_TYPE]
    if error.fault in {"platform", "function"}:
        headers.append((b"x-samovar-fault", error.fault.encode()))
    if error.retry_after_s is not None:
        headers.append((b"retry-after", b"%d" % max(1, math.ceil(error.retry_after_s))))
    if error.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    return headers


def plain_error(status: int, message: bytes) -> bytes:
    """A whole answer for a request that could not be read, after which the connection closes."""
    body = orjson.dumps({"error": {"code": "bad_request", "message": message.decode("utf-8", "replace")}})
    return b"%bcontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b" % (
        status_line(status),
        len(body),
        body,
    )


def answer_headers(head: list[list[bytes]], added: Headers) -> Headers:
    """A function's headers as they go out: hop-by-hop ones dropped, ours added, repeats and order kept.

    Raises UnreadableAnswer for what could split an answer or is no header at all.
    """
    headers: Headers = []
    for pair in head:
        try:
            name, value = pair
            if name.lower() in HOP_BY_HOP:
                continue
            if b"\n" in value or b"\r" in value or b"\0" in value or not name or b":" in name:
                raise UnreadableAnswer(f"header {name!r} cannot be sent")
            if name.translate(None, _TOKEN_BYTES):
                raise UnreadableAnswer(f"header name {name!r} is not a token")
        except (TypeError, ValueError, AttributeError) as error:
            if isinstance(error, UnreadableAnswer):
                raise
            raise UnreadableAnswer(f"header {pair!r} is not a pair of bytes") from error
        headers.append((name, value))
    headers += added
    return headers


#: Bytes of a header's name (RFC 9110 5.6.2).
_TOKEN_BYTES = b"!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
