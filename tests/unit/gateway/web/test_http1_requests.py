"""What the front reads: requests whole, in pieces, in a row, and those that it refuses."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

HOST = b"Host: lab\r\n"


def head(line: bytes, *headers: bytes) -> bytes:
    return b"\r\n".join([line, b"Host: lab", *headers]) + b"\r\n\r\n"


CALL = head(b"POST /fn/a/b/c%2Fd?x=1&y HTTP/1.1", b"X-Two: 1", b"x-two: 2", b"Content-Length: 5") + b"hello"


def read(client, data: bytes, *cuts: int):
    """A client that sent `data` cut at these places."""
    made = client()
    start = 0
    for cut in [*cuts, len(data)]:
        if data[start:cut]:
            made.send(data[start:cut])
        start = cut
    return made


@pytest.mark.parametrize("step", [1, 2, 3, 7, 1000])
def test_a_request_is_the_same_however_it_is_cut(client, step: int) -> None:
    made = read(client, CALL, *range(step, len(CALL), step))
    sink = made.sinks[0]
    exchange = sink.exchange
    assert (exchange.method, exchange.head.target) == ("POST", b"/fn/a/b/c%2Fd?x=1&y")
    assert exchange.headers == [(b"Host", b"lab"), (b"X-Two", b"1"), (b"x-two", b"2"), (b"Content-Length", b"5")]
    assert (sink.body, sink.complete, exchange.head.content_length) == (b"hello", True, 5)
    assert exchange.peer == "192.0.2.7"


def test_a_request_may_be_cut_in_two_anywhere(client) -> None:
    for cut in range(len(CALL)):
        made = read(client, CALL, cut)
        assert [(s.body, s.complete) for s in made.sinks] == [(b"hello", True)]


def test_a_chunked_body_may_be_cut_anywhere_and_its_trailers_are_no_headers(client) -> None:
    request = head(b"POST /fn/a/b HTTP/1.1", b"Transfer-Encoding: chunked")
    request += b"3;name=value\r\nabc\r\nA\r\n0123456789\r\n0\r\nAuthorization: Bearer smv_x\r\n\r\n"
    for cut in range(len(request)):
        made = read(client, request, cut)
        (sink,) = made.sinks
        assert (sink.body, sink.complete, sink.exchange.head.content_length) == (b"abc0123456789", True, None)
        assert [n for n, _ in sink.exchange.headers] == [b"Host", b"Transfer-Encoding"]


def test_pieces_that_arrive_together_are_passed_on_together(client) -> None:
    made = client()
    made.send(head(b"POST /fn/a/b HTTP/1.1", b"Transfer-Encoding: chunked"))
    pieces = []
    made.sinks[0].on_body = pieces.append
    made.send(b"1\r\na\r\n" * 1000)
    assert pieces == [b"a" * 1000]


def test_line_ends_before_a_request_are_read_over(client) -> None:
    assert read(client, b"\r\n\r\n" + CALL, 1, 2, 3).first.head.target == b"/fn/a/b/c%2Fd?x=1&y"


def test_an_absolute_target_names_the_host(client) -> None:
    for scheme in (b"http", b"HTTPS"):
        exchange = read(client, head(b"GET " + scheme + b"://u@other:8/fn/a/b?q HTTP/1.1")).first
        assert exchange.head.target == b"/fn/a/b?q"
        assert exchange.headers == [(b"Host", b"other:8")]


@pytest.mark.parametrize(
    ("line", "headers", "http10", "close"),
    [
        (b"GET /fn/a/b HTTP/1.1", [], False, False),
        (b"GET /fn/a/b HTTP/1.1", [b"Connection: close"], False, True),
        (b"GET /fn/a/b HTTP/1.0", [], True, True),
        (b"GET /fn/a/b HTTP/1.0", [b"Connection: keep-alive"], True, False),
    ],
)
def test_who_keeps_a_connection_is_the_clients_to_say(client, line: bytes, headers, http10: bool, close: bool) -> None:
    made = client(lambda sink: sink.exchange.respond(200, b"", b"ok"))
    answer = made.send(head(line, *headers))
    assert made.first.http10 == http10
    assert made.transport.closed == close
    assert (b"connection: close" in answer) == close
    assert (b"connection: keep-alive" in answer) == (http10 and not close)


def test_http10_needs_no_host(client) -> None:
    assert read(client, b"GET /fn/a/b HTTP/1.0\r\n\r\n").sinks


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"rubbish\r\n\r\n", 400),
        (b"x" * 100, 400),
        (b"FOO /fn/a/b HTTP/1.1\r\n\r\n", 400),
        (b"GET /fn/a/b HTTP/1.1\r\n\r\n", 400),  # no Host
        (head(b"GET /fn/a/b HTTP/1.1", b"Host: two"), 400),
        (head(b"GET /fn/a/b HTTP/2.0"), 505),
        (b"GET /fn/a/b\r\n" + HOST + b"\r\n", 505),
        (b"GET /fn/a/b HTTP/1.1\nHost: lab\n\n", 400),
        (head(b"CONNECT /fn/a/b HTTP/1.1"), 501),
        (head(b"GET /fn/a/b\x01 HTTP/1.1"), 400),
        (head(b"GET /fn/a/b HTTP/1.1", b"X : 1"), 400),
        (head(b"GET /fn/a/b HTTP/1.1", b": 1"), 400),
        (head(b"GET /fn/a/b HTTP/1.1", b"X: 1\r\n 2"), 400),  # obs-fold
        (head(b"GET /fn/a/b HTTP/1.1", b"X: \0"), 400),
        (head(b"POST /fn/a/b HTTP/1.1", b"Content-Length: 3", b"Content-Length: 3") + b"abc", 400),
        (head(b"POST /fn/a/b HTTP/1.1", b"Content-Length: 3, 3") + b"abc", 400),
        (head(b"POST /fn/a/b HTTP/1.1", b"Content-Length: +3") + b"abc", 400),
        (head(b"POST /fn/a/b HTTP/1.1", b"Content-Length: -3") + b"abc", 400),
        (head(b"POST /fn/a/b HTTP/1.1", b"Content-Length: 99999999999999999999999") + b"abc", 400),
        (head(b"POST /fn/a/b HTTP/1.1", b"Content-Length: 3", b"Transfer-Encoding: chunked") + b"0\r\n\r\n", 400),
        (head(b"POST /fn/a/b HTTP/1.1", b"Transfer-Encoding: chunked", b"Content-Length: 3") + b"0\r\n\r\n", 400),
        (head(b"POST /fn/a/b HTTP/1.1", b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"), 400),
        (head(b"POST /fn/a/b HTTP/1.1", b"Transfer-Encoding: identity"), 501),
        (head(b"POST /fn/a/b HTTP/1.1", b"Transfer-Encoding: xchunked"), 501),
        (head(b"POST /fn/a/b HTTP/1.1", b"Transfer-Encoding: gzip, chunked"), 501),
        (head(b"POST /fn/a/b HTTP/1.0", b"Transfer-Encoding: chunked"), 400),
        (head(b"GET /fn/a/b HTTP/1.1", b"X: " + b"y" * 70_000), 431),
        (head(b"GET /fn/a/" + b"y" * 70_000 + b" HTTP/1.1"), 431),
        (head(b"GET /fn/a/b HTTP/1.1", *[b"X: y"] * 257), 431),
        (b"GET /" + b"y" * 70_000, 431),
        (head(b"GET /fn/a/b HTTP/1.1")[:-2] + b"X: " + b"y" * 70_000, 431),
    ],
)
@pytest.mark.parametrize("step", [None, 1000])
def test_bad_heads_are_refused_and_the_connection_ends(client, request_bytes: bytes, status: int, step) -> None:
    made = read(client, request_bytes, *(range(step, len(request_bytes), step) if step else ()))
    # What is identified as chunked wrongly is seen after the head: the parser says so then.
    assert not any(sink.complete for sink in made.sinks)
    assert made.status == status
    assert b"connection: close" in made.transport.written
    assert made.transport.ended or made.transport.closed
    before = made.transport.written
    made.send(CALL)
    assert made.transport.written == before, "what follows a refused head is not read"


@pytest.mark.parametrize(
    "rest",
    [
        b"zz\r\n\r\n",
        b"ffffffffffffffffff\r\n",
        b"-1\r\n",
        b"1\nA\n0\n\n",
        b"1\r\nAB\r\n",
        b"1\r\nA\r\n0\r\nX : 1\r\n\r\n",
    ],
)
@pytest.mark.parametrize("together", [True, False])
def test_an_unreadable_body_ends_the_call_with_400(client, rest: bytes, together: bool) -> None:
    top = head(b"POST /fn/a/b HTTP/1.1", b"Transfer-Encoding: chunked")
    made = read(client, top + rest, *(() if together else [len(top)]))
    assert made.status == 400
    assert made.transport.ended
    assert not any(sink.complete for sink in made.sinks)
    if not together:
        assert made.sinks[0].broken


@pytest.mark.parametrize(
    "endless", [b"5;name=" + b"x" * 70_000, b"0\r\nX: " + b"x" * 70_000, b"0\r\n" + b"X: y\r\n" * 14_000]
)
def test_what_stands_between_the_pieces_of_a_body_is_bounded(client, endless: bytes) -> None:
    made = client()
    made.send(head(b"POST /fn/a/b HTTP/1.1", b"Transfer-Encoding: chunked"))
    for start in range(0, len(endless), 1000):
        made.send(endless[start : start + 1000])
    assert made.sinks[0].broken


def test_a_long_body_in_small_pieces_is_no_fault(client) -> None:
    made = client()
    made.send(head(b"POST /fn/a/b HTTP/1.1", b"Transfer-Encoding: chunked"))
    for _ in range(2000):
        made.send(b"1;" + b"e" * 100 + b"\r\n", b"a\r\n")
    made.send(b"0\r\n\r\n")
    assert made.sinks[0].body == b"a" * 2000
    assert made.sinks[0].complete


def test_an_upgrade_is_an_offer_that_is_not_taken_up(client) -> None:
    upgrade = (b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: x")
    for request in (
        head(b"GET /fn/a/b HTTP/1.1", *upgrade) + b"\0\1\2 frames",
        head(b"POST /fn/a/b HTTP/1.1", *upgrade, b"Content-Length: 3") + b"abc" + CALL,
    ):
        made = client(lambda sink: sink.exchange.respond(200, b"", b"ok"))
        assert made.send(request).startswith(b"HTTP/1.1 200 OK\r\n")
        assert made.sinks[0].complete
        assert len(made.sinks) == 1
        assert b"connection: close" in made.transport.written


async def test_pipelined_requests_are_answered_one_by_one_in_order(client) -> None:
    made = client()
    made.send(CALL + CALL.replace(b"hello", b"world") + CALL[:30], CALL[30:])
    assert [s.body for s in made.sinks] == [b"hello"]
    assert made.transport.paused, "no more is read than what waits"
    for number, body in enumerate([b"hello", b"world", b"hello"]):
        assert made.sinks[number].body == body
        made.sinks[number].exchange.respond(200, b"", b"%d" % number)
        await asyncio.sleep(0)
    assert [part[-1:] for part in made.transport.written.split(b"HTTP/1.1 200 OK")[1:]] == [b"0", b"1", b"2"]
    assert not made.transport.paused
    assert not made.transport.closed


async def test_more_pipelined_requests_than_are_held_are_left_to_another_connection(client) -> None:
    made = client(pipelined_max=3)
    made.send(CALL * 10)
    for number in range(4):
        made.sinks[number].exchange.respond(200, b"", b"")
        await asyncio.sleep(0)
    assert len(made.sinks) == 4
    assert made.transport.written.count(b"HTTP/1.1 200 OK") == 4
    assert made.transport.written.count(b"connection: close") == 1
    assert made.transport.ended


async def test_requests_before_a_bad_one_are_answered_first(client) -> None:
    for bad in (b"rubbish\r\n\r\n", head(b"POST /fn/a/b HTTP/1.1", b"Transfer-Encoding: chunked") + b"zz\r\n"):
        made = client()
        made.send(CALL + CALL + bad)
        for number in range(2):
            assert b"400" not in made.transport.written
            made.sinks[number].exchange.respond(200, b"", b"ok")
            await asyncio.sleep(0)
        answers, refusal = made.transport.written.split(b"HTTP/1.1 400 Bad Request\r\n")
        assert answers.count(b"HTTP/1.1 200 OK") == 2
        assert b"connection: close" in refusal
        assert made.transport.ended


def test_bytes_after_the_last_request_do_not_hurt_its_answer(client) -> None:
    for rest in (b"\r\n", CALL, b"rubbish"):
        for split in (True, False):
            made = client()
            request = head(b"GET /fn/a/b HTTP/1.1", b"Connection: close")
            made.send(*([request, rest] if split else [request + rest]))
            made.sinks[0].exchange.respond(200, b"", b"ok")
            assert made.transport.written.endswith(b"connection: close\r\n\r\nok")
            assert len(made.sinks) == 1


async def test_a_request_for_the_api_behind_a_functions_is_left_to_another_connection(client) -> None:
    made = client()
    made.send(CALL + head(b"GET /healthz HTTP/1.1"))
    made.sinks[0].exchange.respond(200, b"", b"ok")
    await asyncio.sleep(0)
    assert made.transport.written.count(b"HTTP/1.1 ") == 1
    assert made.transport.ended


def test_a_request_for_the_api_is_handed_over_with_its_connection(client) -> None:
    request = head(b"POST /api/v1/tokens HTTP/1.1", b"Content-Length: 3") + b"abc"
    for cut in range(len(request)):
        made = read(client, request, cut)
        assert made.apis[0].received == request
        assert made.apis[0].transport is made.transport
        assert not made.sinks
    made.connection.connection_lost(None)
    assert made.apis[0].lost
    assert not made.front.connections


def test_a_head_for_the_api_waits_until_it_is_whole(client) -> None:
    made = client(head_timeout_s=10.0)
    made.send(b"GET /healthz HTTP/1.1\r\n", b"Host: lab\r\n")
    assert not made.apis
    made.now += 11
    made.front.sweep()
    assert made.status == 408


# -- heads that come again -----------------------------------------------------------------------------------


def seen(made) -> list[object]:
    """What the activator was given, and what came back."""
    heads = [sink.exchange.head for sink in made.sinks]
    requests = [(h.method, h.target, h.headers, h.content_length, h.http10) for h in heads]
    bodies = [(sink.body, sink.complete, sink.exchange.close_after) for sink in made.sinks]
    return [requests, bodies, made.transport.written, made.transport.closed, made.transport.ended]


def ok(sink) -> None:
    if sink.complete:
        sink.exchange.respond(200, b"", b"ok")


def test_a_head_that_comes_again_is_read_once_and_its_body_is_its_own(client) -> None:
    made = client(ok)
    for body in (b"hello", b"world", b"12345"):
        made.send(CALL[:-5] + body)
    assert [sink.body for sink in made.sinks] == [b"hello", b"world", b"12345"]
    assert made.sinks[1].exchange.head is made.sinks[0].exchange.head
    assert made.sinks[1].exchange is not made.sinks[0].exchange
    made.send(CALL[:-5] + b"he", b"llo", CALL)
    assert [sink.body for sink in made.sinks[3:]] == [b"hello", b"hello"]
    made.send(CALL.replace(b"c%2Fd", b"other"))
    assert made.sinks[-1].exchange.head.target == b"/fn/a/b/other?x=1&y"
    assert made.transport.written.count(b"HTTP/1.1 200 OK") == 6


@pytest.mark.parametrize(
    "pieces",
    [
        # Line ends around a request must never be taken for a part of its head: its body would shift.
        [CALL[:-5] + b"\r\nabc" + b"\r\n", CALL[:-5] + b"\r\nabc" + b"\r\n", CALL[:-5] + b"\r\nhello"],
        [b"\r\n" + CALL, b"\r\n" + CALL, CALL],
        [b"\r\n\r\n" + CALL, CALL, b"\r\n\r\n" + CALL],
        [CALL + b"\r\n", CALL + CALL, CALL],
        [CALL, CALL + b"GET", b" /fn/a/b HTTP/1.1\r\nHost: x\r\n\r\n"],
        [CALL, CALL[:-5], b"hello", CALL[:-1], b"o"],
        [head(b"GET /fn/a/b HTTP/1.1")] * 2 + [head(b"GET /fn/a/b HTTP/1.1") + CALL],
        [head(b"GET /fn/a/b HTTP/1.1", b"Connection: close")] * 2,
        [head(b"GET /fn/a/b HTTP/1.1", b"Connection: upgrade", b"Upgrade: x")] * 2,
        [b"GET /fn/a/b HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"] * 3,
        [head(b"POST /fn/a/b HTTP/1.1", b"Transfer-Encoding: chunked") + b"3\r\nabc\r\n0\r\n\r\n"] * 3,
        [head(b"POST /fn/a/b HTTP/1.1", b"Content-Length: 5", b"Expect: 100-continue") + b"hello"] * 2,
        [head(b"POST /fn/a/b HTTP/1.1", b"Content-Length: 0")] * 3,
        [head(b"GET /fn/a/b HTTP/1.1", b"X: " + b"y" * 3000)] * 3,
        [CALL, b"rubbish\r\n\r\n", CALL],
    ],
)
def test_a_remembered_head_changes_nothing_but_the_time(client, pieces: list[bytes]) -> None:
    assert seen(_sent(client, pieces, 2048)) == seen(_sent(client, pieces, 0))


def _sent(client, pieces: list[bytes], remembered: int):
    made = client(ok, remembered_head_bytes_max=remembered)

    async def run() -> None:
        for piece in pieces:
            if not made.transport.closed:
                made.connection.data_received(piece)
            for _ in range(20):
                await asyncio.sleep(0)

    asyncio.run(run())
    return made


def test_at_a_shutdown_a_remembered_head_ends_its_connection_too(client) -> None:
    made = client(ok)
    made.send(CALL)
    made.front.draining = True
    made.send(CALL)
    assert made.transport.written.count(b"connection: close") == 1
    assert made.transport.closed


# -- anything at all -----------------------------------------------------------------------------------------


@given(data=st.lists(st.binary(max_size=200), max_size=6))
@settings(max_examples=200, deadline=None)
def test_arbitrary_bytes_are_answered_or_cut_and_never_raise(client, data: list[bytes]) -> None:
    _fuzz(client, data)


PARTS = st.sampled_from(
    [
        CALL,
        head(b"GET /fn/a/b HTTP/1.1"),
        head(b"GET /healthz HTTP/1.1"),
        head(b"GET /fn/a/b HTTP/1.1", b"Connection: close"),
        head(b"GET /fn/a/b HTTP/1.1", b"Connection: upgrade", b"Upgrade: x"),
        head(b"POST /fn/a/b HTTP/1.1", b"Transfer-Encoding: chunked"),
        head(b"POST /fn/a/b HTTP/1.1", b"Content-Length: 30", b"Expect: 100-continue"),
        b"GET /fn/a/b HTTP/1.1\r\n",
        b"Host: x\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Content-Length: 3\r\n",
        b"Transfer-Encoding: gzip\r\n",
        b"\r\n",
        b"\n",
        b"0\r\n\r\n",
        b"3\r\nabc\r\n",
        b"ffffffffff\r\n",
        b"GET",
        b" ",
        b"/fn/",
        b"\0\xff",
    ]
)


@given(data=st.lists(PARTS, max_size=12), cuts=st.lists(st.integers(1, 40), min_size=1, max_size=5))
@settings(max_examples=300, deadline=None)
def test_arbitrary_parts_of_requests_are_answered_or_cut_and_never_raise(
    client, data: list[bytes], cuts: list[int]
) -> None:
    whole = b"".join(data)
    pieces, start = [], 0
    while start < len(whole):
        size = cuts[len(pieces) % len(cuts)] * 5
        pieces.append(whole[start : start + size])
        start += size
    _fuzz(client, pieces)


@given(data=st.lists(st.lists(PARTS, min_size=1, max_size=3).map(b"".join), max_size=8))
@settings(max_examples=200, deadline=None)
def test_arbitrary_parts_mean_the_same_with_heads_remembered_and_without(client, data: list[bytes]) -> None:
    with_memory, without = (_sent(client, data, size) for size in (2048, 0))
    for made in (with_memory, without):
        made.transport.written = made.transport.written.partition(b"date:")[0]  # a refusal's second may differ
    assert seen(with_memory) == seen(without)


def _fuzz(client, pieces: list[bytes]) -> None:
    async def run() -> None:
        made = client(lambda sink: sink.exchange.respond(200, b"", b"ok") if sink.complete else None)
        for piece in pieces:
            if not made.transport.closed:
                made.connection.data_received(piece)
            await asyncio.sleep(0)
        for _ in range(80):
            await asyncio.sleep(0)  # those that wait in a row are begun one by one
        for _ in range(3):
            made.now += 1000
            made.front.sweep()
        if not made.transport.closed and not made.apis:
            waiting = [sink for sink in made.sinks if not sink.exchange.done]
            assert len(waiting) == 1, "only a call under way keeps a connection open"
            assert not waiting[0].complete
        made.connection.connection_lost(None)
        assert all(sink.exchange.done for sink in made.sinks)
        assert not made.front.connections

    asyncio.run(run())
