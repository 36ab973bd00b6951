"""Frames: what is encoded comes back, and what is no frame of ours is refused before it does harm."""

from __future__ import annotations

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime import messages as wire
from runtime.codec import Decoder, FrameError, decode, encode

EXAMPLES = [
    wire.Hello("worker", "w1", "t", 1, 42),
    wire.Request(1, "id", "POST", b"/fn", b"/x?y", [[b"a", b"1"], [b"a", b"2"]], b"\x00", True, 5, "http", "::1"),
    wire.Body(1, b"data", False, []),
    wire.Credit(1, 100),
    wire.Cancel(1, "timeout"),
    wire.Ready(10, "event", ["json"]),
    wire.StartFailed("import_error", "E", "m", "t"),
    wire.Response(1, 200, [[b"a", b"b"]], b"", True, [1, 2, 3]),
    wire.Failed(1, "raised", "E", "m", "t", [1, 2, 3]),
    wire.StartWorker("w", {"a": 1, "b": {"c": "d"}}),
    wire.Report("node", [["cpu", "cpu", 1000, 1 << 34, 512]], ["w"], []),
    wire.Exited("w", -1, 9, ""),
    wire.Log("w", "stdout", [b"\xff"]),
]


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda m: type(m).__name__)
def test_a_message_comes_back_as_it_was(message: wire.Message) -> None:
    assert Decoder().feed(encode(message)) == [message]


@given(st.lists(st.sampled_from(EXAMPLES), max_size=5), st.data())
def test_frames_survive_any_cutting_of_the_stream(messages: list[wire.Message], data: st.DataObject) -> None:
    stream = b"".join(map(encode, messages))
    decoder, got = Decoder(), []
    while stream:
        cut = data.draw(st.integers(1, len(stream)))
        got += decoder.feed(stream[:cut])
        stream = stream[cut:]
    assert got == messages


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        msgpack.packb(5),
        msgpack.packb([]),
        msgpack.packb([999]),
        msgpack.packb([3, 1]),
        msgpack.packb([3, 1, "2"]),
        msgpack.packb([3, True, 2]),
        msgpack.packb([3, 1, 2, 3]),
        msgpack.packb(["3", 1, 2]),
    ],
)
def test_a_payload_that_is_no_message_is_refused(payload: bytes) -> None:
    with pytest.raises(FrameError):
        decode(payload)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused_or_waited_on_but_never_crash(data: bytes) -> None:
    try:
        Decoder().feed(data)
    except FrameError:
        pass


def test_an_announced_giant_is_refused_before_it_arrives() -> None:
    with pytest.raises(FrameError, match="announced"):
        Decoder().feed((wire.MAX_FRAME_BYTES + 1).to_bytes(4, "big"))


def test_a_frame_over_the_limit_is_not_encoded() -> None:
    with pytest.raises(FrameError, match="limit"):
        encode(wire.Body(1, bytes(wire.MAX_FRAME_BYTES), True, []))


def test_the_largest_chunk_fits_with_a_large_head() -> None:
    headers = [[b"x-large", b"v" * 60_000], [b"x-larger", b"v" * 60_000]]
    message = wire.Response(1, 200, headers, bytes(wire.CHUNK_BYTES), False, [])
    assert Decoder().feed(encode(message)) == [message]
