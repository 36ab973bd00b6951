"""A researcher's exception as it is told to the caller: its type, message and own frames, in bounded text."""

from __future__ import annotations

import os
import traceback
from typing import NamedTuple

#: Longest message and traceback told; the middle of a longer one is left out.
MESSAGE_CHARS_MAX = 4 * 1024
TRACEBACK_CHARS_MAX = 16 * 1024

_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep  # noqa: PTH100, PTH120 - no pathlib in the worker's start


class Fault(NamedTuple):
    """What went wrong, in text that any UTF-8 encoder takes."""

    error_type: str
    message: str
    traceback: str


def printable(text: str) -> str:
    """The text without lone surrogates."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def shortened(text: str, limit: int) -> str:
    """At most about `limit` characters: the beginning and the end."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n... [{len(text) - 2 * half} characters left out]\n{text[-half:]}"


def message_of(error: BaseException) -> str:
    """The exception's message; never raises."""
    if isinstance(error, SystemExit):
        status = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
        said = f" ({error.code})" if isinstance(error.code, str) else ""
        return printable(shortened(f"the handler asked to exit with status {status}{said}", MESSAGE_CHARS_MAX))
    try:
        text = str(error)
    except BaseException as second:
        text = f"<its message cannot be read: {type(second).__name__}>"
    return printable(shortened(text, MESSAGE_CHARS_MAX))


def _own_frames(report: traceback.TracebackException, bundle_dir: str) -> None:
    """Drop frames of the runtime and of the import system; name the bundle's files from the bundle on."""
    inside = bundle_dir.rstrip(os.sep) + os.sep
    seen: set[int] = set()
    waiting: list[traceback.TracebackException | None] = [report]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        one.stack[:] = [
            frame
            for frame in one.stack
            if not frame.filename.startswith((_OURS, "<frozen importlib"))
            and not frame.filename.endswith("/importlib/__init__.py")
        ]
        for frame in one.stack:
            frame.filename = frame.filename.removeprefix(inside)
        filename = getattr(one, "filename", None)
        if isinstance(filename, str):
            one.filename = filename.removeprefix(inside)
        waiting += [one.__cause__, one.__context__, *(getattr(one, "exceptions", None) or ())]


def traceback_of(error: BaseException, bundle_dir: str) -> str:
    """The traceback as Python prints it, the researcher's own frames only; never raises."""
    try:
        report = traceback.TracebackException.from_exception(error, compact=True)
        _own_frames(report, bundle_dir)
        text = "".join(report.format())
    except BaseException as second:
        text = f"{type(error).__name__} <its traceback cannot be read: {type(second).__name__}>"
    return printable(shortened(text, TRACEBACK_CHARS_MAX))


def describe(error: BaseException, bundle_dir: str) -> Fault:
    """Everything told of an exception; never raises."""
    return Fault(printable(type(error).__name__), message_of(error), traceback_of(error, bundle_dir))
