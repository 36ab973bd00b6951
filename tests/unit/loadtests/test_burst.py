from __future__ import annotations

import asyncio
from typing import Any

from loadtests.bench.burst import Burst, Reply, run_burst
from loadtests.bench.requests import Address


class Gate(asyncio.Protocol):
    """Answers nobody until as many requests as it waits for have come; then each its own way."""

    waiting: list[tuple[Gate, bytes]]
    wanted: int

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def data_received(self, data: bytes) -> None:
        Gate.waiting.append((self, data))
        if len(Gate.waiting) == Gate.wanted:
            for gate, request in Gate.waiting:
                gate.answer(request)

    def answer(self, request: bytes) -> None:
        if request == b"hang up":
            self.transport.close()
        elif request != b"silence":
            head = b"HTTP/1.1 201 Created\r\nX-Samovar-Start: warm\r\nContent-Length: %d\r\n\r\n" % len(request)
            self.transport.write(head + request)


async def burst(*requests: bytes, timeout_s: float = 10.0) -> list[Reply]:
    Gate.waiting, Gate.wanted = [], len(requests)
    server = await asyncio.get_running_loop().create_server(Gate, "127.0.0.1", 0)
    try:
        return await run_burst(Burst(Address(*server.sockets[0].getsockname()), requests, timeout_s))
    finally:
        server.close()


async def test_all_calls_are_under_way_at_the_same_time_and_each_gets_its_own_answer() -> None:
    replies = await burst(*(b"call %d" % n for n in range(20)))
    assert [reply.body for reply in replies] == [b"call %d" % n for n in range(20)]
    assert {reply.status for reply in replies} == {201}
    assert {reply.headers["x-samovar-start"] for reply in replies} == {"warm"}
    assert all(reply.nanoseconds > 0 for reply in replies)


async def test_a_lost_connection_and_silence_are_told_and_the_others_answered() -> None:
    good, lost, silent = await burst(b"good", b"hang up", b"silence", timeout_s=0.2)
    assert good.status == 201
    assert (lost.status, silent.status) == (0, 0)
    assert "closed by the server" in lost.error
    assert "no answer" in silent.error
