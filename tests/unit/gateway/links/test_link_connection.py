"""Who may dial in, and what becomes of a connection that says something unexpected."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.links.listener import Desk, LinkConnection, LinkParams, listen_unix
from runtime import messages as wire
from runtime.codec import FrameError, encode


class Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.aborted = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def write(self, data: Any) -> None:
        self.written += data

    def abort(self) -> None:
        self.aborted = True


class Receiver:
    def __init__(self, connection: LinkConnection) -> None:
        self.connection = connection
        self.messages: list[wire.Message] = []
        self.closed = 0

    def on_message(self, message: wire.Message) -> None:
        if isinstance(message, wire.Report):
            raise FrameError("not here")
        if isinstance(message, wire.Shutdown):
            raise RuntimeError("a fault of ours")
        self.messages.append(message)

    def on_closed(self) -> None:
        self.closed += 1


def hello(**more: Any) -> bytes:
    values = {"role": "worker", "ident": "w-1", "token": "secret", "version": wire.PROTOCOL_VERSION, "pid": 42}
    return encode(wire.Hello(**(values | more)))


def dial(desk: Desk) -> tuple[LinkConnection, Transport]:
    connection, transport = desk(), Transport()
    connection.connection_made(transport)
    return connection, transport


@pytest.fixture
def desk() -> Desk:
    made = Desk(LinkParams())
    made.receivers = []  # type: ignore[attr-defined]

    def make(connection: LinkConnection) -> Receiver:
        made.receivers.append(Receiver(connection))  # type: ignore[attr-defined]
        return made.receivers[-1]  # type: ignore[attr-defined, no-any-return]

    made.expect("worker", "w-1", "secret", make)
    return made


async def test_an_expected_worker_is_let_in_and_what_it_says_is_passed_on(desk: Any) -> None:
    connection, transport = dial(desk)
    data = hello() + encode(wire.Credit(1, 5)) + encode(wire.Credit(1, 6))
    for start in range(len(data)):
        connection.data_received(data[start : start + 1])
    (receiver,) = desk.receivers
    assert receiver.messages == [wire.Credit(1, 5), wire.Credit(1, 6)]
    assert connection.pid == 42
    connection.send(wire.Cancel(1, "timeout"))
    assert transport.written == encode(wire.Cancel(1, "timeout"))
    connection.connection_lost(None)
    connection.send(wire.Cancel(1, "timeout"))
    assert receiver.closed == 1
    assert connection.closed


async def test_a_link_with_several_calls_sends_a_turns_frames_together_and_in_order(desk: Any) -> None:
    connection, transport = dial(desk)
    connection.data_received(hello())
    connection.gathers = True
    connection.send(wire.Credit(1, 7))
    connection.gathers = False
    connection.send(wire.Credit(2, 8))
    assert transport.written == b""
    await asyncio.sleep(0)
    assert transport.written == encode(wire.Credit(1, 7)) + encode(wire.Credit(2, 8))
    connection.send(wire.Credit(3, 9))
    assert transport.written.endswith(encode(wire.Credit(3, 9)))


@pytest.mark.parametrize(
    "first",
    [
        hello(token="wrong"),
        hello(token=""),
        hello(token="s\u00e9cret"),
        hello(ident="w-2"),
        hello(role="agent"),
        hello(version=wire.PROTOCOL_VERSION + 1),
        encode(wire.Credit(1, 1)),
        b"\0\0\0\2\x91\x63",
        b"\xff\xff\xff\xff",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
async def test_strangers_are_shown_the_door(desk: Any, first: bytes) -> None:
    connection, transport = dial(desk)
    connection.data_received(first)
    assert transport.aborted
    assert not desk.receivers
    assert transport.written == b""


async def test_a_token_is_good_once(desk: Any) -> None:
    dial(desk)[0].data_received(hello())
    connection, transport = dial(desk)
    connection.data_received(hello())
    assert transport.aborted
    assert len(desk.receivers) == 1


async def test_whoever_is_forgotten_is_a_stranger(desk: Any) -> None:
    desk.forget("worker", "w-1")
    connection, transport = dial(desk)
    connection.data_received(hello())
    assert transport.aborted


async def test_a_connection_that_says_nothing_is_closed() -> None:
    desk = Desk(LinkParams(hello_timeout_s=0.005))
    aborted = asyncio.Event()
    connection, transport = desk(), Transport()
    transport.abort = aborted.set  # type: ignore[method-assign]
    connection.connection_made(transport)
    await asyncio.wait_for(aborted.wait(), 10)


async def test_strangers_are_bounded(desk: Any) -> None:
    desk = Desk(LinkParams(strangers_max=2))
    links = [dial(desk) for _ in range(3)]
    assert [transport.aborted for _, transport in links] == [False, False, True]
    links[0][0].connection_lost(None)
    assert not dial(desk)[1].aborted


@pytest.mark.parametrize("message", [wire.Report("n", [], [], []), wire.Shutdown(1)])
async def test_what_has_no_place_or_sets_off_a_fault_ends_the_connection_only(desk: Any, message: Any) -> None:
    connection, transport = dial(desk)
    connection.data_received(hello() + encode(message) + encode(wire.Credit(1, 1)))
    assert transport.aborted
    connection.connection_lost(None)
    assert desk.receivers[0].closed == 1


async def test_all_connections_end_with_the_desk(desk: Any) -> None:
    links = [dial(desk) for _ in range(3)]
    links[0][0].data_received(hello())
    desk.close_all()
    assert all(transport.aborted for _, transport in links)


async def test_local_links_come_over_a_private_socket(desk: Any, tmp_path: Any) -> None:
    path = tmp_path / "links.sock"
    path.write_text("left behind")
    server = await listen_unix(desk, path)
    assert path.stat().st_mode & 0o777 == 0o600
    reader, writer = await asyncio.open_unix_connection(str(path))
    writer.write(hello(token="wrong"))
    assert await asyncio.wait_for(reader.read(), 10) == b""
    writer.close()
    server.close()


@given(data=st.lists(st.binary(max_size=100), max_size=5), introduced=st.booleans())
@settings(max_examples=200, deadline=None)
def test_arbitrary_bytes_never_raise(data: list[bytes], introduced: bool) -> None:
    async def run() -> None:
        desk = Desk(LinkParams())
        receivers: list[Receiver] = []

        def make(connection: LinkConnection) -> Receiver:
            receivers.append(Receiver(connection))
            return receivers[-1]

        desk.expect("worker", "w-1", "secret", make)
        connection, _ = dial(desk)
        if introduced:
            connection.data_received(hello())
        for piece in data:
            connection.data_received(piece)
        connection.connection_lost(None)
        assert [receiver.closed for receiver in receivers] == [1] * introduced

    asyncio.run(run())
