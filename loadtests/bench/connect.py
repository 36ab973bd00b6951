"""Opens one connection for a protocol that exists already, within a bounded time."""

from __future__ import annotations

import asyncio

from loadtests.bench.requests import Address

CONNECT_TIMEOUT_S = 10.0


async def connect(protocol: asyncio.Protocol, address: Address) -> None:
    """Connect `protocol`. Raises OSError, or TimeoutError after CONNECT_TIMEOUT_S."""
    connecting = asyncio.get_running_loop().create_connection(lambda: protocol, address.host, address.port)
    await asyncio.wait_for(connecting, CONNECT_TIMEOUT_S)
