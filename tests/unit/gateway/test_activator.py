"""Admission: who may call what, within which bounds, and what of a request travels on."""

from __future__ import annotations

import asyncio
import itertools
import json
from dataclasses import dataclass
from typing import Any

import pytest

from gateway.activator import Activator, ActivatorParams
from gateway.call import Call
from gateway.catalog import Timeouts
from gateway.errors import Unauthorized, Unavailable, WorkerBroke
from gateway.metering.record import MeteringRecord
from gateway.routes import Route
from gateway.web.exchange import Exchange
from gateway.web.heads import Head
from runtime.messages import Response
from warmpool.commands import Reject


@dataclass
class Principal:
    token_id: str
    namespace: str | None


PRINCIPALS = {
    b"Bearer smv_all": Principal("t-all", None),
    b"Bearer smv_lab": Principal("t-lab", "lab"),
    b"bearer smv_lab": Principal("t-lab", "lab"),
    b"Bearer smv_other": Principal("t-other", "other"),
}


class Connection:
    def __init__(self) -> None:
        self.sent = b""

    def send(self, data: bytes) -> bool:
        self.sent += data
        return True

    def exchange_done(self, exchange: Exchange) -> None:
        pass

    def abort(self) -> None:
        self.sent = b"cut"

    def hold_reading(self, held: bool) -> None:
        pass


class Link:
    def __init__(self) -> None:
        self.abandoned = 0

    def abandon(self, call: int, reason: str, why: str) -> None:
        self.abandoned += 1


def route(name: str, **more: Any) -> Route:
    values: dict[str, Any] = {
        "namespace": "lab",
        "function": name,
        "number": 1,
        "revision": f"lab/{name}@1",
        "mount": f"/fn/lab/{name}".encode(),
        "public": False,
        "timeouts": Timeouts(),
        "max_body_bytes": 10,
        "revision_line": f"x-samovar-revision: lab/{name}@1\r\n".encode(),
        "account": "acc",
        "slice_kind": "cpu",
        "price_version": 1,
    }
    return Route(**(values | more))


class House:
    """An activator with a pool that takes everything and does nothing."""

    def __init__(self, **params: Any) -> None:
        self.routes = {("lab", "f"): route("f"), ("lab", "open"): route("open", public=True)}
        self.arrived: list[Call] = []
        self.left: list[Call] = []
        self.records: list[MeteringRecord] = []
        self.observed: list[MeteringRecord] = []
        self.journal_full = False
        numbers = itertools.count(1)
        self.activator = Activator(
            lambda namespace, function: self.routes.get((namespace, function)),
            self,
            self,
            self,
            lambda: f"call-{next(numbers)}",
            self.observed.append,
            ActivatorParams(**params),
        )

    def authenticate(self, header: Any, now: float) -> Principal:
        if header not in PRINCIPALS:
            raise Unauthorized("no such token")
        return PRINCIPALS[header]

    def arrive(self, call: Call) -> None:
        self.arrived.append(call)

    def leave(self, call: Call) -> None:
        self.left.append(call)

    def append(self, record: MeteringRecord) -> None:
        if self.journal_full:
            raise OSError("disk full")
        self.records.append(record)

    def request(
        self,
        target: bytes = b"/fn/lab/f/x",
        *headers: tuple[bytes, bytes],
        token: bytes = b"Bearer smv_lab",
        body: bytes = b"",
    ) -> Exchange:
        sent = [(b"Host", b"lab.example"), *headers]
        if token:
            sent.append((b"Authorization", token))
        head = Head("POST", target, sent)
        length = head.value(b"content-length")
        head.content_length = int(length) if length else None
        exchange = Exchange(Connection(), "192.0.2.7", head)
        exchange.body, exchange.body_complete = body, True
        self.activator.begin(exchange)
        return exchange


def status(exchange: Exchange) -> int:
    sent = exchange._connection.sent  # type: ignore[attr-defined]
    return int(sent.split(b" ", 2)[1]) if sent else 0


def error(exchange: Exchange) -> dict[str, Any]:
    return dict(json.loads(exchange._connection.sent.partition(b"\r\n\r\n")[2])["error"])  # type: ignore[attr-defined]


def answer(call: Call, link: Any = None) -> None:
    call.number = 1
    call.dispatched(link or Link(), "hot", 0, 0)
    call.on_response(Response(1, 200, [], b"ok", True, [1, 2, 3]))


@pytest.mark.parametrize(
    ("target", "token", "expected"),
    [
        (b"/fn/lab/f", b"Bearer smv_lab", 0),
        (b"/fn/lab/f?x", b"bearer smv_lab", 0),
        (b"/fn/lab/f/", b"Bearer smv_all", 0),
        (b"/fn/lab/f", b"Bearer smv_other", 403),
        (b"/fn/lab/f", b"Bearer smv_wrong", 401),
        (b"/fn/lab/f", b"Basic abc", 401),
        (b"/fn/lab/f", b"", 401),
        (b"/fn/lab/nothing", b"", 401),
        (b"/fn/lab/nothing", b"Bearer smv_other", 403),
        (b"/fn/lab/nothing", b"Bearer smv_lab", 404),
        (b"/fn/lab/f%2Fx", b"Bearer smv_lab", 404),
        (b"/fn/lab", b"Bearer smv_lab", 404),
        (b"/fn/lab/", b"Bearer smv_lab", 404),
        (b"/fn/", b"Bearer smv_lab", 404),
        (b"/fn/lab?/f", b"Bearer smv_lab", 404),
        (b"/fn//f", b"Bearer smv_all", 404),
        (b"/fn/l\xe4b/f", b"Bearer smv_all", 400),
        (b"/fn/lab/open", b"", 0),
        (b"/fn/lab/open", b"Bearer smv_wrong", 0),
        (b"/fn/lab/open", b"Bearer smv_other", 0),
        (b"/fn/lab/open", b"Basic abc", 0),
    ],
)
async def test_who_may_call_what(target: bytes, token: bytes, expected: int) -> None:
    house = House()
    exchange = house.request(target, token=token)
    assert status(exchange) == expected
    assert len(house.arrived) == (expected == 0)
    assert not house.records, "what is not accepted is not metered"


@pytest.mark.parametrize(
    ("target", "token", "token_id"),
    [
        (b"/fn/lab/f", b"Bearer smv_lab", "t-lab"),
        (b"/fn/lab/open", b"Bearer smv_lab", "t-lab"),
        (b"/fn/lab/open", b"Bearer smv_other", ""),
        (b"/fn/lab/open", b"", ""),
    ],
)
async def test_the_record_names_the_token(target: bytes, token: bytes, token_id: str) -> None:
    house = House()
    house.request(target, token=token)
    answer(house.arrived[0])
    assert house.records[0].token_id == token_id
    assert house.records == house.observed


async def test_our_tokens_do_not_travel_on_and_others_do() -> None:
    for token, travels in (
        (b"Bearer smv_lab", False),
        (b"BEARER smv_wrong", False),
        (b"Bearer   smv_wrong", False),
        (b"Bearer eyJ.the.functions.own", True),
        (b"Basic abc", True),
    ):
        exchange = House().request(b"/fn/lab/open", token=token)
        assert ((b"Authorization", token) in exchange.headers) == travels


async def test_hop_by_hop_headers_and_those_that_connection_names_do_not_travel_on() -> None:
    exchange = House().request(
        b"/fn/lab/f",
        (b"Connection", b"close, X-One"),
        (b"X-One", b"1"),
        (b"connection", b"x-two"),
        (b"X-Two", b"2"),
        (b"Keep-Alive", b"5"),
        (b"TE", b"trailers"),
        (b"Trailer", b"x"),
        (b"Transfer-Encoding", b"chunked"),
        (b"Upgrade", b"h2c"),
        (b"Proxy-Authorization", b"x"),
        (b"Proxy-Connection", b"x"),
        (b"Expect", b"100-continue"),
        (b"Cookie", b"a"),
        (b"cookie", b"b"),
        (b"Content-Encoding", b"gzip"),
    )
    assert exchange.headers == [
        (b"Host", b"lab.example"),
        (b"Cookie", b"a"),
        (b"cookie", b"b"),
        (b"Content-Encoding", b"gzip"),
        (b"forwarded", b'for=192.0.2.7;host="lab.example";proto=http'),
    ]


async def test_what_a_proxy_said_is_kept_and_ours_is_added() -> None:
    exchange = House().request(b"/fn/lab/f", (b"Forwarded", b"for=9.9.9.9"))
    assert [v for n, v in exchange.headers if n.lower() == b"forwarded"] == [
        b"for=9.9.9.9",
        b'for=192.0.2.7;host="lab.example";proto=http',
    ]
    exchange = House().request(b"/fn/lab/f", (b"X-Forwarded-For", b"9.9.9.9"), (b"X-Forwarded-Proto", b"https"))
    assert dict(exchange.headers)[b"forwarded"].startswith(b"for=9.9.9.9;proto=https, for=192.0.2.7;")
    assert dict(exchange.headers)[b"X-Forwarded-For"] == b"9.9.9.9"


async def test_a_body_over_the_limit_is_refused_before_it_is_read() -> None:
    house = House()
    assert status(house.request(b"/fn/lab/f", (b"Content-Length", b"11"))) == 413
    assert status(house.request(b"/fn/lab/f", body=b"x" * 11)) == 413
    assert status(house.request(b"/fn/lab/f", (b"Content-Length", b"10"), body=b"x" * 10)) == 0
    assert status(house.request(b"/fn/lab/f", (b"Content-Length", b"11"), token=b"")) == 401


async def test_calls_under_way_are_bounded() -> None:
    house = House(calls_max=2)
    assert [status(house.request()) for _ in range(3)] == [0, 0, 503]
    answer(house.arrived[0])
    assert status(house.request()) == 0


@pytest.mark.parametrize(
    ("code", "expected", "fault"),
    [
        ("queue_full", 503, "platform"),
        ("no_capacity", 503, "platform"),
        ("duplicate", 503, "platform"),
        ("start_failed", 502, "function"),
        ("unknown_revision", 404, "caller"),
        ("revision_removed", 404, "caller"),
    ],
)
async def test_what_the_pool_rejects_is_answered_and_recorded_once(code: str, expected: int, fault: str) -> None:
    house = House()
    exchange = house.request()
    command = Reject(house.arrived[0].invocation, code, "because", 2.5)
    house.activator.reject(command, None)
    house.activator.reject(command, None)
    assert status(exchange) == expected
    assert "because" in error(exchange)["message"]
    assert [(r.status, r.fault, r.start_kind) for r in house.records] == [(expected, fault, "")]
    assert (b"retry-after: 3" in exchange._connection.sent) == (expected == 503)  # type: ignore[attr-defined]


async def test_a_start_that_failed_says_so_in_its_own_words() -> None:
    house = House()
    exchange = house.request()
    house.activator.reject(Reject("call-1", "start_failed", "x", 0.0), WorkerBroke("ImportError: numpy"))
    assert status(exchange) == 502
    assert "ImportError: numpy" in error(exchange)["message"]


async def test_a_journal_that_cannot_be_written_is_counted_and_the_caller_still_answered() -> None:
    house = House()
    house.journal_full = True
    exchange = house.request()
    answer(house.arrived[0])
    assert status(exchange) == 200
    assert house.activator.unmetered == 1


async def test_a_rejection_in_the_moment_of_arrival_leaves_no_timer_behind() -> None:
    house = House()
    house.arrive = lambda call: house.activator.reject(Reject(call.invocation, "queue_full", "x", 1.0), None)  # type: ignore
    assert status(house.request()) == 503
    assert house.activator.running() == 0


async def test_a_shutdown_refuses_new_calls_and_waits_for_those_under_way() -> None:
    house = House()
    first, second = house.request(), house.request()
    drained = asyncio.create_task(house.activator.drained(10.0))
    await asyncio.sleep(0)
    assert status(house.request()) == 503
    answer(house.arrived[0])
    await asyncio.sleep(0)
    assert not drained.done()
    link = Link()
    house.arrived[1].dispatched(link, "hot", 0, 0)  # type: ignore[arg-type]
    house.activator.cut_all(Unavailable("the gateway is shutting down"))
    assert await drained
    assert (status(first), status(second)) == (200, 503)
    assert link.abandoned == 1
    assert [r.status for r in house.records] == [200, 503]


async def test_a_shutdown_does_not_wait_for_ever() -> None:
    house = House()
    house.request()
    assert not await house.activator.drained(0.01)
    house.activator.cut_all(Unavailable("the gateway is shutting down"))
    assert await house.activator.drained(0.01)
    assert len(house.left) == 1
