"""HTTP on a real socket, through front, activator and link to a worker and back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from runtime import messages as wire


def head(line: bytes, *headers: bytes) -> bytes:
    return b"\r\n".join([line, b"Host: lab", *headers]) + b"\r\n\r\n"


GET = head(b"GET /fn/lab/f/a%2Fb?x=1&x=%FF HTTP/1.1")


async def test_calls_and_the_api_share_a_port_and_a_connection_goes_from_one_to_the_other(house: Any) -> None:
    client = await house.client()
    for _ in range(3):
        await client.send(GET)
        status, headers, _ = await client.answer()
        assert (status, dict(headers)[b"x-target"]) == (200, b"/a%2Fb?x=1&x=%FF")
    await client.send(head(b"POST /api/v1/x?y HTTP/1.1", b"Content-Length: 3", b"Expect: 100-continue"))
    assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    await client.send(b"abc")
    assert (await client.answer())[2] == b"POST /api/v1/x?y 3"
    assert await client.rest() == b"", "the API's answer ends the connection"
    client = await house.client()
    await client.send(GET)
    assert (await client.answer())[0] == 200
    client.leave()


@pytest.mark.parametrize("size", [0, 1, 65_536, 262_144, 262_145, 1_048_576, 5_000_000])
@pytest.mark.parametrize("chunked", [True, False])
async def test_bodies_of_any_size_go_there_and_back(house: Any, size: int, chunked: bool) -> None:
    pattern = bytes(range(256)) * (size // 256 + 1)
    body = pattern[:size]

    async def large(worker: Any, request: Any) -> None:
        got = await worker.body(request)
        assert got == body
        await worker.stream(request, size)

    house.worker.serve = large
    client = await house.client()
    if chunked:
        data = b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in (body[i : i + 70_000] for i in range(0, size, 70_000)))
        request = head(b"POST /fn/lab/f HTTP/1.1", b"Transfer-Encoding: chunked") + data + b"0\r\n\r\n"
    else:
        request = head(b"POST /fn/lab/f HTTP/1.1", b"Content-Length: %d" % size) + body
    sending = asyncio.create_task(client.send(request))
    status, _, answer = await client.answer()
    await sending
    assert (status, len(answer)) == (200, size)
    client.leave()


async def test_a_client_that_expects_100_continue(house: Any) -> None:
    client = await house.client()
    await client.send(head(b"POST /fn/lab/f HTTP/1.1", b"Content-Length: 5", b"Expect: 100-continue"))
    assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    await client.send(b"hello")
    assert (await client.answer())[2] == b"hello"
    await client.send(head(b"POST /fn/lab/f HTTP/1.1", b"Content-Length: 99999999", b"Expect: 100-continue"))
    answer = await client.rest()
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"100 Continue" not in answer


@pytest.mark.parametrize("declared", [True, False])
async def test_a_body_over_the_limit_is_answered_413_while_the_client_still_sends(house: Any, declared: bool) -> None:
    client = await house.client()
    house.max_body_bytes = 100_000
    length = b"Content-Length: 50000000" if declared else b"Transfer-Encoding: chunked"
    await client.send(head(b"POST /fn/lab/f HTTP/1.1", length))
    piece = b"x" * 50_000 if declared else b"c350\r\n" + b"x" * 50_000 + b"\r\n"
    for _ in range(6):
        await client.send(piece)
    assert (await client.rest()).startswith(b"HTTP/1.1 413 "), "the answer is not lost to a reset"
    client.leave()


async def test_head_options_and_statuses_without_a_body_keep_the_connection(house: Any) -> None:
    async def serve(worker: Any, request: Any) -> None:
        status = int(request.target[1:] or 200)
        if request.method == "HEAD":
            await worker.stream(request, 100_000)
        else:
            worker.answer(request, b"" if status in {204, 304} else b"body", status)

    house.worker.serve = serve
    client = await house.client()
    for request, status, body in (
        (b"HEAD /fn/lab/f", 200, b""),
        (b"OPTIONS /fn/lab/f", 200, b"body"),
        (b"DELETE /fn/lab/f/204", 204, b""),
        (b"GET /fn/lab/f/304", 304, b""),
        (b"GET /fn/lab/f/299", 299, b"body"),
    ):
        await client.send(head(request + b" HTTP/1.1"))
        got, headers, answer = await client.answer()
        assert (got, answer) == (status, body)
        assert b"connection" not in dict(headers)
    client.leave()


async def test_pipelined_requests_are_answered_in_order_though_served_in_any(house: Any) -> None:
    client = await house.client()
    await client.send(
        b"".join(
            head(b"POST /fn/lab/f/%d HTTP/1.1" % n, b"Content-Length: %d" % (n * 1000)) + b"x" * (n * 1000)
            for n in range(20)
        )
    )
    for n in range(20):
        _, headers, body = await client.answer()
        assert dict(headers)[b"x-target"] == b"/%d" % n
        assert len(body) == n * 1000
    client.leave()


async def test_compressed_bodies_and_repeated_headers_are_untouched(house: Any) -> None:
    async def serve(worker: Any, request: Any) -> None:
        body = await worker.body(request)
        headers = [(b"Set-Cookie", b"a=1"), (b"Content-Encoding", b"gzip"), (b"Set-Cookie", b"b=2")]
        worker.answer(request, body, headers=headers)

    house.worker.serve = serve
    client = await house.client()
    body = b"\x1f\x8b\0\xff"
    await client.send(
        head(b"POST /fn/lab/f HTTP/1.1", b"Content-Encoding: gzip", b"Cookie: a", b"Cookie: b", b"Content-Length: 4")
        + body
    )
    _, headers, answer = await client.answer()
    assert answer == body
    assert [v for n, v in headers if n == b"set-cookie"] == [b"a=1", b"b=2"]
    (request,) = house.worker.requests.values()
    assert [v for n, v in request.headers if n == b"Cookie"] == [b"a", b"b"]
    assert [b"Content-Encoding", b"gzip"] in request.headers
    client.leave()


async def test_http10_with_and_without_keep_alive(house: Any) -> None:
    client = await house.client()
    await client.send(b"GET /fn/lab/f HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    assert (b"connection", b"keep-alive") in (await client.answer())[1]
    await client.send(b"GET /fn/lab/f HTTP/1.0\r\n\r\n")
    assert b"connection: close" in await client.rest()

    async def stream(worker: Any, request: Any) -> None:
        await worker.stream(request, 300_000)

    house.worker.serve = stream
    client = await house.client()
    await client.send(b"GET /fn/lab/f HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    answer = await client.rest()
    assert b"transfer-encoding" not in answer
    assert answer.endswith(b"\r\n\r\n" + b"z" * 300_000)


@pytest.mark.parametrize("size", [10, 70_000, 2_000_000])
async def test_a_half_closed_client_gets_its_answer(house: Any, size: int) -> None:
    async def serve(worker: Any, request: Any) -> None:
        await go_on.wait()
        await worker.stream(request, size)

    go_on = asyncio.Event()
    house.worker.serve = serve
    client = await house.client()
    await client.send(GET)
    client.writer.write_eof()
    assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    asyncio.get_running_loop().call_later(0.2, go_on.set)
    answer = await client.rest()
    assert answer.count(b"z") == size
    assert answer.endswith(b"0\r\n\r\n")


@pytest.mark.parametrize(
    "pieces",
    [
        [wire.Response(1, 200, [[b"content-length", b"10"]], b"12345", False, []), wire.Body(1, b"", True, [1, 2, 3])],
        [wire.Response(1, 200, [[b"content-length", b"3"]], b"12", False, []), wire.Body(1, b"34", True, [1, 2, 3])],
        [wire.Response(1, 200, [], b"12", False, []), wire.Failed(1, "broken", "E", "m", "", [1, 2, 3])],
        [wire.Response(1, 200, [], b"12", False, []), wire.Response(1, 200, [], b"34", True, [1, 2, 3])],
    ],
)
async def test_an_answer_that_cannot_be_completed_is_visibly_cut(house: Any, pieces: list[Any], patiently: Any) -> None:
    async def serve(worker: Any, request: Any) -> None:
        for piece in pieces:
            worker.say(piece)

    house.worker.serve = serve
    client = await house.client()
    await client.send(GET)
    with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError, ValueError)):
        await client.answer()
    await patiently(lambda: house.records, "the record")
    assert house.records[0].status in {500, 502}


async def test_a_handler_cannot_split_the_answer(house: Any) -> None:
    async def serve(worker: Any, request: Any) -> None:
        worker.answer(request, b"", headers=[(b"x", b"a\r\nset-cookie: stolen=1")])

    house.worker.serve = serve
    client = await house.client()
    await client.send(GET)
    status, headers, _ = await client.answer()
    assert status == 502
    assert b"set-cookie" not in dict(headers)
    client.leave()


async def test_requests_cut_anywhere_mean_the_same(house: Any) -> None:
    request = head(b"POST /fn/lab/f/p HTTP/1.1", b"Transfer-Encoding: chunked") + b"3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n"
    client = await house.client()
    for cut in range(1, len(request)):
        await client.send(request[:cut])
        await asyncio.sleep(0)
        await client.send(request[cut:])
        status, _, body = await client.answer()
        assert (status, body) == (200, b"abcdefg")
    client.leave()
