"""One invocation from admission to its metering record: the state that activator and worker link share.

A call waits, runs, and ends exactly once: `_conclude` is the only place that writes its metering record. Its
answer can come before its slot is free (a timeout, a client that went away); it then stays on its link, abandoned,
until the worker has ended it or was replaced.
"""

from __future__ import annotations

import time
from collections import deque

from gateway.call_sides import Floor, Link
from gateway.errors import (
    BadRequest,
    HandlerFailed,
    NoCapacity,
    SamovarError,
    TimedOut,
    TooLarge,
    WorkerBroke,
)
from gateway.metering.record import MeteringRecord
from gateway.routes import Route
from gateway.web.answers import answer_lines, date_line, error_body, error_headers, header_lines
from gateway.web.exchange import Exchange, UnreadableAnswer, has_no_body
from gateway.worker_usage import NO_USAGE, Usage, usage_of
from runtime import messages as wire

#: Told to the caller who has gone before there was anything to tell (as nginx does).
CLIENT_CLOSED_REQUEST = 499
#: The worker is credited when so much of its answer was passed on: few frames, and it never runs dry.
CREDIT_BATCH_BYTES = wire.WINDOW_BYTES // 4

_OWN_LINES = (
    b"server-timing: queue;dur=%.3f, start;dur=%.3f, init;dur=%.3f, run;dur=%.3f\r\n"
    b"x-samovar-invocation: %b\r\n%bx-samovar-start: %b\r\n"
)

_monotonic = time.monotonic


class Call:
    """See the module."""

    __slots__ = (
        "_blocked",
        "_body_sent",
        "_bytes_in",
        "_bytes_out",
        "_concluded",
        "_credit",
        "_credit_due",
        "_due_at",
        "_exchange",
        "_floor",
        "_head_at",
        "_held_body",
        "_init_us",
        "_last_piece_at",
        "_link",
        "_owner",
        "_pending",
        "_pending_bytes",
        "_pending_last",
        "_queued_us",
        "_start_us",
        "_status",
        "_tick",
        "arrived_at",
        "arrived_us",
        "client_gone",
        "dispatched_at",
        "invocation",
        "number",
        "route",
        "start_kind",
        "token_id",
        "total_s",
    )

    def __init__(self, floor: Floor, exchange: Exchange, route: Route, invocation: str, token_id: str, owner: bool):
        self._floor = floor
        self._exchange = exchange
        self.route = route
        self.invocation = invocation
        self.token_id = token_id
        #: The caller holds a token of the function's namespace and may see tracebacks.
        self._owner = owner
        self.arrived_at = _monotonic()
        self.arrived_us = time.time_ns() // 1000
        self.total_s = route.timeouts.total_s
        self.dispatched_at = 0.0
        self.start_kind = ""
        #: The call's number on its link, set by the link.
        self.number = 0
        self.client_gone = False
        self._link: Link | None = None
        #: The tick at which the limits are looked at; -1: none.
        self._tick = -1
        self._due_at = 0.0
        self._head_at = 0.0
        self._last_piece_at = 0.0
        self._status = 0
        self._queued_us = self._start_us = self._init_us = 0
        self._bytes_in = self._bytes_out = 0
        self._concluded = False
        # request body: pieces waiting for a worker or for credit
        self._pending: deque[bytes] = deque()
        self._pending_bytes = 0
        self._pending_last = False
        self._body_sent = False
        self._held_body = False
        self._credit = wire.WINDOW_BYTES
        # answer: bytes of it that the worker has not been credited for, and whether that is because the client's
        # buffer is full
        self._credit_due = 0
        self._blocked = False

    # -- waiting -----------------------------------------------------------------------------------------

    def admit(self) -> None:
        """Take what is there of the body."""
        exchange = self._exchange
        exchange.attach(self)
        if not exchange.body_complete:
            exchange.want_body()
        if exchange.body:
            self._pending.append(exchange.body)
            self._bytes_in = self._pending_bytes = len(exchange.body)
            exchange.body = b""
        self._pending_last = exchange.body_complete
        self._hold_body_if_full()

    def arm(self) -> None:
        """Have the clock run for the earliest limit. Called once the pool has had its say: most calls have a worker
        by then, and need to be set down only once."""
        if self._concluded:
            return
        due = self._due()
        deadlines = self._floor.deadlines
        if self._tick >= 0:
            if self._due_at <= due:
                return  # they are looked at before
            deadlines.clear(self, self._tick)
        self._due_at = due
        self._tick = deadlines.set(self, due)

    def dispatched(self, link: Link, start_kind: str, start_us: int, init_us: int) -> wire.Request:
        """A worker has room: the frame that hands the call over. `start_us`, `init_us`: how much of the wait was
        spent on starting that worker and on its initialisation."""
        now = _monotonic()
        self._link = link
        self.dispatched_at = now
        self.start_kind = start_kind
        self._queued_us = int((now - self.arrived_at) * 1e6)
        if start_us or init_us:
            self._init_us = min(init_us, self._queued_us)
            self._start_us = min(start_us, self._queued_us - self._init_us)
            self._queued_us -= self._start_us + self._init_us
        if self._tick >= 0:
            self.arm()
        exchange, route = self._exchange, self.route
        body, last = self._take_first() if self._pending else (b"", self._pending_last)
        self._body_sent = last
        return wire.Request(
            self.number,
            self.invocation,
            exchange.method,
            route.mount,
            exchange.head.target[len(route.mount) :],
            exchange.headers,  # type: ignore[arg-type]  # tuples and lists are one thing on the wire
            body,
            last,
            max(1, int((self.arrived_at + self.total_s - now) * 1000)),
            "http",
            exchange.peer,
        )

    def _take_first(self) -> tuple[bytes, bool]:
        """The first piece of the body for the Request frame, and whether it is all."""
        body = self._pending.popleft()
        if len(body) > wire.CHUNK_BYTES:
            self._pending.appendleft(body[wire.CHUNK_BYTES :])
            body = body[: wire.CHUNK_BYTES]
        self._pending_bytes -= len(body)
        self._credit -= len(body)
        return body, self._pending_last and not self._pending

    def flush_body(self) -> None:
        """After the Request frame: send on what waits, as far as the credit goes."""
        link = self._link
        if link is None or self._body_sent or self._concluded:
            return
        pending = self._pending
        while pending and self._credit > 0:
            piece = pending.popleft()
            size = min(len(piece), self._credit, wire.CHUNK_BYTES)
            if size < len(piece):
                pending.appendleft(piece[size:])
                piece = piece[:size]
            self._pending_bytes -= size
            self._credit -= size
            last = self._pending_last and not pending
            self._body_sent = last
            link.send_body(self.number, piece, last)
        if self._pending_last and not pending and not self._body_sent:
            self._body_sent = True
            link.send_body(self.number, b"", True)
        if self._held_body and self._pending_bytes < wire.CHUNK_BYTES:
            self._release_body()

    def _hold_body_if_full(self) -> None:
        if not self._held_body and not self._pending_last and self._pending_bytes >= wire.CHUNK_BYTES:
            self._held_body = True
            self._exchange.hold_body(True)

    def _release_body(self) -> None:
        self._held_body = False
        self._exchange.hold_body(False)

    # -- BodySink: from the client -----------------------------------------------------------------------

    def on_body(self, data: bytes) -> None:
        """More of the request's body."""
        if self._concluded:
            return
        self._bytes_in += len(data)
        limit = self.route.max_body_bytes
        if self._bytes_in > limit:
            self.fail(TooLarge(f"body: larger than the function's max_body of {limit} bytes"))
            return
        self._pending.append(data)
        self._pending_bytes += len(data)
        self.flush_body()
        self._hold_body_if_full()

    def on_body_end(self) -> None:
        """The request's body is complete."""
        self._pending_last = True
        if self._held_body:
            # Nothing more of it can come, and a client that is not read from cannot be seen to leave.
            self._release_body()
        self.flush_body()

    def on_broken(self, why: str) -> None:
        """The rest of the request's body is unreadable."""
        self.fail(BadRequest(f"body: {why}"))

    def on_gone(self) -> None:
        """The client is gone. A waiting call leaves the queue; a running one is told, and recorded when it ends."""
        if self._concluded:
            return
        self.client_gone = True
        if self._link is None:
            self._floor.leave_queue(self)
            self._conclude(CLIENT_CLOSED_REQUEST, "caller", NO_USAGE)
        else:
            self._link.send_cancel(self.number, "client_gone")
            self._passed_on()  # a worker that waits for credit must hear of the end

    def on_drain(self) -> None:
        """The client has read on: let the worker go on."""
        if self._blocked:
            self._last_piece_at = _monotonic()
            self._passed_on()
            if self.route.timeouts.idle_s:
                self.arm()

    # -- from the worker ---------------------------------------------------------------------------------

    def on_credit(self, amount: int) -> None:
        """The worker has used more of the request's body."""
        if amount > 0:
            self._credit = min(self._credit + amount, wire.WINDOW_BYTES)
            self.flush_body()

    def on_response(self, message: wire.Response) -> None:
        """Head of the answer, and perhaps all of it."""
        if self._concluded:
            return
        try:
            status, body = message.status, message.body
            if self._head_at:
                raise UnreadableAnswer("a second head")
            if not 200 <= status <= 999:
                raise UnreadableAnswer(f"status {status} is not one of an answer")
            lines, length = answer_lines(message.headers, time.time())
            if message.last:
                if length is not None and length != len(body) and self._has_body(status):
                    raise UnreadableAnswer(f"its content-length is {length}, its body has {len(body)} bytes")
                usage = usage_of(message.stats)
                self._bytes_out = len(body)
                self._conclude(status, "none", usage)
                self._exchange.respond(status, lines + self._own_lines(usage[0]), body, length)
                return
        except UnreadableAnswer as error:
            self._fail_unreadable(error)
            return
        self._status = status
        self._head_at = self._last_piece_at = _monotonic()
        self._exchange.start(status, lines + self._own_lines(self._run_us(self._head_at)), length)
        if self.route.timeouts.idle_s:
            self.arm()
        self._pass_on(body)

    def on_body_piece(self, message: wire.Body) -> None:
        """More of the answer."""
        if self._concluded:
            return
        if not self._head_at:
            self._fail_unreadable("a body without a head")
        elif not message.last:
            self._last_piece_at = _monotonic()
            self._pass_on(message.data)
        elif misfit := self._exchange.misfit(len(message.data), True):
            self._fail_unreadable(misfit)
        else:
            self._bytes_out += len(message.data)
            self._conclude(self._status, "none", usage_of(message.stats))
            self._exchange.write(message.data)
            self._exchange.finish()

    def _pass_on(self, data: bytes) -> None:
        if not data:
            return
        self._credit_due += len(data)
        if self._credit_due > wire.WINDOW_BYTES:
            self._fail_unreadable("the worker sent more of it than it was let")
            return
        if misfit := self._exchange.misfit(len(data), False):
            self._fail_unreadable(misfit)
            return
        self._bytes_out += len(data)
        if not self._exchange.write(data):
            self._blocked = True
        elif self._credit_due >= CREDIT_BATCH_BYTES:
            self._passed_on()

    def _passed_on(self) -> None:
        """What the worker sent is out of our hands: credit it."""
        self._blocked = False
        due, self._credit_due = self._credit_due, 0
        if due and self._link is not None:
            self._link.send_credit(self.number, due)

    def _has_body(self, status: int) -> bool:
        return self._exchange.method != "HEAD" and not has_no_body(status)

    def _fail_unreadable(self, why: object) -> None:
        self.fail(WorkerBroke(f"the function's answer is unreadable: {why}"))

    def on_failed(self, message: wire.Failed) -> None:
        """The handler ended the call without a proper answer."""
        if self._concluded:
            return
        usage = usage_of(message.stats)
        if message.kind == "bad_request":
            self._fail_with(BadRequest(message.message), usage)
            return
        if message.kind == "cancelled" and self.client_gone:
            self._conclude(CLIENT_CLOSED_REQUEST, "caller", usage)
            return
        detail: dict[str, object] = {"type": message.error_type}
        if self._owner:
            detail["traceback"] = message.traceback
        self._fail_with(HandlerFailed(f"{message.error_type}: {message.message}", detail=detail), usage)

    def on_worker_lost(self, error: SamovarError) -> None:
        """The worker is gone with the call."""
        self._link = None
        if not self._concluded:
            self._fail_with(error, NO_USAGE)

    # -- the end -----------------------------------------------------------------------------------------

    def fail(self, error: SamovarError) -> None:
        """Answer with an error of ours; a running worker is told to stop."""
        if self._concluded:
            return
        link = self._link
        if link is None:
            self._floor.leave_queue(self)
        self._fail_with(error, NO_USAGE)
        if link is not None:
            link.abandon(self.number, "client_gone", error.message)

    def _fail_with(self, error: SamovarError, usage: Usage) -> None:
        exchange = self._exchange
        if self.client_gone:
            told = CLIENT_CLOSED_REQUEST if error.fault == "caller" else error.status
            self._conclude(told, error.fault, usage)
        elif exchange.started:
            # The status is out already: the only honest sign left is a cut connection.
            self._conclude(error.status, error.fault, usage)
            exchange.abort()
        else:
            body = error_body(error)
            lines = header_lines(error_headers(error)) + date_line(time.time())
            lines += self._own_lines(usage[0] or self._run_us(_monotonic()))
            self._bytes_out = len(body)
            self._conclude(error.status, error.fault, usage)
            exchange.respond(error.status, lines, body)

    def _due(self) -> float:
        """When the earliest limit is over."""
        timeouts = self.route.timeouts
        total_at = self.arrived_at + self.total_s
        if self._link is None:
            return min(total_at, self.arrived_at + timeouts.start_s)
        if not self._head_at:
            return min(total_at, self.dispatched_at + timeouts.first_byte_s)
        if timeouts.idle_s and not self._blocked:
            return min(total_at, self._last_piece_at + timeouts.idle_s)
        return total_at

    def on_deadline(self) -> None:
        """The earliest limit may be due; else wait for the next."""
        self._tick = -1
        now = _monotonic()
        if self._concluded:
            return
        if now < self._due():
            self.arm()
        elif self._link is None:
            waited = now - self.arrived_at
            self.fail(NoCapacity(f"no worker had room within {waited:.1f} s", retry_after_s=max(1.0, waited / 2)))
        elif now >= self.arrived_at + self.total_s:
            self._time_out(f"total timeout of {self.total_s:g} s")
        elif not self._head_at:
            self._time_out(f"first-byte timeout of {self.route.timeouts.first_byte_s:g} s")
        else:
            self._time_out(f"idle timeout of {self.route.timeouts.idle_s:g} s")

    def _time_out(self, which: str) -> None:
        link = self._link
        self._fail_with(TimedOut(f"the function exceeded its {which}"), NO_USAGE)
        if link is not None:
            link.abandon(self.number, "timeout", which)

    def _run_us(self, now: float) -> int:
        """How long it has run, microseconds."""
        return int((now - self.dispatched_at) * 1e6) if self.dispatched_at else 0

    def _own_lines(self, run_us: int) -> bytes:
        """Server-Timing (milliseconds) and the X-Samovar headers."""
        return _OWN_LINES % (
            self._queued_us / 1e3,
            self._start_us / 1e3,
            self._init_us / 1e3,
            run_us / 1e3,
            self.invocation.encode(),
            self.route.revision_line,
            self.start_kind.encode() or b"none",
        )

    def _conclude(self, status: int, fault: str, usage: Usage) -> None:
        """The one place where a call's record is made."""
        if self._concluded:
            return
        self._concluded = True
        if self._tick >= 0:
            self._floor.deadlines.clear(self, self._tick)
            self._tick = -1
        now = _monotonic()
        if not self.dispatched_at:
            self._queued_us = int((now - self.arrived_at) * 1e6)
        run_us = self._run_us(now)
        route = self.route
        record = MeteringRecord(
            self.invocation,
            self.arrived_us,
            route.namespace,
            route.function,
            route.number,
            self.token_id,
            route.account,
            self.start_kind,
            self._queued_us,
            self._start_us,
            self._init_us,
            run_us,
            route.slice_kind,
            -(-run_us // 1000),
            usage[1],
            usage[2],
            self._bytes_in,
            self._bytes_out,
            status,
            fault,
            self.client_gone,
            route.price_version,
        )
        if self._pending:
            self._pending.clear()
            self._pending_bytes = 0
        if self._held_body:
            self._release_body()
        self._floor.conclude(self, record)
