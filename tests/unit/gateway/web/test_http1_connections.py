"""The life of a client's connection: back-pressure, closes that lose nothing, clients that leave, limits in time."""

from __future__ import annotations

import asyncio

HEAD = b"GET /fn/a/b HTTP/1.1\r\nHost: lab\r\n\r\n"
UPLOAD = b"POST /fn/a/b HTTP/1.1\r\nHost: lab\r\nContent-Length: 1000\r\n\r\n"
API = b"GET /healthz HTTP/1.1\r\nHost: lab\r\n\r\n"


def ok(sink) -> None:
    sink.exchange.respond(200, b"", b"ok")


def test_a_connection_serves_one_call_after_the_other(client) -> None:
    made = client(ok)
    for count in range(1, 4):
        assert made.send(HEAD).count(b"HTTP/1.1 200 OK") == count
    made.send(API)
    assert made.apis[0].received == API, "and the API when that is asked for"


def test_an_early_answer_ends_the_connection_without_losing_it(client) -> None:
    made = client(ok, linger_s=2.0, flush_timeout_s=30.0)
    assert b"connection: close" in made.send(UPLOAD)
    assert made.transport.ended
    assert not made.transport.closed, "a close would reset the connection under the answer"
    made.send(b"x" * 1000, HEAD)
    assert made.transport.written.count(b"200 OK") == 1
    made.now += 3
    made.front.sweep()
    assert made.transport.closed
    assert not made.transport.aborted
    made.now += 31
    made.front.sweep()
    assert made.transport.aborted, "a client that never reads is not kept"


def test_a_client_that_ends_its_sending_after_an_early_answer_ends_the_connection(client) -> None:
    made = client(ok)
    made.send(UPLOAD)
    assert not made.connection.eof_received()


def test_whoever_takes_a_body_can_hold_the_client(client) -> None:
    made = client()
    made.send(UPLOAD)
    made.first.hold_body(True)
    assert made.transport.paused
    made.first.hold_body(False)
    assert not made.transport.paused


def test_a_hold_ends_with_the_exchange(client) -> None:
    made = client()
    made.send(UPLOAD + b"x" * 1000)
    made.first.hold_body(True)
    ok(made.sinks[0])
    assert not made.transport.paused


async def test_nothing_more_is_read_from_a_client_that_does_not_read_its_answers(client) -> None:
    made = client(ok)
    made.connection.pause_writing()
    made.send(HEAD + HEAD + HEAD)
    assert not made.sinks
    assert made.transport.paused
    made.connection.resume_writing()
    made.connection.pause_writing()
    await asyncio.sleep(0)
    assert len(made.sinks) == 1
    assert made.transport.paused
    made.connection.resume_writing()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(made.sinks) == 3
    assert not made.transport.paused


def test_a_full_buffer_is_told_to_whoever_writes_and_its_end_too(client) -> None:
    made = client()
    made.send(HEAD)
    made.first.start(200, b"")
    assert made.first.write(b"x")
    made.connection.pause_writing()
    assert not made.first.write(b"x")
    made.connection.resume_writing()
    assert made.sinks[0].drains == 1


def test_a_client_that_leaves_is_told_to_whoever_works_for_it(client) -> None:
    made = client()
    made.send(HEAD + HEAD)
    made.connection.connection_lost(ConnectionResetError())
    assert made.sinks[0].gone
    assert not made.front.connections
    ok(made.sinks[0])
    assert made.transport.written == b""


def test_a_client_that_leaves_in_the_middle_of_its_body_is_gone(client) -> None:
    made = client()
    made.send(UPLOAD + b"half")
    assert not made.connection.eof_received()


def test_an_http10_client_that_ends_its_sending_is_gone(client) -> None:
    made = client()
    made.send(b"GET /fn/a/b HTTP/1.0\r\n\r\n")
    assert not made.connection.eof_received()


async def test_a_client_that_ends_its_sending_gets_its_answers(client) -> None:
    made = client(probe_after_s=(0.0, 0.001, 0.002))
    made.send(HEAD + HEAD)
    assert made.connection.eof_received()
    assert made.transport.written == b"HTTP/1.1 100 Continue\r\n\r\n", "the only way to find out whether it is there"
    while made.transport.written.count(b"100 Continue") < 3:
        await asyncio.sleep(0.001)
    ok(made.sinks[0])
    await asyncio.sleep(0)
    assert not made.transport.closed
    ok(made.sinks[1])
    assert made.transport.written.count(b"200 OK") == 2
    assert made.transport.closed


def test_idle_connections_are_closed(client) -> None:
    made = client(ok, idle_timeout_s=75.0, head_timeout_s=30.0)
    made.send(HEAD)
    made.now += 74
    made.front.sweep()
    assert not made.transport.closed
    made.now += 2
    made.front.sweep()
    assert made.transport.closed
    assert made.transport.written.count(b"HTTP/1.1 ") == 1


def test_a_slow_head_is_answered_408(client) -> None:
    for before in (b"", HEAD):
        for start in (b"GET ", b"GET /fn/a/b HTTP/1.1\r\nHost: ", b"GET /healthz HTTP/1.1\r\n"):
            made = client(ok, idle_timeout_s=75.0, head_timeout_s=30.0)
            made.send(before + start)
            for _ in range(4):
                made.now += 10
                made.front.sweep()
                if not made.transport.ended:
                    made.send(b"x")
            assert b"HTTP/1.1 408 " in made.transport.written
            assert made.transport.ended


async def test_a_slow_head_behind_a_call_is_answered_408_after_it(client) -> None:
    made = client(head_timeout_s=30.0)
    made.send(HEAD + b"GET /fn/a")
    made.now += 1000
    made.front.sweep()
    assert made.transport.written == b""
    ok(made.sinks[0])
    made.now += 31
    made.front.sweep()
    assert b"HTTP/1.1 408 " in made.transport.written


def test_a_call_under_way_is_not_idle(client) -> None:
    made = client()
    made.send(HEAD)
    made.now += 100_000
    made.front.sweep()
    assert not made.transport.closed
    assert made.front.busy() == 1


def test_too_many_connections_are_refused(client) -> None:
    made = client(connections_max=1)
    second = made.front()
    transport = type(made.transport)()
    second.connection_made(transport)
    assert transport.aborted
    assert made.front.refused == 1
    second.connection_lost(None)
    assert len(made.front.connections) == 1
    made.connection.connection_lost(None)
    third = made.front()
    third.connection_made(type(made.transport)())
    assert made.front.refused == 1


def test_connections_of_the_api_count_too(client) -> None:
    made = client(connections_max=1)
    made.send(API)
    made.front().connection_made(type(made.transport)())
    assert made.front.refused == 1


def test_at_a_shutdown_idle_connections_end_and_busy_ones_after_their_answer(client) -> None:
    idle, busy, api = client(ok), client(), client()
    idle.send(HEAD)
    busy.send(HEAD)
    api.send(API)
    for made in (idle, busy, api):
        made.front.drain()
    assert idle.transport.closed
    assert not busy.transport.closed
    assert not api.transport.closed, "the API's own server ends those"
    ok(busy.sinks[0])
    assert b"connection: close" in busy.transport.written
    assert busy.transport.closed


def test_a_cut_answer_cuts_the_connection(client) -> None:
    made = client()
    made.send(HEAD + HEAD)
    made.first.start(200, b"")
    made.first.abort()
    assert made.transport.aborted
    made.connection.connection_lost(None)
    assert len(made.sinks) == 1


def test_a_fault_of_ours_in_the_middle_of_parsing_is_not_the_clients(client) -> None:
    made = client()
    made.send(UPLOAD)

    def broken() -> None:
        raise RuntimeError("a fault")

    made.sinks[0].on_body_end = broken
    try:
        made.send(b"x" * 1000)
    except Exception as error:
        assert "400" not in made.transport.written.decode()
        assert isinstance(error.__context__, RuntimeError)
    else:
        raise AssertionError("the loop is told, which closes the connection")
