"""What ends a command early: one exception a kind, each with its exit code, a message and what to do next.

Exit codes are part of the command line's interface: 0 it worked, 1 the function or the gateway said no, 2 wrong
usage, 3 the gateway cannot be reached, 4 not authorised.
"""

from __future__ import annotations

from typing import Any


class Problem(Exception):
    """Base: the gateway (or this command) said no. `hint` is one line that says what to do next."""

    exit_code = 1
    code = "refused"

    def __init__(self, message: str, *, hint: str = "", code: str = "", detail: Any = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        #: The gateway's own code where it gave one.
        self.code = code or type(self).code
        #: JSON-able extras from the gateway (a traceback, say).
        self.detail = detail

    def as_dict(self) -> dict[str, Any]:
        """The object that `--json` writes to stderr."""
        error: dict[str, Any] = {"code": self.code, "message": self.message, "exit_code": self.exit_code}
        if self.hint:
            error["hint"] = self.hint
        if self.detail is not None:
            error["detail"] = self.detail
        return {"error": error}


class WrongUsage(Problem):
    """The command was given something it cannot use."""

    exit_code = 2
    code = "usage"


class Unreachable(Problem):
    """There is no gateway, or it does not answer."""

    exit_code = 3
    code = "unreachable"


class NotAuthorised(Problem):
    """No token, an unknown one, or one that may not do this."""

    exit_code = 4
    code = "unauthorized"
