"""Carries invocations to workers: admission, the waiting, and the record at the end.

The hot path is one straight walk without tasks or awaits: `begin` (front) -> pool -> worker link, and back through
`Call.on_response`. What is decided here: who may call what, and with which bounds. Which worker takes a call is the
pool's decision.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from gateway.call import Call
from gateway.deadlines import Deadlines
from gateway.errors import (
    Forbidden,
    NoCapacity,
    NotFound,
    SamovarError,
    TooLarge,
    Unauthorized,
    Unavailable,
    WorkerBroke,
)
from gateway.metering.record import MeteringRecord
from gateway.routes import Route
from gateway.screening import Screened, screen
from gateway.web.answers import date_line, error_body, error_headers, header_lines
from gateway.web.exchange import Exchange
from warmpool.commands import Reject


class Principal(Protocol):
    """Who calls."""

    @property
    def token_id(self) -> str:
        """For the record."""

    @property
    def namespace(self) -> str | None:
        """None: every namespace."""


class Authenticator(Protocol):
    """Turns an Authorization header into a principal."""

    def authenticate(self, header: bytes | str | None, now: float) -> Principal:
        """Raises Unauthorized."""


class Ledger(Protocol):
    """Where records go before the answer ends."""

    def append(self, record: MeteringRecord) -> None:
        """One write. Raises OSError when the journal cannot take it."""


class Pool(Protocol):
    """The controller, as the activator sees it."""

    def arrive(self, call: Call) -> None:
        """A call wants a worker; comes back through Call or `reject`."""

    def leave(self, call: Call) -> None:
        """A waiting call does not want one any more."""


@dataclass(frozen=True)
class ActivatorParams:
    """Bounds of the activator."""

    #: Calls admitted and not yet answered.
    calls_max: int = 100_000


class Activator:
    """See the module."""

    def __init__(
        self,
        lookup: Callable[[str, str], Route | None],
        tokens: Authenticator,
        pool: Pool,
        ledger: Ledger,
        new_invocation: Callable[[], str],
        observe: Callable[[MeteringRecord], None],
        params: ActivatorParams,
    ) -> None:
        self._lookup = lookup
        self._tokens = tokens
        self._pool = pool
        self._ledger = ledger
        self._new_invocation = new_invocation
        self._observe = observe
        self._params = params
        self.deadlines = Deadlines()
        self._calls: dict[str, Call] = {}
        self._idle = asyncio.Event()
        self._idle.set()
        self.draining = False
        #: Calls refused or cut because the journal could not be written; a metric.
        self.unmetered = 0

    # -- admission ---------------------------------------------------------------------------------------

    def begin(self, exchange: Exchange) -> None:
        """A request for a function: admit it, or answer why not."""
        try:
            self._admit(exchange)
        except SamovarError as error:
            lines = header_lines(error_headers(error)) + date_line(time.time())
            exchange.respond(error.status, lines, error_body(error))

    def _admit(self, exchange: Exchange) -> None:
        head = exchange.head
        screened = head.memo
        if not isinstance(screened, Screened):
            head.memo = screened = screen(head, exchange.peer)
        namespace, function = screened.namespace, screened.function
        route = self._lookup(namespace, function)
        principal = self._principal(screened.authorization, namespace, route)
        if route is None:
            raise NotFound(f"no function {namespace}/{function}")
        if self.draining:
            raise Unavailable("the gateway is shutting down", retry_after_s=2.0)
        length = head.content_length
        if length is not None and length > route.max_body_bytes:
            raise TooLarge(f"body: {length} bytes; the function's max_body is {route.max_body_bytes}")
        if len(exchange.body) > route.max_body_bytes:
            raise TooLarge(f"body: larger than the function's max_body of {route.max_body_bytes} bytes")
        if len(self._calls) >= self._params.calls_max:
            raise NoCapacity(f"{self._params.calls_max} calls are under way", retry_after_s=1.0)
        exchange.headers = screened.headers
        token_id = principal.token_id if principal is not None else ""
        call = Call(self, exchange, route, self._new_invocation(), token_id, principal is not None)
        self._calls[call.invocation] = call
        call.admit()
        self._pool.arrive(call)
        call.arm()

    def _principal(self, authorization: bytes | None, namespace: str, route: Route | None) -> Principal | None:
        """Who calls; None for whoever may because the function is public. Raises Unauthorized, Forbidden."""
        public = route is not None and route.public
        if public and authorization is None:
            return None
        try:
            principal = self._tokens.authenticate(authorization, time.time())
        except Unauthorized:
            if public:
                return None
            raise
        if principal.namespace is None or principal.namespace == namespace:
            return principal
        if public:
            return None
        raise Forbidden(f"this token is for namespace {principal.namespace!r}, not {namespace!r}")

    # -- the pool's answers ------------------------------------------------------------------------------

    def call(self, invocation: str) -> Call | None:
        """A call that has not been answered yet."""
        return self._calls.get(invocation)

    def reject(self, command: Reject, detail: SamovarError | None) -> None:
        """The pool will not run this call; `detail` is the start's own error where there is one."""
        call = self._calls.get(command.invocation)
        if call is None:
            return
        if detail is not None:
            call.fail(detail)
        elif command.code == "start_failed":
            call.fail(WorkerBroke(f"the function could not start: {command.reason}"))
        elif command.code in {"unknown_revision", "revision_removed"}:
            call.fail(NotFound(f"the function is gone: {command.reason}"))
        else:
            call.fail(NoCapacity(command.reason, retry_after_s=command.retry_after_s or 1.0))

    # -- Floor: what calls say ---------------------------------------------------------------------------

    def leave_queue(self, call: Call) -> None:
        """The call does not wait any more."""
        self._pool.leave(call)

    def conclude(self, call: Call, record: MeteringRecord) -> None:
        """Keep the record; the call is answered right after."""
        self._calls.pop(call.invocation, None)
        try:
            self._ledger.append(record)
        except OSError:
            self.unmetered += 1
        self._observe(record)
        if not self._calls:
            self._idle.set()

    async def drained(self, within_s: float) -> bool:
        """No new calls; True once those under way are answered, False when `within_s` was not enough."""
        self.draining = True
        if not self._calls:
            return True
        self._idle.clear()
        try:
            await asyncio.wait_for(self._idle.wait(), within_s)
        except TimeoutError:
            return False
        return True

    def cut_all(self, error: SamovarError) -> None:
        """At the end of a shutdown: whoever still waits is told."""
        for call in list(self._calls.values()):
            call.fail(error)

    def running(self) -> int:
        """Calls admitted and not answered."""
        return len(self._calls)
