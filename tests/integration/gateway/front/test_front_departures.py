"""Who leaves when: clients while waiting, running and streaming, workers before and after the head. No slot is lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.catalog import Timeouts
from runtime import messages as wire

GET = b"GET /fn/lab/f HTTP/1.1\r\nHost: lab\r\n\r\n"
UPLOAD = b"POST /fn/lab/f HTTP/1.1\r\nHost: lab\r\nContent-Length: 5000000\r\n\r\n"


async def until_cancelled(worker: Any, request: Any) -> None:
    """A handler that notices when its caller is gone."""
    while True:
        message = await worker.inboxes[request.call].get()
        if isinstance(message, wire.Cancel):
            worker.say(wire.Failed(request.call, "cancelled", "Cancelled", "", "", [1, 2, 3]))
            return


@pytest.mark.parametrize("how", ["leave", "reset"])
async def test_a_client_that_leaves_while_waiting_leaves_the_queue(house: Any, patiently: Any, how: str) -> None:
    house.pool.room = 0
    client = await house.client()
    await client.send(GET)
    await patiently(lambda: house.pool.waiting, "the call waits")
    getattr(client, how)()
    await patiently(lambda: house.records, "its record")
    assert not house.pool.waiting
    assert (house.records[0].status, house.records[0].client_gone) == (499, True)
    assert not house.worker.requests


@pytest.mark.parametrize("how", ["leave", "reset"])
@pytest.mark.parametrize("request_bytes", [GET, UPLOAD + b"x" * 100_000])
async def test_a_client_that_leaves_a_running_call_has_it_cancelled(
    house: Any, patiently: Any, how: str, request_bytes: bytes
) -> None:
    house.worker.serve = until_cancelled
    client = await house.client()
    await client.send(request_bytes)
    await patiently(lambda: house.worker.requests, "the call runs")
    getattr(client, how)()
    await patiently(lambda: house.records, "its record")
    assert house.worker.cancelled == [(1, "client_gone")]
    assert (house.records[0].status, house.records[0].client_gone) == (499, True)
    assert not house.pool.running


async def test_a_client_that_leaves_a_stream_has_it_cancelled(house: Any, patiently: Any) -> None:
    async def serve(worker: Any, request: Any) -> None:
        await worker.stream(request, 1_000_000_000)

    house.worker.serve = serve
    client = await house.client()
    await client.send(GET)
    await client.reader.readexactly(100_000)
    client.reset()
    await patiently(lambda: house.records, "its record")
    assert house.records[0].client_gone
    assert not house.pool.running


async def test_a_client_that_never_reads_holds_no_more_than_a_window(house: Any, patiently: Any) -> None:
    async def serve(worker: Any, request: Any) -> None:
        await worker.stream(request, 1_000_000_000)

    house.worker.serve = serve
    house.timeouts = Timeouts(total_s=1.0)
    client = await house.client()
    client.writer.transport.pause_reading()
    await client.send(GET)
    await patiently(lambda: house.records, "its record")
    assert house.records[0].status == 504
    assert house.records[0].bytes_out < 50_000_000, "what the sockets hold, and a window"
    await patiently(lambda: not house.pool.running, "the slot is free")
    assert not house.pool.replaced
    client.reset()


@pytest.mark.parametrize("after_head", [True, False])
async def test_a_worker_that_dies(house: Any, patiently: Any, after_head: bool) -> None:
    async def serve(worker: Any, request: Any) -> None:
        if after_head:
            worker.answer(request, b"first", last=False)
            await worker._writer.drain()
            await asyncio.sleep(0)
        worker.die()

    house.worker.serve = serve
    client = await house.client()
    await client.send(GET)
    if after_head:
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError, ValueError)):
            await client.answer()
    else:
        status, headers, body = await client.answer()
        assert status == 502
        assert dict(headers)[b"x-samovar-fault"] == b"function"
        assert b"signal 9" in body
    await patiently(lambda: house.records, "its record")
    assert [r.status for r in house.records] == [502]
    client.leave()


@pytest.mark.parametrize(
    ("timeouts", "head", "words"),
    [
        ({"total_s": 0.05}, False, b"total timeout of 0.05 s"),
        ({"first_byte_s": 0.05}, False, b"first-byte timeout of 0.05 s"),
        ({"idle_s": 0.05}, True, b""),
        ({"total_s": 0.05}, True, b""),
    ],
)
async def test_limits_in_time_end_the_call_and_free_its_slot(
    house: Any, patiently: Any, timeouts: dict[str, float], head: bool, words: bytes
) -> None:
    async def serve(worker: Any, request: Any) -> None:
        if head:
            worker.answer(request, b"first", last=False)
        await until_cancelled(worker, request)

    house.worker.serve = serve
    house.timeouts = Timeouts(**timeouts)
    client = await house.client()
    await client.send(GET)
    if head:
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError, ValueError)):
            await client.answer()
    else:
        status, _, body = await client.answer()
        assert status == 504
        assert words in body
    await patiently(lambda: not house.pool.running, "the slot is free")
    assert house.worker.cancelled == [(1, "timeout")]
    assert [r.status for r in house.records] == [504]
    client.leave()


async def test_a_storm_of_clients_that_leave_at_any_time_leaks_nothing(house: Any, patiently: Any) -> None:
    async def serve(worker: Any, request: Any) -> None:
        for _ in range(request.call % 5):
            await asyncio.sleep(0.001)
        if request.call % 2:
            await worker.stream(request, 50_000 * (request.call % 7))
        else:
            worker.answer(request, b"ok")

    house.worker.serve = serve
    house.pool.room = 4

    async def one(n: int) -> None:
        client = await house.client()
        await client.send(GET * (1 + n % 3))
        for _ in range(n % 6):
            await asyncio.sleep(0.001)
        (client.reset if n % 2 else client.leave)()

    await asyncio.gather(*(one(n) for n in range(150)))
    await patiently(lambda: not house.activator.running(), "every call is over")
    await patiently(lambda: not house.pool.running and not house.pool.waiting, "every slot is free")
    assert len({r.invocation for r in house.records}) == len(house.records)
    house.worker.serve = _now
    client = await house.client()
    await client.send(GET)
    assert (await client.answer())[0] == 200
    client.leave()


async def _now(worker: Any, request: Any) -> None:
    worker.answer(request, b"ok")
