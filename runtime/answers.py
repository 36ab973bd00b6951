"""The ends of calls, as messages: how an exception is told, and what a call cost."""

from __future__ import annotations

import resource
from time import perf_counter_ns

from runtime.codec import FrameError
from runtime.faults import describe
from runtime.messages import WINDOW_BYTES, Failed
from runtime.shapes.event import BadEvent
from runtime.shapes.event_result import BadResult

#: The reader gives credit when it has used this much: few frames, and the sender never runs dry.
CREDIT_BATCH_BYTES = WINDOW_BYTES // 4

_getrusage = resource.getrusage
_SELF = resource.RUSAGE_SELF


class CallCancelled(Exception):
    """The caller is gone or out of time."""


class BodyTooLarge(BadEvent):
    """The request's body is larger than the handler collects."""


def stats_since(began_ns: int, cpu_began_ns: int) -> list[int]:
    """[run_us, cpu_us, peak_rss_bytes] of a call that had this process for itself since then."""
    usage = _getrusage(_SELF)  # one system call for both of the latter
    cpu_us = int((usage.ru_utime + usage.ru_stime) * 1e6) - cpu_began_ns // 1000
    return [(perf_counter_ns() - began_ns) // 1000, max(0, cpu_us), usage.ru_maxrss * 1024]


def peak_rss_bytes() -> int:
    """Most memory this process has had, memory shared with the zygote included."""
    return _getrusage(_SELF).ru_maxrss * 1024


def failure(call: int, error: BaseException, bundle_dir: str, stats: list[int], kind: str = "") -> Failed:
    """The message for a call that ended with this exception; `kind` empty: from the exception's type."""
    if isinstance(error, BadEvent):
        return Failed(call, "bad_request", type(error).__name__, str(error), "", stats)
    if isinstance(error, CallCancelled):
        return Failed(call, "cancelled", "Cancelled", str(error), "", stats)
    if isinstance(error, (BadResult, FrameError)):  # the latter: a head too large for a frame
        kind = kind or "bad_result"
    fault = describe(error, bundle_dir)
    return Failed(call, kind or "raised", *fault, stats)
