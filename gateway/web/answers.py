"""What the gateway says over HTTP: errors in their one shape, and the headers added to a function's answer."""

from __future__ import annotations

import math
from email.utils import formatdate

import orjson

from gateway.errors import SamovarError
from gateway.web.exchange import HOP_BY_HOP, UnreadableAnswer, status_line
from gateway.web.heads import Headers

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
    return b"%b%bcontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b" % (
        status_line(status),
        date_line(now),
        len(body),
        body,
    )


_date: tuple[int, bytes] = (0, b"")


def date_line(now: float) -> bytes:
    """The Date header of this second (RFC 9110 6.6.1), as a line. `now`: UTC seconds."""
    global _date
    second, line = _date
    if second != int(now):
        line = b"date: %b\r\n" % formatdate(now, usegmt=True).encode()
        _date = (int(now), line)
    return line


def header_lines(headers: Headers) -> bytes:
    """Headers of ours as lines."""
    return b"".join([b"%b: %b\r\n" % pair for pair in headers])


def answer_lines(head: list[list[bytes]], now: float) -> tuple[bytes, int | None]:
    """A function's headers as they go out (repeats, order and case kept, hop-by-hop ones dropped), as lines, and the
    length that it announced, which is not among them. `now`: UTC seconds, for the Date of an answer without.

    Raises UnreadableAnswer for what could split an answer or is no header at all.
    """
    lines: list[bytes] = []
    length: int | None = None
    dated = False
    named = b""
    for pair in head:
        try:
            name, value = pair
            kind = _kinds.get(name)
            if kind is None:
                kind = _kind(name)
            if b"\n" in value or b"\r" in value or b"\0" in value:
                raise UnreadableAnswer(f"header {name!r} cannot be sent: its value holds a line end or NUL")
            if kind:
                if kind == _DROPPED:
                    continue
                if kind == _CONNECTION:
                    named += b"," + value
                    continue
                if kind == _LENGTH:
                    length = _length(value, length)
                    continue
                dated = True
            lines.append(b"%b: %b\r\n" % (name, value))
        except (TypeError, ValueError, AttributeError) as error:
            if isinstance(error, UnreadableAnswer):
                raise
            raise UnreadableAnswer(f"header {pair!r:.200} is not a pair of bytes") from error
    if named:
        unwanted = names_of(named)
        lines = [line for line in lines if line[: line.index(b":")].lower() not in unwanted]
    if not dated:
        lines.append(date_line(now))
    return b"".join(lines), length


#: What is done with a header of a function's answer, by its name as it came. Cleared when full.
_kinds: dict[bytes, int] = {}
_KINDS_MAX = 1024
_SENT, _DROPPED, _CONNECTION, _LENGTH, _DATE = range(5)
#: A name longer than this is not worth remembering.
_REMEMBERED_BYTES_MAX = 64


def _kind(name: bytes) -> int:
    lower = name.lower()
    if not name or name.translate(None, _TOKEN_BYTES):
        raise UnreadableAnswer(f"header name {name!r:.200} is not a token")
    if lower == b"connection":
        kind = _CONNECTION
    elif lower in HOP_BY_HOP or lower.startswith(_PLATFORM_PREFIX):
        kind = _DROPPED
    else:
        kind = {b"content-length": _LENGTH, b"date": _DATE}.get(lower, _SENT)
    if len(_kinds) >= _KINDS_MAX:
        _kinds.clear()
    if len(name) <= _REMEMBERED_BYTES_MAX:
        _kinds[name] = kind
    return kind


def names_of(connection: bytes) -> set[bytes]:
    """The headers that a Connection header names, lower case (RFC 9110 7.6.1)."""
    return {part.strip().lower() for part in connection.split(b",")} - {b"close", b"keep-alive", b""}


def _length(value: bytes, before: int | None) -> int:
    if not value.isdigit() or len(value) > _LENGTH_DIGITS_MAX:
        raise UnreadableAnswer(f"content-length {value!r:.200} is not a number")
    length = int(value)
    if before not in {None, length}:
        raise UnreadableAnswer(f"content-length is both {before} and {length}")
    return length
