"""What gateways tell each other through Valkey (or Redis): who is there, and that functions have changed.

Nothing promised depends on it. While it is away this gateway works on alone and says so; when it is back the lease is
renewed, and functions are read again, since notices may have been missed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import valkey.asyncio as valkey
from valkey.exceptions import ValkeyError

log = logging.getLogger("gateway.coordination")


@dataclass(frozen=True)
class CoordinationParams:
    """Times in seconds."""

    #: A gateway that is silent for so long counts as gone.
    lease_s: float = 15.0
    renew_s: float = 5.0
    #: Connecting, and one answer.
    timeout_s: float = 3.0
    #: After a failure: growing pauses.
    pause_s: float = 0.2
    pause_max_s: float = 5.0
    prefix: str = "samovar:"


class Coordination:
    """See the module. `on_change` is awaited after another gateway's notice, and after an outage."""

    def __init__(
        self,
        url: str,
        gateway: str,
        on_change: Callable[[], Awaitable[None]],
        params: CoordinationParams | None = None,
    ) -> None:
        self._url = url
        self._gateway = gateway
        self._on_change = on_change
        self._params = params if params is not None else CoordinationParams()
        self._client: valkey.Valkey | None = None
        self._task: asyncio.Task[None] | None = None
        #: Whether the last exchange with the server succeeded; for /readyz and metrics.
        self.connected = False
        #: Times that the server was lost; a metric.
        self.outages = 0

    async def start(self) -> None:
        """Join, without waiting for the server."""
        self._task = asyncio.create_task(self._run(), name="coordination")

    async def stop(self) -> None:
        """Leave: give the lease up, if the server is there to hear it."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
        client = self._client
        self._client = None
        if client is not None:
            try:
                async with asyncio.timeout(self._params.timeout_s):
                    if self.connected:
                        await client.delete(self._lease_key(self._gateway))
                    await client.aclose()
            except (ValkeyError, OSError, TimeoutError):
                pass
        self.connected = False

    async def publish_change(self) -> bool:
        """Tell the other gateways that functions have changed; False when the server is away."""
        client = self._client
        if client is None or not self.connected:
            return False
        try:
            async with asyncio.timeout(self._params.timeout_s):
                await client.publish(self._channel(), self._gateway)
        except (ValkeyError, OSError, TimeoutError):
            return False
        return True

    async def gateways(self) -> list[str]:
        """Those whose lease holds; only this one while the server is away."""
        client = self._client
        if client is None or not self.connected:
            return [self._gateway]
        prefix = self._lease_key("")
        try:
            async with asyncio.timeout(self._params.timeout_s):
                found = [key async for key in client.scan_iter(match=prefix + "*", count=100)]
        except (ValkeyError, OSError, TimeoutError):
            return [self._gateway]
        return sorted(key.decode().removeprefix(prefix) for key in found)

    async def _run(self) -> None:
        params = self._params
        pause_s = params.pause_s
        while True:
            try:
                await self._take_part()
            except (ValkeyError, OSError, TimeoutError) as error:
                if self.connected:
                    self.outages += 1
                    pause_s = params.pause_s
                    log.warning("coordination: the server is away: %s; working on alone", error)
                self.connected = False
                await self._close()
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, params.pause_max_s)

    async def _take_part(self) -> None:
        """Connected: renew the lease and listen, until the server is lost."""
        params = self._params
        self._client = client = valkey.Valkey.from_url(
            self._url, socket_timeout=params.timeout_s, socket_connect_timeout=params.timeout_s
        )
        loop = asyncio.get_running_loop()
        async with client.pubsub(ignore_subscribe_messages=True) as pubsub:
            await pubsub.subscribe(self._channel())
            await self._renew(client)
            self.connected = True
            renew_at = loop.time() + params.renew_s
            if self.outages:
                await self._changed()
            while True:
                wait_s = renew_at - loop.time()
                if wait_s <= 0:
                    await self._renew(client)
                    renew_at = loop.time() + params.renew_s
                    continue
                message = await pubsub.get_message(timeout=wait_s)
                if message is not None and message.get("data") != self._gateway.encode():
                    await self._changed()

    async def _changed(self) -> None:
        try:
            await self._on_change()
        except Exception as error:
            # The next notice, or the next start, brings it.
            log.warning("coordination: functions could not be read again: %s", error)

    async def _renew(self, client: valkey.Valkey) -> None:
        async with asyncio.timeout(self._params.timeout_s):
            await client.set(self._lease_key(self._gateway), b"1", px=int(self._params.lease_s * 1000))

    async def _close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            try:
                await client.aclose()
            except (ValkeyError, OSError):
                pass

    def _lease_key(self, gateway: str) -> str:
        return f"{self._params.prefix}gateway:{gateway}"

    def _channel(self) -> str:
        return f"{self._params.prefix}functions-changed"
