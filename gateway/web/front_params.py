"""Bounds of client connections: sizes, counts and times."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FrontParams:
    """Bounds of one client connection."""

    #: Request line and headers together; also what may stand between two pieces of a body, and after the last.
    head_bytes_max: int = 64 * 1024
    headers_max: int = 256
    #: Pipelined requests waiting behind the one being answered; what comes after them is not read.
    pipelined_max: int = 64
    #: How long a connection may be idle between requests, and a head may take to arrive.
    idle_timeout_s: float = 75.0
    head_timeout_s: float = 30.0
    #: After an answer that left request bytes unread: how long they are thrown away before the close.
    linger_s: float = 2.0
    #: How long a client may take to read the last of an answer once its connection is closing.
    flush_timeout_s: float = 30.0
    #: A client that ended its sending may wait for its answer, or be gone: when to try, after the end of its sending.
    probe_after_s: tuple[float, ...] = (0.0, 0.05, 0.5, 2.0)
    #: Longest head that a connection remembers, so that it need not be read again when it comes again.
    remembered_head_bytes_max: int = 2048
    connections_max: int = 20_000
