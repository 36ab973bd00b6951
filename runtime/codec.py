"""Frames: a message as bytes and back.

A frame is a four-byte big-endian length and a msgpack array: the message's number, then its fields. The decoder
checks each field's type, because a worker runs code that we did not write and its bytes are not to be trusted.
"""

from __future__ import annotations

import typing

import msgpack

from runtime.messages import MAX_FRAME_BYTES, MESSAGES, Message

_pack = msgpack.Packer(autoreset=True, use_bin_type=True).pack
_unpack = msgpack.unpackb
_NUMBERS: dict[type, int] = {cls: number for number, cls in enumerate(MESSAGES)}
_LENGTH_BYTES = 4


class FrameError(ValueError):
    """The peer sent bytes that are no frame of ours: the connection is to be dropped."""


def _field_types(cls: type) -> tuple[type, ...]:
    hints = typing.get_type_hints(cls)
    return tuple(typing.get_origin(hints[name]) or hints[name] for name in cls._fields)  # type: ignore[attr-defined]


_FIELD_TYPES: tuple[tuple[type, ...], ...] = tuple(_field_types(cls) for cls in MESSAGES)
#: One value of each message's array: (class, exact type of every element, the number included).
_SHAPES = tuple((cls, (int, *fields)) for cls, fields in zip(MESSAGES, _FIELD_TYPES, strict=True))


def encode(message: Message) -> bytes:
    """The frame of a message. Raises FrameError when it is larger than MAX_FRAME_BYTES."""
    payload: bytes = _pack((_NUMBERS[type(message)], *message))
    size = len(payload)
    if size > MAX_FRAME_BYTES:
        raise FrameError(f"frame of {size} bytes; the limit is {MAX_FRAME_BYTES}")
    return size.to_bytes(_LENGTH_BYTES, "big") + payload


def decode(payload: bytes | memoryview) -> Message:
    """The message of one frame's payload (without its length). Raises FrameError."""
    try:
        values = _unpack(payload, use_list=True)
        cls, shape = _SHAPES[values[0]]
        if tuple(map(type, values)) != shape:
            raise FrameError(f"{cls.__name__} with fields {[type(v).__name__ for v in values[1:]]}")
    except FrameError:
        raise
    except Exception as error:  # msgpack raises many kinds for bytes that are not msgpack
        raise FrameError(f"unreadable frame: {error!r}") from error
    del values[0]
    message: Message = cls._make(values)
    return message


class Decoder:
    """Collects bytes as they arrive and gives the whole messages among them."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, data: bytes) -> list[Message]:
        """Messages completed by `data`, in order. Raises FrameError; the connection is then unusable."""
        buffer = self._buffer + data if self._buffer else data
        messages: list[Message] = []
        start, end = 0, len(buffer)
        while end - start >= _LENGTH_BYTES:
            size = int.from_bytes(buffer[start : start + _LENGTH_BYTES], "big")
            if size > MAX_FRAME_BYTES:
                raise FrameError(f"frame of {size} bytes announced; the limit is {MAX_FRAME_BYTES}")
            stop = start + _LENGTH_BYTES + size
            if stop > end:
                break
            messages.append(decode(buffer[start + _LENGTH_BYTES : stop]))
            start = stop
        self._buffer = buffer[start:] if start else buffer
        return messages
