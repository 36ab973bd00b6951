"""The `context` of an event handler: AWS Lambda's names, and the HTTP details beside them."""

from __future__ import annotations

import sys
import time
from urllib.parse import parse_qsl, unquote

from runtime.messages import Request
from runtime.spec import WorkerSpec

MIB = 1024 * 1024


class Context:
    """One call's context. Everything that takes work is worked out when it is read."""

    __slots__ = ("_end", "_request", "_spec")

    #: Lambda's names for things that are not here; handlers test them for None.
    client_context = None
    identity = None

    def __init__(self, spec: WorkerSpec, request: Request) -> None:
        self._spec = spec
        self._request = request
        self._end = time.monotonic() + request.timeout_ms / 1000

    # -- as in AWS Lambda --------------------------------------------------------------------------------

    @property
    def function_name(self) -> str:
        """The function's name."""
        return self._spec.function

    @property
    def function_version(self) -> str:
        """The revision's number."""
        return str(self._spec.revision)

    @property
    def memory_limit_in_mb(self) -> str:
        """The worker's memory in MiB, as text as in Lambda."""
        return str(self._spec.memory_bytes // MIB)

    @property
    def aws_request_id(self) -> str:
        """The call's id."""
        return self._request.invocation

    @property
    def invoked_function_arn(self) -> str:
        """A stable name of the revision."""
        return f"arn:samovar:function:{self._spec.namespace}:{self._spec.function}:{self._spec.revision}"

    @property
    def log_group_name(self) -> str:
        """Namespace and function."""
        return f"/samovar/{self._spec.namespace}/{self._spec.function}"

    @property
    def log_stream_name(self) -> str:
        """The worker's name."""
        return self._spec.worker

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds left of the call's total time, never negative."""
        return max(0, int((self._end - time.monotonic()) * 1000))

    def log(self, message: object) -> None:
        """Write a line to the function's log."""
        print(message, file=sys.stdout)

    # -- beyond Lambda -----------------------------------------------------------------------------------

    @property
    def invocation_id(self) -> str:
        """The call's id."""
        return self._request.invocation

    @property
    def namespace(self) -> str:
        """The function's namespace."""
        return self._spec.namespace

    @property
    def deadline(self) -> float:
        """When the call's time is over, seconds since the epoch."""
        return time.time() + self._end - time.monotonic()

    @property
    def method(self) -> str:
        """The HTTP method."""
        return self._request.method

    @property
    def path(self) -> str:
        """The path below the function, decoded; at least "/"."""
        return unquote(self._request.target.partition(b"?")[0].decode("latin-1"), errors="replace") or "/"

    @property
    def query_string(self) -> str:
        """The query as it came, without "?"."""
        return self._request.target.partition(b"?")[2].decode("latin-1")

    @property
    def query(self) -> dict[str, str]:
        """The query's parameters, decoded; values of a repeated name are joined with ","."""
        found: dict[str, str] = {}
        for name, value in parse_qsl(self.query_string, keep_blank_values=True, errors="replace"):
            found[name] = f"{found[name]},{value}" if name in found else value
        return found

    @property
    def headers(self) -> dict[str, str]:
        """The request's headers by lower-case name; values of a repeated name are joined with ", "."""
        found: dict[str, str] = {}
        for raw_name, raw_value in self._request.headers:
            name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
            found[name] = f"{found[name]}, {value}" if name in found else value
        return found

    @property
    def client(self) -> str:
        """The caller's address as the gateway saw it."""
        return self._request.peer
