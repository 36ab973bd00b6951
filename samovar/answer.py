"""A function's answer, read from its headers: how the call was served, how long each part took, whose fault it is."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from samovar.client import error_of
from samovar.tables import duration

#: The parts of `Server-Timing`, in the order a call meets them.
_PARTS = ("queue", "start", "init", "run")


@dataclass(frozen=True)
class Served:
    """How the gateway says a call was served; empty where it does not say."""

    start_kind: str
    invocation: str
    revision: str
    #: caller | function | platform.
    fault: str
    #: Milliseconds by part.
    timing_ms: dict[str, float]

    def summary(self) -> str:
        """One line for a person."""
        times = [f"{part} {duration(self.timing_ms[part] / 1000)}" for part in _PARTS if self.timing_ms.get(part)]
        parts = [self.start_kind, ", ".join(times), self.revision, self.invocation]
        return " · ".join(part for part in parts if part)


def served(headers: Mapping[str, str]) -> Served:
    """Read it from the answer's headers (names in lower case)."""
    return Served(
        start_kind=headers.get("x-samovar-start", ""),
        invocation=headers.get("x-samovar-invocation", ""),
        revision=headers.get("x-samovar-revision", ""),
        fault=headers.get("x-samovar-fault", ""),
        timing_ms=_timing(headers.get("server-timing", "")),
    )


def is_refused_token(status: int, how: Served, content: bytes) -> bool:
    """Whether the gateway itself (not the function) said 401 or 403."""
    return status in {401, 403} and not how.revision and error_of(content).get("code") in {"unauthorized", "forbidden"}


def complaint(name: str, status: int, how: Served, content: bytes) -> tuple[str, str]:
    """What an answer of 400 and above means to the caller: a message and, maybe empty, what to do next."""
    error = error_of(content) if how.fault or not how.revision else {}
    whose = {"function": "the function's fault", "platform": "the platform's fault, free of charge"}.get(how.fault, "")
    message = f"{name} answered {status}" + (f" ({whose})" if whose else "")
    if error.get("message"):
        message += f": {error['message']}"
    hint = ""
    if how.fault == "function":
        hint = f"see `samovar logs {name}`"
    elif how.fault == "platform":
        hint = f"try again; `samovar explain {name}` says what the pool did"
    elif status == 404 and error:
        hint = "see `samovar list` for what there is"
    return message, hint


def traceback_of(content: bytes) -> str:
    """The handler's traceback, where the gateway gave it to the function's owner."""
    detail = error_of(content).get("detail")
    return str(detail.get("traceback") or "").rstrip() if isinstance(detail, dict) else ""


def body_fields(content: bytes, content_type: str) -> dict[str, Any]:
    """The body for `--json`: `body` (JSON or text), else `body_base64`."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "application/json" or kind.endswith("+json"):
        try:
            return {"body": json.loads(content)}
        except (ValueError, RecursionError):
            pass
    try:
        return {"body": content.decode("utf-8")}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(content).decode()}


def _timing(header: str) -> dict[str, float]:
    timing = {}
    for metric in header.split(","):
        name, _, rest = metric.strip().partition(";")
        for parameter in rest.split(";"):
            key, _, value = parameter.strip().partition("=")
            if key == "dur":
                try:
                    timing[name] = float(value)
                except ValueError:
                    continue
    return timing
