"""What agent and zygote say to each other: one JSON object a packet over a socket pair, descriptors beside it.

Agent to zygote: `load` (first, once), `start`, `signal`, `kill`. Zygote to agent: `loaded` (once), `started`,
`exited`. The end of the socket ends the zygote and all its workers. JSON, because it is in every Python.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from typing import Any

#: Largest packet; a unix socket of an unprivileged process takes about 200 KiB with the kernel's defaults.
PACKET_BYTES_MAX = 160 * 1024
#: Connection, standard output, standard error.
START_DESCRIPTORS = 3
#: Stands in a spawned worker's command for the number of the descriptor that holds its spec.
SPEC_PLACE = "{spec}"

_dumps = json.JSONEncoder(separators=(",", ":")).encode
_loads = json.JSONDecoder().decode


class OversizedPacket(ValueError):
    """A message that does not fit into one packet (a worker's variables, or a list of modules, too long)."""


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """Both ends, packets kept whole."""
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in pair:
        with contextlib.suppress(OSError):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * PACKET_BYTES_MAX)
    return pair


def encode(message: dict[str, Any]) -> bytes:
    """One packet. Raises OversizedPacket."""
    data = _dumps(message).encode("ascii")
    if len(data) > PACKET_BYTES_MAX:
        raise OversizedPacket(f"{message.get('op')} of {len(data)} bytes; the limit is {PACKET_BYTES_MAX}")
    return data


def decode(packet: bytes) -> dict[str, Any]:
    """The message of one packet."""
    message: dict[str, Any] = _loads(packet.decode("ascii"))
    return message


def send(end: socket.socket, message: dict[str, Any], descriptors: tuple[int, ...] = ()) -> None:
    """Send one message, waiting for room when the socket blocks. Raises OversizedPacket, OSError."""
    packet = encode(message)
    if descriptors:
        socket.send_fds(end, [packet], list(descriptors))
    else:
        end.send(packet)


def receive(end: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """The next message and the descriptors beside it (not inherited by programs); None at the end."""
    packet, descriptors, _, _ = socket.recv_fds(end, PACKET_BYTES_MAX, START_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
    if not packet:
        for descriptor in descriptors:
            os.close(descriptor)
        return None
    return decode(packet), descriptors
