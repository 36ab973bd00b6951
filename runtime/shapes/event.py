"""The event shape: `def main(event, context)`, JSON in and out, as AWS Lambda has it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from runtime.messages import Header, Request
from runtime.shapes.detect import is_async, takes_context
from runtime.shapes.event_context import Context
from runtime.shapes.event_result import Answer, encode_result
from runtime.spec import WorkerSpec


class BadEvent(ValueError):
    """The body is not what its content type says: the caller's fault. The message names the place."""


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_decoder = json.JSONDecoder(parse_constant=_refuse_constant)
_decode_json = _decoder.decode
_scan_json: Callable[[str, int], tuple[Any, int]] = vars(_decoder)["scan_once"]
_JSON_TYPES = frozenset({b"", b"application/json"})


def _content_type(headers: list[Header]) -> bytes:
    for name, value in headers:
        if len(name) == 12 and name.lower() == b"content-type":
            return value if value == b"application/json" else value.partition(b";")[0].strip().lower()
    return b""


def decode_event(headers: list[Header], body: bytes) -> Any:
    """The event of a request. Raises BadEvent.

    No body: None. Content type `application/json`, `*/*+json` or none given: the decoded JSON. Any other: the bytes.
    """
    if not body:
        return None
    content_type = _content_type(headers)
    if content_type not in _JSON_TYPES and not content_type.endswith(b"+json"):
        return body
    try:
        # The common case in one scan: JSON without space around it.
        text = body.decode()
        event, end = _scan_json(text, 0)
        if end == len(text):
            return event
    except (StopIteration, ValueError, RecursionError):
        pass  # said properly below
    return _decode_slowly(body)


def _decode_slowly(body: bytes) -> Any:
    try:
        return _decode_json(body.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise BadEvent(f"the body is not JSON: no UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        place = f"line {error.lineno} column {error.colno} (character {error.pos})"
        raise BadEvent(f"the body is not JSON: {error.msg} at {place}") from None
    except RecursionError:
        raise BadEvent("the body's JSON is nested too deeply") from None
    except ValueError as error:
        raise BadEvent(f"the body is not JSON that can be read: {error}") from None


class EventHandler:
    """A handler of this shape, ready to be called."""

    def __init__(self, handler: Callable[..., Any], spec: WorkerSpec) -> None:
        self._handler = handler
        self._spec = spec
        self._with_context = takes_context(handler)
        self.is_async = is_async(handler)

    def run(self, request: Request, body: bytes) -> Answer:
        """One call. Raises BadEvent, BadResult, and whatever the handler raises."""
        event = decode_event(request.headers, body)
        arguments = (event, Context(self._spec, request)) if self._with_context else (event,)
        return encode_result(self._handler(*arguments))

    async def run_async(self, request: Request, body: bytes) -> Answer:
        """One call of an `async def` handler; raises as `run`."""
        event = decode_event(request.headers, body)
        arguments = (event, Context(self._spec, request)) if self._with_context else (event,)
        return encode_result(await self._handler(*arguments))
