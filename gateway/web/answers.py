"""What the gateway says over HTTP: errors in their one shape, and the headers added to a function's answer."""

from __future__ import annotations

import math
from email.utils import formatdate

import orjson

from gateway.errors import SamovarError
from gateway.web.exchange import HOP_BY_HOP, Headers, UnreadableAnswer, status_line

JSON_TYPE = (b"content-type", b"application/json")

#: Headers with this start are the platform's to say; a handler's own are dropped.
_PLATFORM_PREFIX = b"x-samovar-"
_LENGTH_DIGITS_MAX = 18
#: Bytes of a header's name (RFC 9110 5.6.2).
_TOKEN_BYTES = b"!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


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


def plain_error(status: int, message: str, now: float) -> bytes:
    """A whole answer for a request that could not be read, after which the connection closes. `now`: UTC seconds."""
    fields = {"code": "bad_request", "message": message, "fault": "caller"}
    body = orjson.dumps({"error": fields})
    return b"%bdate: %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b" % (
        status_line(status),
        date_header(now)[1],
        len(body),
        body,
    )


_date: tuple[int, tuple[bytes, bytes]] = (0, (b"date", b""))


def date_header(now: float) -> tuple[bytes, bytes]:
    """The Date header of this second (RFC 9110 6.6.1). `now`: UTC seconds."""
    global _date
    second, header = _date
    if second != int(now):
        header = (b"date", formatdate(now, usegmt=True).encode())
        _date = (int(now), header)
    return header


def answer_headers(head: list[list[bytes]], added: Headers, now: float) -> tuple[Headers, int | None]:
    """A function's headers as they go out (repeats and order kept, hop-by-hop ones dropped, `added` after them) and
    the length that it announced, which is not among them. `now`: UTC seconds, for the Date of an answer without.

    Raises UnreadableAnswer for what could split an answer or is no header at all.
    """
    headers: Headers = []
    length: int | None = None
    dated = False
    named = b""
    for pair in head:
        try:
            name, value = pair
            lower = name.lower()
            if name.translate(None, _TOKEN_BYTES) or not name:
                raise UnreadableAnswer(f"header name {name!r} is not a token")
            if b"\n" in value or b"\r" in value or b"\0" in value:
                raise UnreadableAnswer(f"header {name!r} cannot be sent: its value holds a line end or NUL")
            if lower in HOP_BY_HOP:
                if lower == b"connection":
                    named += b"," + value
                continue
            if lower == b"content-length":
                length = _length(value, length)
                continue
            if lower.startswith(_PLATFORM_PREFIX):
                continue
            if lower == b"date":
                dated = True
        except (TypeError, ValueError, AttributeError) as error:
            if isinstance(error, UnreadableAnswer):
                raise
            raise UnreadableAnswer(f"header {pair!r:.200} is not a pair of bytes") from error
        headers.append((name, value))
    if named:
        headers = without_named(headers, named)
    if not dated:
        headers.append(date_header(now))
    headers += added
    return headers, length


def without_named(headers: Headers, connection: bytes) -> Headers:
    """Drop the headers that a Connection header names (RFC 9110 7.6.1)."""
    named = {part.strip().lower() for part in connection.split(b",")} - {b"close", b"keep-alive", b""}
    return [pair for pair in headers if pair[0].lower() not in named] if named else headers


def _length(value: bytes, before: int | None) -> int:
    if not value.isdigit() or len(value) > _LENGTH_DIGITS_MAX:
        raise UnreadableAnswer(f"content-length {value!r:.200} is not a number")
    length = int(value)
    if before not in {None, length}:
        raise UnreadableAnswer(f"content-length is both {before} and {length}")
    return length
