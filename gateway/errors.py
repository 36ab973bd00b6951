"""The errors that reach a caller: one base class that says whose fault it is.

Status, retry and billing follow from these fields (docs/architecture.md, status matrix). Foreign exceptions are
turned into these once, at the edge that met them; nothing else decides a status.
"""

from __future__ import annotations

from typing import Literal

Fault = Literal["none", "caller", "function", "platform"]


class SamovarError(Exception):
    """Base of every error with an answer. Subclasses set the class fields; the message is for the caller."""

    code: str = "internal"
    fault: Fault = "platform"
    status: int = 500

    def __init__(self, message: str, *, retry_after_s: float | None = None, detail: object = None) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after_s = retry_after_s
        #: JSON-able extras for the caller (a traceback for the owner, a list of fields, ...).
        self.detail = detail


class BadRequest(SamovarError):
    """Malformed request, upload or manifest; the message names the field and the rule."""

    code, fault, status = "bad_request", "caller", 400


class Unauthorized(SamovarError):
    """No token, or not one we know."""

    code, fault, status = "unauthorized", "caller", 401


class Forbidden(SamovarError):
    """A good token that may not do this."""

    code, fault, status = "forbidden", "caller", 403


class NotFound(SamovarError):
    """No such namespace, function, revision or invocation."""

    code, fault, status = "not_found", "caller", 404


class Conflict(SamovarError):
    """What was asked does not fit the present state."""

    code, fault, status = "conflict", "caller", 409


class TooLarge(SamovarError):
    """A body over the function's limit."""

    code, fault, status = "too_large", "caller", 413


class TooMany(SamovarError):
    """Rate limit, quota or budget."""

    code, fault, status = "too_many", "caller", 429


class HandlerFailed(SamovarError):
    """The handler raised, or returned what cannot be an answer."""

    code, fault, status = "handler_failed", "function", 500


class WorkerBroke(SamovarError):
    """The worker died, could not start or answered unreadably; the message names the exit code or signal."""

    code, fault, status = "worker_broke", "function", 502


class WorkerUnreachable(SamovarError):
    """The worker was lost through no fault of its function (node, agent, gateway)."""

    code, fault, status = "worker_unreachable", "platform", 502


class NoCapacity(SamovarError):
    """Queue full, or no worker before the deadline."""

    code, fault, status = "no_capacity", "platform", 503


class Unavailable(SamovarError):
    """A service that we need (PostgreSQL, say) is away."""

    code, fault, status = "unavailable", "platform", 503


class TimedOut(SamovarError):
    """Total, first-byte or idle time is over; the message says which. Billed as the function's."""

    code, fault, status = "timed_out", "function", 504
