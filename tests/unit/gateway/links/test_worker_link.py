"""Calls on one worker's connection: each ends once, frees its slot once, and survives whatever the worker says."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gateway.links.worker as worker_links
from gateway.call import Call
from gateway.catalog import Timeouts
from gateway.deadlines import Deadlines
from gateway.errors import Unavailable, WorkerBroke
from gateway.links.worker import WorkerLink, fail_calls
from gateway.metering.record import MeteringRecord
from gateway.routes import Route
from gateway.web.exchange import Exchange
from gateway.web.heads import Head
from runtime import messages as wire
from runtime.codec import FrameError, decode, encode

ROUTE = Route(
    namespace="lab",
    function="f",
    number=1,
    revision="lab/f@1",
    mount=b"/fn/lab/f",
    public=False,
    timeouts=Timeouts(),
    max_body_bytes=10_000_000,
    revision_line=b"x-samovar-revision: lab/f@1\r\n",
    account="",
    slice_kind="cpu",
    price_version=1,
)


class Client:
    """The connection of one caller."""

    def __init__(self) -> None:
        self.sent = b""
        self.done = self.aborted = False

    def send(self, data: bytes) -> bool:
        self.sent += data
        return True

    def exchange_done(self, exchange: Exchange) -> None:
        self.done = True

    def abort(self) -> None:
        self.aborted = True

    def hold_reading(self, held: bool) -> None:
        pass


class Worker:
    """A link, its supervisor, and the worker's end of the connection."""

    def __init__(self) -> None:
        self.said: list[Any] = []
        self.closed = False
        self.records: list[MeteringRecord] = []
        self.ended: list[Call] = []
        self.lost: list[Call] = []
        self.replaced: list[str] = []
        self.replacing = asyncio.Event()
        self.news: list[Any] = []
        self.deadlines = Deadlines()
        self.link = WorkerLink("w-1", self, self)  # type: ignore[arg-type]

    # the connection
    def send(self, message: Any) -> None:
        self.said.append(decode(encode(message)[4:]))

    def close(self) -> None:
        self.closed = True

    # the supervisor
    def worker_ready(self, worker: str, ready: wire.Ready) -> None:
        self.news.append(ready)

    def worker_start_failed(self, worker: str, failure: wire.StartFailed) -> None:
        self.news.append(failure)

    def call_ended(self, call: Call) -> None:
        self.ended.append(call)

    def replace_worker(self, worker: str, reason: str) -> None:
        self.replaced.append(reason)
        self.replacing.set()

    def link_lost(self, worker: str, calls: list[Call]) -> None:
        self.lost += calls

    # the floor
    def leave_queue(self, call: Call) -> None:
        raise AssertionError("a running call is in no queue")

    def conclude(self, call: Call, record: MeteringRecord) -> None:
        self.records.append(record)

    def call(self, body: bytes = b"", complete: bool = True) -> tuple[Call, Client]:
        client = Client()
        exchange = Exchange(client, "192.0.2.7", Head("POST", b"/fn/lab/f", []))
        exchange.feed(body)
        if complete:
            exchange.feed_end()
        call = Call(self, exchange, ROUTE, f"call-{len(self.said)}", "", False)
        call.admit()
        self.link.dispatch(call, "hot", 0, 0)
        call.arm()
        return call, client


async def test_calls_are_numbered_and_answered_in_any_order() -> None:
    worker = Worker()
    calls = [worker.call() for _ in range(3)]
    assert [m.call for m in worker.said] == [1, 2, 3]
    for number in (2, 3, 1):
        worker.link.on_message(wire.Response(number, 200, [], b"%d" % number, True, [1, 2, 3]))
    assert [client.sent[-1:] for _, client in calls] == [b"1", b"2", b"3"]
    assert worker.ended == [calls[1][0], calls[2][0], calls[0][0]]


async def test_a_large_body_follows_its_request_within_the_window() -> None:
    worker = Worker()
    worker.call(b"x" * (3 * wire.WINDOW_BYTES))
    assert isinstance(worker.said[0], wire.Request)
    sent = len(worker.said[0].body) + sum(len(m.data) for m in worker.said[1:])
    assert sent == wire.WINDOW_BYTES
    worker.link.on_message(wire.Credit(1, wire.WINDOW_BYTES))
    worker.link.on_message(wire.Credit(1, wire.WINDOW_BYTES))
    assert worker.said[-1].last
    assert len(worker.said[0].body) + sum(len(m.data) for m in worker.said[1:]) == 3 * wire.WINDOW_BYTES


async def test_a_slot_is_free_when_the_worker_says_so_and_not_before() -> None:
    worker = Worker()
    call, client = worker.call()
    call.fail(Unavailable("x"))
    assert client.done
    assert not worker.ended, "the worker still runs it"
    assert worker.said[-1] == wire.Cancel(1, "client_gone")
    worker.link.on_message(wire.Failed(1, "cancelled", "Cancelled", "", "", []))
    assert worker.ended == [call]
    worker.link.on_message(wire.Failed(1, "cancelled", "Cancelled", "", "", []))
    assert worker.ended == [call]
    assert len(worker.records) == 1


async def test_a_worker_that_does_not_end_an_answered_call_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_links, "ABANDON_GRACE_S", 0.005)
    worker = Worker()
    worker.closed = False
    call, _ = worker.call()
    call.fail(Unavailable("why"))
    await asyncio.wait_for(worker.replacing.wait(), 10)
    assert worker.replaced == ["why"]
    worker.link.on_closed()
    assert worker.lost == [call]
    fail_calls(worker.lost, WorkerBroke("killed"))
    assert len(worker.records) == 1


async def test_a_worker_that_ends_it_in_time_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_links, "ABANDON_GRACE_S", 0.005)
    worker = Worker()
    call, _ = worker.call()
    call.fail(Unavailable("why"))
    worker.link.on_message(wire.Response(1, 200, [], b"late", True, [1, 2, 3]))
    overdue = asyncio.Event()
    asyncio.get_running_loop().call_later(0.02, overdue.set)
    await overdue.wait()
    assert not worker.replaced


async def test_a_lost_connection_hands_over_the_calls_that_were_on_it() -> None:
    worker = Worker()
    calls = [worker.call()[0] for _ in range(2)]
    worker.link.on_message(wire.Response(1, 200, [], b"", True, [1, 2, 3]))
    worker.link.on_closed()
    assert worker.lost == [calls[1]]
    before = list(worker.said)
    calls[1].on_gone()
    assert worker.said == before, "nothing is said to a lost worker"
    fail_calls(worker.lost, WorkerBroke("exited with code 3"))
    assert [r.status for r in worker.records] == [200, 502]


async def test_nothing_of_the_body_goes_to_a_worker_that_has_answered() -> None:
    worker = Worker()
    call, client = worker.call(b"first", complete=False)
    worker.link.on_message(wire.Response(1, 200, [], b"enough", True, [1, 2, 3]))
    said = list(worker.said)
    call.on_body(b"more")
    call.on_body_end()
    call.on_credit(100)
    assert worker.said == said
    assert client.done


async def test_news_of_the_start_is_passed_on() -> None:
    worker = Worker()
    ready, failure = wire.Ready(1, "event", []), wire.StartFailed("import_error", "ImportError", "x", "")
    worker.link.on_message(ready)
    worker.link.on_message(failure)
    assert worker.news == [ready, failure]


@pytest.mark.parametrize(
    "message", [wire.Hello("worker", "w", "t", 1, 1), wire.Shutdown(1), wire.Log("w", "stdout", [])]
)
async def test_what_a_worker_has_no_business_to_say_is_refused(message: Any) -> None:
    with pytest.raises(FrameError):
        Worker().link.on_message(message)


JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=6,
)
HEADERS = st.lists(
    st.lists(st.sampled_from([b"x", b"content-length", b"3", b"a\r\nb", b"connection", b"", b"te"]) | JUNK, max_size=3)
    | JUNK,
    max_size=3,
)
CALLS = st.integers(0, 4)
STATS = st.just([1, 2, 3]) | st.lists(JUNK, max_size=4)
DATA = st.binary(max_size=6) | st.just(b"x" * 400_000)
MESSAGES = st.one_of(
    st.builds(
        wire.Response,
        CALLS,
        st.sampled_from([-1, 0, 101, 200, 204, 304, 500, 999, 2**60]),
        HEADERS,
        DATA,
        st.booleans(),
        STATS,
    ),
    st.builds(wire.Body, CALLS, DATA, st.booleans(), STATS),
    st.builds(wire.Credit, CALLS, st.integers(-(2**63), 2**64 - 1)),
    st.builds(
        wire.Failed,
        CALLS,
        st.sampled_from(["raised", "bad_result", "bad_request", "cancelled", "broken", "?"]),
        st.text(max_size=5),
        st.text(max_size=5),
        st.text(max_size=5),
        STATS,
    ),
)


@given(messages=st.lists(MESSAGES, max_size=12), gone=st.sets(st.integers(0, 2)))
@settings(max_examples=120, deadline=None)
def test_whatever_a_worker_says_each_call_has_one_answer_and_frees_its_slot_once(
    messages: list[Any], gone: set[int]
) -> None:
    async def run() -> None:
        worker = Worker()
        calls = [worker.call(b"x" * 300_000, complete=n != 1) for n in range(3)]
        for number, message in enumerate(messages):
            if number == 2:
                for n in gone:
                    calls[n][0]._exchange.gone()
            worker.link.on_message(decode(encode(message)[4:]))
        worker.link.on_closed()
        fail_calls(worker.lost, WorkerBroke("lost"))
        assert len(worker.records) == 3
        assert sorted(map(id, worker.ended + worker.lost)) == sorted(id(call) for call, _ in calls)
        for n, (call, client) in enumerate(calls):
            assert call._exchange.done
            assert client.done + client.aborted == 1 or n in gone
            assert client.sent.count(b"HTTP/1.1 ") <= 1

    asyncio.run(run())
