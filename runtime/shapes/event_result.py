"""What an event handler returned, as an HTTP answer: JSON, bytes, or a dict with `statusCode` as Lambda has it."""

from __future__ import annotations

import base64
import binascii
import inspect
import json
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from runtime.messages import Header

JSON_HEADERS: list[Header] = [[b"content-type", b"application/json"]]
BYTES_HEADERS: list[Header] = [[b"content-type", b"application/octet-stream"]]

#: How deep and how far a result is searched for what made it unserialisable.
SEARCH_DEPTH_MAX = 200
SEARCH_NODES_MAX = 100_000

_encoder = json.JSONEncoder(allow_nan=False, ensure_ascii=False, check_circular=False, separators=(",", ":"))
_to_ascii_json = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


def _made_once() -> Callable[[Any], str]:
    """`_encoder.encode` without making the inner encoder anew each time, where the interpreter has what that takes."""
    make, quote = getattr(json.encoder, "c_make_encoder", None), getattr(json.encoder, "c_encode_basestring", None)
    if make is None or quote is None:
        return _encoder.encode
    parts = make(None, _encoder.default, quote, None, ":", ",", False, False, False)

    def encode(value: Any) -> str:
        return "".join(parts(value, 0))

    return encode


_to_json = _made_once()


class BadResult(TypeError):
    """The handler returned what cannot be an answer; the message names the type and the place."""


class Answer(NamedTuple):
    """A whole answer."""

    status: int
    headers: list[Header]
    body: bytes


def encode_result(result: Any) -> Answer:
    """The answer that a handler's result means. Raises BadResult."""
    if isinstance(result, (bytes, bytearray, memoryview)):
        return Answer(200, BYTES_HEADERS, bytes(result))
    if isinstance(result, dict):
        status = result.get("statusCode")
        if isinstance(status, int) and not isinstance(status, bool):
            return _http_answer(status, result)
    return Answer(200, JSON_HEADERS, encode_json(result))


def encode_json(result: Any) -> bytes:
    """JSON in UTF-8; lone surrogates are written as escapes. Raises BadResult."""
    try:
        try:
            return _to_json(result).encode()
        except UnicodeEncodeError:
            return _to_ascii_json(result).encode()
    except RecursionError:
        raise BadResult("the result is nested too deeply for JSON, or refers to itself") from None
    except (TypeError, ValueError) as error:
        if inspect.iscoroutine(result):
            result.close()
        raise BadResult(f"the result cannot be JSON: {_problem(result) or error}") from None


def _problem(result: Any) -> str:
    """What in the result is not JSON, and where; empty when it was not found."""
    below: list[Iterator[tuple[str, Any]]] = [iter([("result", result)])]
    seen: set[int] = set()
    for _ in range(SEARCH_NODES_MAX):
        step = next(below[-1], None)
        if step is None:
            below.pop()
            if not below:
                break
            continue
        path, value = step
        if isinstance(value, float) and not math.isfinite(value):
            return f"{path} is {'NaN' if math.isnan(value) else 'Infinity' if value > 0 else '-Infinity'}"
        if value is None or isinstance(value, (str, int, float)):
            continue
        if not isinstance(value, (dict, list, tuple)):
            return f"{path} is of type {type(value).__name__}"
        if isinstance(value, dict):
            bad = next((key for key in value if not isinstance(key, (str, int, float, type(None)))), None)
            if bad is not None:
                return f"{path} has a key of type {type(bad).__name__}"
        if id(value) not in seen and len(below) < SEARCH_DEPTH_MAX:
            seen.add(id(value))
            below.append(_parts(path, value))
    return ""


def _parts(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    for key, part in value.items() if isinstance(value, dict) else enumerate(value):
        yield f"{path}[{key!r}]", part


def _http_answer(status: int, result: dict[str, Any]) -> Answer:
    if not 200 <= status <= 999:
        raise BadResult(f"statusCode is {status}; an answer has one from 200 to 999")
    headers: list[Header] = []
    for name, value in _mapping(result, "headers").items():
        for one in value if isinstance(value, (list, tuple)) else (value,):
            headers.append(_header("headers", name, one))
    for name, values in _mapping(result, "multiValueHeaders").items():
        if not isinstance(values, (list, tuple)):
            raise BadResult(f"multiValueHeaders[{name!r}] is of type {type(values).__name__}; it must be a list")
        headers += [_header("multiValueHeaders", name, one) for one in values]
    cookies = result.get("cookies") or ()
    if not isinstance(cookies, (list, tuple)):
        raise BadResult(f"cookies is of type {type(cookies).__name__}; it must be a list")
    headers += [_header("cookies", "set-cookie", one) for one in cookies]
    body, default_type = _http_body(result)
    if not any(name.lower() == b"content-type" for name, _ in headers):
        headers.append([b"content-type", default_type])
    return Answer(status, headers, body)


def _mapping(result: dict[str, Any], key: str) -> dict[Any, Any]:
    found = result.get(key) or {}
    if not isinstance(found, dict):
        raise BadResult(f"{key} is of type {type(found).__name__}; it must be a dict")
    return found


def _header(field: str, name: Any, value: Any) -> Header:
    if not isinstance(name, str) or not isinstance(value, (str, int, float)):
        raise BadResult(f"{field}[{name!r}] is of type {type(value).__name__}; it must be text or a number")
    text = ("true" if value else "false") if isinstance(value, bool) else str(value)
    try:
        pair = [name.encode("ascii"), text.encode("latin-1")]
    except UnicodeEncodeError:
        raise BadResult(f"{field}[{name!r}] holds characters that no HTTP header can carry") from None
    if any(byte in part for part in pair for byte in b"\r\n\0"):
        raise BadResult(f"{field}[{name!r}] holds a line break or a zero byte")
    return pair


def _http_body(result: dict[str, Any]) -> tuple[bytes, bytes]:
    """The body and the content type it has when none is given."""
    body = result.get("body")
    json_type = JSON_HEADERS[0][1]
    if body is None:
        return b"", json_type
    if isinstance(body, (bytes, bytearray, memoryview)):
        return bytes(body), BYTES_HEADERS[0][1]
    if not isinstance(body, str):
        return encode_json(body), json_type
    if result.get("isBase64Encoded"):
        try:
            return base64.b64decode(body, validate=True), BYTES_HEADERS[0][1]
        except (binascii.Error, ValueError) as error:
            raise BadResult(f"body is not base64: {error}") from None
    return body.encode("utf-8", "backslashreplace"), json_type
