"""One call: both bodies within their windows, one answer, one record, whatever worker and client do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.call import CREDIT_BATCH_BYTES, Call
from gateway.catalog import Timeouts
from gateway.deadlines import Deadlines
from gateway.errors import Unavailable, WorkerBroke, WorkerUnreachable
from gateway.metering.record import MeteringRecord
from gateway.routes import Route
from gateway.web.exchange import Exchange
from gateway.web.heads import Head
from runtime.messages import CHUNK_BYTES, WINDOW_BYTES, Body, Failed, Response

PATIENCE_S = 10.0


class Connection:
    """The client's side."""

    def __init__(self) -> None:
        self.sent = b""
        self.finished = self.aborted = self.held = False
        self.writable = True

    def send(self, data: bytes) -> bool:
        assert not self.finished
        self.sent += data
        return self.writable

    def exchange_done(self, exchange: Exchange) -> None:
        self.finished = True

    def abort(self) -> None:
        self.aborted = True

    def hold_reading(self, held: bool) -> None:
        self.held = held


class Link:
    """The worker's side."""

    def __init__(self) -> None:
        self.bodies: list[tuple[bytes, bool]] = []
        self.credited = 0
        self.cancelled: list[str] = []
        self.abandoned: list[tuple[str, str]] = []

    def send_body(self, call: int, data: bytes, last: bool) -> None:
        assert not any(last for _, last in self.bodies), "nothing after the last piece"
        self.bodies.append((data, last))

    def send_credit(self, call: int, amount: int) -> None:
        self.credited += amount

    def send_cancel(self, call: int, reason: str) -> None:
        self.cancelled.append(reason)

    def abandon(self, call: int, reason: str, why: str) -> None:
        self.abandoned.append((reason, why))


class House:
    """A call and all that is around it."""

    def __init__(
        self, *, method: str = "POST", body: bytes = b"", complete: bool = True, owner: bool = True, **more: Any
    ):
        self.records: list[MeteringRecord] = []
        self.answered_first: list[bool] = []
        self.left = 0
        self.concluded = asyncio.Event()
        self.client = Connection()
        self.exchange = Exchange(self.client, "192.0.2.7", Head(method, b"/fn/lab/f/deep?x=1", [(b"Host", b"lab")]))
        self.exchange.expect_continue = more.pop("expect_continue", False)
        self.exchange.feed(body)
        if complete:
            self.exchange.feed_end()
        limits = Timeouts(**more.pop("timeouts", {}))
        route = Route(
            namespace="lab",
            function="f",
            number=3,
            revision="lab/f@3",
            mount=b"/fn/lab/f",
            public=False,
            timeouts=limits,
            max_body_bytes=more.pop("max_body_bytes", 100 * WINDOW_BYTES),
            revision_line=b"x-samovar-revision: lab/f@3\r\n",
            account="acc",
            slice_kind="cpu",
            price_version=1,
        )
        assert not more
        self.link = Link()
        self.deadlines = Deadlines()
        self.call = Call(self, self.exchange, route, "call-1", "token-1", owner)
        self.call.admit()

    def leave_queue(self, call: Call) -> None:
        self.left += 1

    def conclude(self, call: Call, record: MeteringRecord) -> None:
        self.answered_first.append(self.client.finished)
        self.records.append(record)
        self.concluded.set()

    def dispatch(self) -> Any:
        request = self.call.dispatched(self.link, "hot", 0, 0)
        if not request.last:
            self.call.flush_body()
        self.call.arm()
        return request

    async def end(self) -> MeteringRecord:
        await asyncio.wait_for(self.concluded.wait(), PATIENCE_S)
        return self.record

    @property
    def record(self) -> MeteringRecord:
        (record,) = self.records
        assert self.answered_first == [False], "the record is kept before the answer ends"
        return record

    @property
    def status(self) -> int:
        return int(self.client.sent.split(b" ", 2)[1])

    @property
    def headers(self) -> dict[bytes, bytes]:
        lines = self.client.sent.split(b"\r\n\r\n")[0].split(b"\r\n")[1:]
        return {name.lower(): value for name, _, value in (line.partition(b": ") for line in lines)}

    @property
    def body(self) -> bytes:
        return self.client.sent.partition(b"\r\n\r\n")[2]

    @property
    def error(self) -> dict[str, Any]:
        return dict(json.loads(self.body)["error"])


def response(
    body: bytes = b"", last: bool = True, *headers: list[bytes], status: int = 200, stats: Any = None
) -> Response:
    return Response(
        1, status, list(headers), body, last, stats if stats is not None else [1500, 900, 4096] if last else []
    )


def failed(kind: str = "raised") -> Failed:
    return Failed(1, kind, "ValueError", "no such thing", "Traceback: secret", [1500, 900, 4096])


async def test_a_call_goes_out_whole_and_comes_back_whole() -> None:
    house = House(body=b"in")
    request = house.dispatch()
    assert (request.invocation, request.method, request.mount, request.target) == (
        "call-1",
        "POST",
        b"/fn/lab/f",
        b"/deep?x=1",
    )
    assert (request.headers, request.body, request.last) == ([(b"Host", b"lab")], b"in", True)
    assert (request.scheme, request.peer) == ("http", "192.0.2.7")
    assert 0 < request.timeout_ms <= 300_000
    house.call.on_response(response(b"out", True, [b"X-A", b"1"], status=201))
    assert house.status == 201
    assert house.body == b"out"
    assert house.headers[b"x-a"] == b"1"
    assert house.headers[b"x-samovar-invocation"] == b"call-1"
    assert house.headers[b"x-samovar-revision"] == b"lab/f@3"
    assert house.headers[b"x-samovar-start"] == b"hot"
    assert b"run;dur=1.500" in house.headers[b"server-timing"]
    assert b"date" in house.headers
    record = house.record
    assert (record.invocation, record.namespace, record.function, record.revision) == ("call-1", "lab", "f", 3)
    assert (record.token_id, record.account, record.start_kind, record.slice_kind) == ("token-1", "acc", "hot", "cpu")
    assert (record.status, record.fault, record.client_gone) == (200 + 1, "none", False)
    assert (record.cpu_us, record.peak_memory_bytes) == (900, 4096)
    assert (record.bytes_in, record.bytes_out) == (2, 3)
    assert record.slice_ms * 1000 >= record.run_us


async def test_waiting_is_split_into_queue_start_and_initialisation() -> None:
    house = House()
    house.call.arrived_at -= 2.0
    house.call.dispatched(house.link, "warm", 1_200_000, 300_000)
    house.call.on_response(response())
    record = house.record
    assert (record.start_us, record.init_us) == (1_200_000, 300_000)
    assert 500_000 <= record.queued_us < 600_000
    house = House()
    house.call.dispatched(house.link, "warm", 1_200_000, 300_000)
    house.call.on_response(response())
    assert house.record.queued_us == 0, "a call that came late waited for the rest of the start only"


# -- the request's body --------------------------------------------------------------------------------------


async def test_pieces_that_arrive_while_waiting_keep_their_order() -> None:
    house = House(body=b"a", complete=False)
    house.exchange.feed(b"b")
    house.exchange.feed(b"c")
    request = house.dispatch()
    house.exchange.feed(b"d")
    house.exchange.feed_end()
    assert request.body + b"".join(data for data, _ in house.link.bodies) == b"abcd"
    assert [last for _, last in house.link.bodies] == [False] * (len(house.link.bodies) - 1) + [True]


async def test_the_end_alone_is_told() -> None:
    house = House(complete=False)
    assert not house.dispatch().last
    house.exchange.feed_end()
    assert house.link.bodies == [(b"", True)]


async def test_pieces_larger_than_a_chunk_are_split() -> None:
    body = bytes(range(256)) * 2500
    house = House(body=body)
    request = house.dispatch()
    pieces = [request.body, *(data for data, _ in house.link.bodies)]
    assert b"".join(pieces) == body
    assert max(map(len, pieces)) <= CHUNK_BYTES
    assert [last for _, last in house.link.bodies] == [False] * (len(pieces) - 2) + [True]


@given(
    pieces=st.lists(st.integers(0, 3 * CHUNK_BYTES), max_size=12),
    credits=st.lists(st.integers(-5, 2 * WINDOW_BYTES), max_size=12),
    dispatch_at=st.integers(0, 12),
)
@settings(max_examples=60, deadline=None)
def test_no_more_than_the_window_is_ever_under_way(pieces: list[int], credits: list[int], dispatch_at: int) -> None:
    async def run() -> None:
        house = House(complete=False)
        sent = used = fed = 0
        for step in range(max(len(pieces), len(credits), dispatch_at) + 1):
            if step < len(pieces) and not house.client.held:
                house.exchange.feed(b"x" * pieces[step])
                fed += pieces[step]
            if step == dispatch_at:
                sent = len(house.dispatch().body)
            if step > dispatch_at and step < len(credits):
                under_way = sent + sum(len(data) for data, _ in house.link.bodies) - used
                used += max(0, min(credits[step], under_way))
                house.call.on_credit(credits[step])
            assert sent + sum(len(data) for data, _ in house.link.bodies) - used <= WINDOW_BYTES
        house.exchange.feed_end()
        while not any(last for _, last in house.link.bodies):
            house.call.on_credit(WINDOW_BYTES)
        assert sent + sum(len(data) for data, _ in house.link.bodies) == fed
        assert not house.client.held
        house.call.fail(Unavailable("end"))

    asyncio.run(run())


async def test_a_client_is_held_while_its_body_waits_and_let_go_after() -> None:
    house = House(complete=False)
    house.exchange.feed(b"x" * (CHUNK_BYTES - 1))
    assert not house.client.held
    house.exchange.feed(b"x")
    assert house.client.held
    house.dispatch()
    assert not house.client.held
    for _ in range(4):
        house.exchange.feed(b"x" * CHUNK_BYTES)
    assert house.client.held, "the window is full"
    house.call.on_credit(CHUNK_BYTES)
    assert not house.client.held


async def test_a_client_whose_body_is_complete_is_not_held_so_that_its_leaving_is_seen() -> None:
    house = House(body=b"x" * CHUNK_BYTES, complete=False)
    assert house.client.held
    house.exchange.feed_end()
    assert not house.client.held


async def test_100_continue_is_said_when_the_call_is_admitted() -> None:
    house = House(complete=False, expect_continue=True)
    assert house.client.sent == b"HTTP/1.1 100 Continue\r\n\r\n"


@pytest.mark.parametrize("running", [True, False])
async def test_a_body_that_grows_over_the_limit_ends_the_call(running: bool) -> None:
    house = House(complete=False, max_body_bytes=10)
    if running:
        house.dispatch()
    house.exchange.feed(b"x" * 10)
    assert not house.records
    house.exchange.feed(b"x")
    assert house.status == 413
    assert b"connection: close" in house.client.sent
    assert (house.record.status, house.record.fault, house.record.bytes_in) == (413, "caller", 11)
    assert house.left == (not running)
    assert len(house.link.abandoned) == running
    assert not any(last for _, last in house.link.bodies), "the worker must not take the part for the whole"


async def test_a_broken_body_ends_the_call_with_400() -> None:
    house = House(complete=False)
    house.dispatch()
    house.exchange.broken("Invalid character in chunk size")
    assert house.status == 400
    assert "chunk size" in house.error["message"]
    assert house.record.fault == "caller"
    assert house.link.abandoned


async def test_credit_after_the_end_does_not_send_what_was_thrown_away() -> None:
    house = House(body=b"x" * CHUNK_BYTES, complete=False, timeouts={"total_s": 0.02})
    house.dispatch()
    for _ in range(5):
        house.exchange.feed(b"x" * CHUNK_BYTES)
    house.exchange.feed_end()
    assert (await house.end()).status == 504
    house.call.on_credit(WINDOW_BYTES)
    assert not any(last for _, last in house.link.bodies), "a part of a body must not end as if it were the whole"


# -- the answer ----------------------------------------------------------------------------------------------


async def test_a_stream_is_passed_on_piece_by_piece() -> None:
    house = House()
    house.dispatch()
    house.call.on_response(response(b"one", False))
    assert house.body == b"3\r\none\r\n"
    assert not house.records
    house.call.on_body_piece(Body(1, b"two", False, []))
    house.call.on_body_piece(Body(1, b"end", True, [1, 2, 3]))
    assert house.body == b"3\r\none\r\n3\r\ntwo\r\n3\r\nend\r\n0\r\n\r\n"
    assert (house.record.status, house.record.bytes_out, house.record.cpu_us) == (200, 9, 2)


async def test_the_record_is_kept_before_the_last_byte_of_a_stream_of_known_length() -> None:
    house = House()
    house.dispatch()
    house.call.on_response(response(b"one", False, [b"content-length", b"6"]))
    seen: list[bytes] = []
    keep = house.conclude
    house.call._floor.conclude = lambda call, record: (seen.append(house.body), keep(call, record))  # type: ignore
    house.call.on_body_piece(Body(1, b"two", True, [1, 2, 3]))
    assert seen == [b"one"]
    assert house.body == b"onetwo"


async def test_a_worker_is_credited_in_batches_for_what_was_passed_on() -> None:
    house = House()
    house.dispatch()
    house.call.on_response(response(b"x" * (CREDIT_BATCH_BYTES - 1), False))
    assert house.link.credited == 0
    house.call.on_body_piece(Body(1, b"x", False, []))
    assert house.link.credited == CREDIT_BATCH_BYTES


async def test_a_client_that_does_not_read_stops_the_worker_within_its_window() -> None:
    house = House()
    house.dispatch()
    house.client.writable = False
    house.call.on_response(response(b"", False))
    for _ in range(WINDOW_BYTES // CHUNK_BYTES):
        house.call.on_body_piece(Body(1, b"x" * CHUNK_BYTES, False, []))
    assert house.link.credited == 0
    house.client.writable = True
    house.exchange.drained()
    assert house.link.credited == WINDOW_BYTES


async def test_a_worker_that_ignores_its_window_is_cut() -> None:
    house = House()
    house.dispatch()
    house.client.writable = False
    house.call.on_response(response(b"", False))
    for _ in range(WINDOW_BYTES // CHUNK_BYTES + 1):
        house.call.on_body_piece(Body(1, b"x" * CHUNK_BYTES, False, []))
    assert house.client.aborted
    assert (house.record.status, house.record.fault) == (502, "function")
    assert house.link.abandoned


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_head_with_a_streaming_handler(method: str) -> None:
    house = House(method=method)
    house.dispatch()
    house.call.on_response(response(b"one", False))
    house.call.on_body_piece(Body(1, b"end", True, [1, 2, 3]))
    assert house.body == (b"" if method == "HEAD" else b"3\r\none\r\n3\r\nend\r\n0\r\n\r\n")
    assert house.client.finished


async def test_a_whole_answer_must_be_as_long_as_it_says() -> None:
    for method, status, good in (("GET", 200, False), ("HEAD", 200, True), ("GET", 304, True), ("GET", 204, True)):
        house = House(method=method)
        house.dispatch()
        house.call.on_response(response(b"body", True, [b"content-length", b"9"], status=status))
        assert house.status == (status if good else 502)
        assert house.record.status == house.status
    house = House()
    house.dispatch()
    house.call.on_response(response(b"body", True, [b"content-length", b"4"]))
    assert house.client.sent.count(b"content-length") == 1


@pytest.mark.parametrize(
    "pieces",
    [
        [(b"12345678901", False)],
        [(b"1234567890", False), (b"1", False)],
        [(b"1234567890", False), (b"1", True)],
        [(b"123456789", True)],
        [(b"12345", False), (b"", True)],
        [(b"12345678901", True)],
    ],
)
async def test_a_stream_that_is_not_as_long_as_announced_is_cut(pieces: list[tuple[bytes, bool]]) -> None:
    house = House()
    house.dispatch()
    house.call.on_response(response(b"", False, [b"Content-Length", b"10"]))
    for data, last in pieces:
        house.call.on_body_piece(Body(1, data, last, [1, 2, 3] if last else []))
    assert house.client.aborted
    assert not house.client.finished
    assert (house.record.status, house.record.fault) == (502, "function")


async def test_a_first_piece_that_is_too_long_is_cut() -> None:
    house = House()
    house.dispatch()
    house.call.on_response(response(b"12345", False, [b"Content-Length", b"3"]))
    assert house.client.aborted
    assert house.record.status == 502


@pytest.mark.parametrize(
    "message",
    [
        response(b"", True, [b"x", b"a\r\nset-cookie: b=1"]),
        response(b"", False, [b"x", b"a\r\nset-cookie: b=1"]),
        response(b"", False, [b"content-length", b"ten"]),
        response(b"", True, status=101),
        response(b"", True, status=99),
        response(b"", True, status=1000),
        response(b"", False, status=-1),
        response(b"", True, "no pair"),  # type: ignore[arg-type]
        Body(1, b"x", True, [1, 2, 3]),
        Body(1, b"x", False, []),
    ],
)
async def test_an_unreadable_answer_is_502_and_nothing_of_it_goes_out(message: Any) -> None:
    house = House()
    house.dispatch()
    (house.call.on_response if isinstance(message, Response) else house.call.on_body_piece)(message)
    assert house.status == 502
    assert "unreadable" in house.error["message"]
    assert house.headers[b"x-samovar-fault"] == b"function"
    assert b"set-cookie" not in house.headers
    assert (house.record.status, house.record.fault) == (502, "function")
    assert house.link.abandoned


@pytest.mark.parametrize("second", [response(b"x"), response(b"x", False)])
async def test_a_second_head_is_never_sent(second: Response) -> None:
    house = House()
    house.dispatch()
    house.call.on_response(response(b"one", False))
    house.call.on_response(second)
    assert house.client.sent.count(b"HTTP/1.1") == 1
    assert house.client.aborted
    assert house.record.status == 502


@pytest.mark.parametrize(
    "stats", [[], [1], ["a", "b", "c"], [-1, -1, -1], [1.5, True, None], [2**63, 2**63, 2**64 - 1]]
)
async def test_what_a_worker_says_of_its_usage_is_believed_within_reason(stats: list[Any]) -> None:
    house = House()
    house.dispatch()
    house.call.on_response(response(b"", True, stats=stats))
    assert house.status == 200
    assert (house.record.cpu_us, house.record.peak_memory_bytes) == (0, 0)


@pytest.mark.parametrize("owner", [True, False])
async def test_a_handler_that_raised_is_500_with_its_traceback_for_the_owner_only(owner: bool) -> None:
    house = House(owner=owner)
    house.dispatch()
    house.call.on_failed(failed())
    assert house.status == 500
    assert house.headers[b"x-samovar-fault"] == b"function"
    assert house.error["message"] == "ValueError: no such thing"
    assert ("traceback" in house.error["detail"]) == owner
    assert (b"secret" in house.client.sent) == owner
    assert (house.record.status, house.record.fault, house.record.cpu_us) == (500, "function", 900)


async def test_a_body_that_the_handler_cannot_read_is_400() -> None:
    house = House()
    house.dispatch()
    house.call.on_failed(failed("bad_request"))
    assert house.status == 400
    assert house.record.fault == "caller"


async def test_a_stream_that_breaks_is_cut() -> None:
    house = House()
    house.dispatch()
    house.call.on_response(response(b"one", False))
    house.call.on_failed(failed("broken"))
    assert house.client.aborted
    assert b"0\r\n\r\n" not in house.client.sent
    assert (house.record.status, house.record.fault, house.record.bytes_out) == (500, "function", 3)


@pytest.mark.parametrize(
    ("error", "fault"), [(WorkerBroke("exit code 3"), "function"), (WorkerUnreachable("node lost"), "platform")]
)
@pytest.mark.parametrize("after_head", [True, False])
async def test_a_worker_that_is_lost(error: Any, fault: str, after_head: bool) -> None:
    house = House()
    house.dispatch()
    if after_head:
        house.call.on_response(response(b"one", False))
    house.call.on_worker_lost(error)
    if after_head:
        assert house.client.aborted
    else:
        assert house.status == 502
        assert house.headers[b"x-samovar-fault"] == fault.encode()
    assert (house.record.status, house.record.fault) == (502, fault)


# -- clients that leave --------------------------------------------------------------------------------------


async def test_a_client_that_leaves_while_waiting_leaves_the_queue() -> None:
    house = House()
    house.call.arm()
    house.exchange.gone()
    assert house.left == 1
    assert (house.record.status, house.record.fault, house.record.client_gone) == (499, "caller", True)
    assert house.record.start_kind == ""
    house.exchange.gone()
    house.call.on_gone()
    assert len(house.records) == 1


@pytest.mark.parametrize(
    ("end", "status", "fault"),
    [
        (lambda call: call.on_response(response(b"late")), 200, "none"),
        (lambda call: call.on_failed(failed("cancelled")), 499, "caller"),
        (lambda call: call.on_failed(failed()), 500, "function"),
        (lambda call: call.on_worker_lost(WorkerBroke("died")), 502, "function"),
        (lambda call: call.on_worker_lost(WorkerUnreachable("lost")), 502, "platform"),
    ],
)
async def test_a_client_that_leaves_a_running_call_is_recorded_when_the_call_ends(
    end: Callable[[Call], None], status: int, fault: str
) -> None:
    house = House()
    house.dispatch()
    house.exchange.gone()
    assert house.link.cancelled == ["client_gone"]
    assert not house.records
    end(house.call)
    assert (house.record.status, house.record.fault, house.record.client_gone) == (status, fault, True)
    assert house.client.sent == b""


async def test_a_client_that_leaves_a_stream_lets_the_worker_run_to_its_end() -> None:
    house = House()
    house.dispatch()
    house.call.on_response(response(b"", False))
    house.client.writable = False
    house.call.on_body_piece(Body(1, b"x" * CHUNK_BYTES, False, []))
    sent = house.client.sent
    house.exchange.gone()
    assert house.link.credited == CHUNK_BYTES, "a worker that waits for credit hears of the end"
    for _ in range(20):
        house.call.on_body_piece(Body(1, b"x" * CHUNK_BYTES, False, []))
    house.call.on_body_piece(Body(1, b"", True, [1, 2, 3]))
    assert house.client.sent == sent
    assert (house.record.status, house.record.client_gone) == (200, True)


async def test_the_limits_hold_for_a_caller_who_left() -> None:
    house = House(timeouts={"total_s": 0.02})
    house.dispatch()
    house.exchange.gone()
    record = await house.end()
    assert (record.status, record.fault, record.client_gone) == (504, "function", True)
    assert house.link.abandoned == [("timeout", "total timeout of 0.02 s")]


# -- limits in time ------------------------------------------------------------------------------------------


async def test_no_worker_before_the_start_limit_is_503() -> None:
    for timeouts in ({"start_s": 0.01}, {"total_s": 0.01}):
        house = House(timeouts=timeouts)
        house.call.arm()
        await house.end()
        assert house.status == 503
        assert house.left == 1
        assert house.headers[b"x-samovar-fault"] == b"platform"
        assert int(house.headers[b"retry-after"]) >= 1
        assert house.headers[b"x-samovar-start"] == b"none"
        assert house.record.fault == "platform"


@pytest.mark.parametrize("waited", [True, False])
async def test_no_head_before_the_first_byte_limit_is_504(waited: bool) -> None:
    house = House(timeouts={"first_byte_s": 0.01})
    if waited:
        house.call.arm()
    house.dispatch()
    await house.end()
    assert house.status == 504
    assert "first-byte timeout of 0.01 s" in house.error["message"]
    assert house.link.abandoned == [("timeout", "first-byte timeout of 0.01 s")]
    house.call.on_response(response(b"late"))
    house.call.on_failed(failed())
    house.call.on_worker_lost(WorkerBroke("killed"))
    assert house.record.status == 504


async def test_a_call_that_is_not_over_in_time_is_504() -> None:
    house = House(timeouts={"total_s": 0.02})
    house.dispatch()
    await house.end()
    assert "total timeout of 0.02 s" in house.error["message"]


async def test_the_total_limit_cuts_a_stream() -> None:
    house = House(timeouts={"total_s": 0.02})
    house.dispatch()
    house.call.on_response(response(b"one", False))
    await house.end()
    assert house.client.aborted
    assert house.record.status == 504


async def test_silence_in_a_stream_is_cut() -> None:
    house = House(timeouts={"idle_s": 0.02})
    house.dispatch()
    house.call.on_response(response(b"one", False))
    await house.end()
    assert house.client.aborted
    assert house.link.abandoned == [("timeout", "idle timeout of 0.02 s")]


async def test_silence_that_a_slow_client_causes_is_not_the_functions() -> None:
    house = House(timeouts={"idle_s": 0.01})
    house.dispatch()
    house.call.on_response(response(b"", False))
    house.client.writable = False
    house.call.on_body_piece(Body(1, b"x", False, []))
    loop = asyncio.get_running_loop()
    later = loop.create_future()
    loop.call_later(0.03, later.set_result, None)
    await later
    assert not house.records
    house.client.writable = True
    house.exchange.drained()
    assert (await house.end()).status == 504, "once the client reads on, the clock runs again"


async def test_nothing_keeps_running_after_the_end() -> None:
    house = House(timeouts={"total_s": 0.01})
    house.dispatch()
    house.call.on_response(response())
    house.call.arm()
    assert house.call._tick < 0
    assert house.record.status == 200


# -- anything at all -----------------------------------------------------------------------------------------

ACTIONS = ["feed", "feed_end", "broken", "gone", "drain", "full", "dispatch", "credit", "head", "whole"]
ACTIONS += ["piece", "last", "failed", "lost", "fail"]


@given(actions=st.lists(st.sampled_from(ACTIONS), max_size=14), complete=st.booleans())
@settings(max_examples=300, deadline=None)
def test_whatever_happens_there_is_one_answer_and_one_record(actions: list[str], complete: bool) -> None:
    async def run() -> None:
        house = House(complete=complete)
        call, exchange, dispatched = house.call, house.exchange, False
        call.arm()
        for action in [*actions, "dispatch", "last", "lost"]:
            if action == "feed" and not exchange.body_complete:
                exchange.feed(b"x" * 100_000)
            elif action == "feed_end" and not exchange.body_complete:
                exchange.feed_end()
            elif action == "broken" and not exchange.body_complete:
                exchange.broken("bad")
            elif action == "gone":
                exchange.gone()
            elif action == "drain":
                house.client.writable = True
                exchange.drained()
            elif action == "full":
                house.client.writable = False
            elif action == "dispatch" and not dispatched and not house.records:
                dispatched = True
                house.dispatch()
            elif action == "fail":
                call.fail(Unavailable("shutting down"))
            elif dispatched:
                match action:
                    case "credit":
                        call.on_credit(100_000)
                    case "head":
                        call.on_response(response(b"x" * 1000, False))
                    case "whole":
                        call.on_response(response(b"x"))
                    case "piece":
                        call.on_body_piece(Body(1, b"x" * 100_000, False, []))
                    case "last":
                        call.on_body_piece(Body(1, b"x", True, [1, 2, 3]))
                    case "failed":
                        call.on_failed(failed())
                    case "lost":
                        call.on_worker_lost(WorkerBroke("died"))
        assert len(house.records) == 1
        assert exchange.done
        assert house.client.finished + house.client.aborted + house.records[0].client_gone == 1
        assert not house.client.held
        assert call._tick < 0

    asyncio.run(run())
