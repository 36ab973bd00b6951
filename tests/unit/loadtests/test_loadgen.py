from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from loadtests.bench import loadgen
from loadtests.bench.loadgen import Load, LoadResult, run_load
from loadtests.bench.requests import Address, Target, post, post_json

VALUE = {"a": [1, 2]}
BODY = b'{"a": [1, 2]}'


def whole(body: bytes, status: bytes = b"200 OK", more: bytes = b"") -> bytes:
    """An answer in one piece."""
    return b"HTTP/1.1 %b\r\nContent-Length: %d\r\n%b\r\n%b" % (status, len(body), more, body)


class StandIn(asyncio.Protocol):
    """A server that gives its requests, counted over all connections, the answers that a test wants.

    An answer is a list of pieces, written in separate turns of the loop; None hangs up.
    """

    served = 0

    def __init__(self, answers: Any) -> None:
        self.answers = answers
        self.received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, blank, body = self.received.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
        if not blank or len(body) < length:
            return
        self.received = body[length:]
        number, StandIn.served = StandIn.served, StandIn.served + 1
        self.write(self.answers(number))

    def write(self, pieces: list[bytes] | None) -> None:
        if pieces is None:
            self.transport.close()
        elif pieces:
            self.transport.write(pieces[0])
            asyncio.get_running_loop().call_later(0.001, self.write, pieces[1:])


async def measured(answers: Any, **more: Any) -> LoadResult:
    """A short load on a stand-in."""
    StandIn.served = 0
    server = await asyncio.get_running_loop().create_server(lambda: StandIn(answers), "127.0.0.1", 0)
    try:
        address = Address(*server.sockets[0].getsockname())
        request = post_json(Target(address, "/"), VALUE)
        settings: dict[str, Any] = {"connections": 2, "seconds": 0.05, "warmup_s": 0.01, "expected_json": VALUE, **more}
        return await run_load(Load(address, settings.pop("request", request), **settings))
    finally:
        server.close()


async def test_right_answers_are_counted_and_timed() -> None:
    result = await measured(lambda n: [whole(BODY)])
    assert result.calls > 0
    assert result.errors == 0
    assert result.latencies is not None
    assert result.latencies.count == result.calls
    assert 0 < result.latencies.median_us <= result.latencies.max_us


@pytest.mark.parametrize(
    "pieces",
    [
        [whole(BODY)[:20], whole(BODY)[20:]],
        [whole(BODY)[:-3], whole(BODY)[-3:]],
        [
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"6\r\n" + BODY[:6] + b"\r\n7\r\n",
            BODY[6:] + b"\r\n0\r\n\r\n",
        ],
    ],
    ids=["head split", "body split", "chunked"],
)
async def test_answers_in_pieces_are_as_good(pieces: list[bytes]) -> None:
    result = await measured(lambda n: pieces)
    assert (result.calls > 0, result.errors) == (True, 0)


async def test_an_answer_whose_head_differs_each_time_is_right() -> None:
    result = await measured(lambda n: [whole(BODY, more=b"X-Call: %d\r\n" % n)])
    assert (result.calls > 0, result.errors) == (True, 0)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ([whole(b'{"a": [1, 3]}')], "not the body"),
        ([whole(BODY, b"500 Internal Server Error")], "status 500"),
        ([whole(BODY, b"204 No Content")], "status 204"),
        ([b"nonsense\r\n\r\n"], "unreadable"),
        (None, "connection lost"),
    ],
)
async def test_a_wrong_answer_after_right_ones_is_counted_once_and_not_tried_again(answer: Any, said: str) -> None:
    result = await measured(lambda n: answer if n == 5 else [whole(BODY)], connections=1)
    assert result.errors == 1
    assert said in result.error_samples[0]
    assert StandIn.served == 6


async def test_a_server_that_does_not_keep_connections_is_an_error() -> None:
    result = await measured(lambda n: [whole(BODY, more=b"Connection: close\r\n")], connections=1)
    assert (result.calls, result.errors) == (0, 1)
    assert "closes" in result.error_samples[0]


async def test_where_the_caller_may_it_dials_again() -> None:
    def closing(n: int) -> list[bytes]:
        return [whole(BODY, more=b"Connection: close\r\n")]

    result = await measured(closing, connections=2, redial=True, seconds=0.2)
    assert result.errors == 0
    assert result.answered > 2


async def test_two_answers_to_one_request_leave_a_later_one_unanswered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loadgen, "GRACE_S", 0.02)
    result = await measured(lambda n: [whole(BODY), whole(BODY)] if n == 0 else [], connections=1, seconds=0.02)
    assert result.errors == 1


async def test_an_answer_that_never_comes_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loadgen, "GRACE_S", 0.02)
    result = await measured(lambda n: [])
    assert result.errors == 2
    assert result.latencies is None
    assert "no answer" in result.error_samples[0]


async def test_large_bodies_are_compared_byte_for_byte() -> None:
    body = bytes(range(256)) * 1024
    result = await measured(
        lambda n: [whole(body if n < 3 else body[:-1] + b"?")],
        connections=1,
        request=post(Target(Address("x", 1), "/"), body),
        expected_bytes=body,
        expected_json=None,
        seconds=0.5,
    )
    assert result.errors == 1
    assert StandIn.served == 4


async def test_nobody_there_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = Address(*listener.getsockname())
    with pytest.raises(OSError):
        await run_load(Load(address, b"", 1, 0.01, expected_json=VALUE))
