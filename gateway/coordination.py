"""What gateways tell each other through Valkey (or Redis): that they live, and that something was deployed.

Nothing that was promised depends on it: while it is away this gateway serves on, and tries again with growing pauses.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import orjson
import valkey.asyncio as valkey
from valkey.exceptions import ValkeyError

from gateway.registry import Change

log = logging.getLogger("gateway.coordination")

CHANNEL = "samovar:changes"
MEMBER_KEY = "samovar:gateway:"


@dataclass(frozen=True)
class CoordinationParams:
    """Times in seconds."""

    #: A gateway that has not renewed its lease for so long is gone.
    lease_s: float = 15.0
    renew_s: float = 5.0
    answer_timeout_s: float = 3.0
    pause_s: float = 0.5
    pause_max_s: float = 10.0
    #: Notices waiting to be sent; the oldest go first, since a later one has the same effect.
    notices_max: int = 256


class Coordination:
    """See the module. `on_foreign_change(namespace, function)` is called for changes made by another gateway."""

    def __init__(
        self,
        url: str,
        on_foreign_change: Callable[[str, str], None],
        params: CoordinationParams | None = None,
    ) -> None:
        self._params = params if params is not None else CoordinationParams()
        self._client = valkey.Valkey.from_url(
            url, socket_timeout=None, socket_connect_timeout=self._params.answer_timeout_s
        )
        self._on_foreign_change = on_foreign_change
        #: This gateway among its peers.
        self.member = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._notices: asyncio.Queue[bytes] = asyncio.Queue(self._params.notices_max)
        self._tasks: list[asyncio.Task[None]] = []
        #: Valkey answers.
        self.connected = False

    async def start(self) -> None:
        """Begin; Valkey may be away."""
        for name, work in (("lease", self._renew), ("notices", self._send), ("changes", self._listen)):
            self._tasks.append(asyncio.create_task(self._persist(name, work), name=f"coordination {name}"))

    async def stop(self) -> None:
        """Leave: give the lease back and close the connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            async with asyncio.timeout(self._params.answer_timeout_s):
                if self.connected:
                    await self._client.delete(MEMBER_KEY + self.member)
                await self._client.aclose()
        except (ValkeyError, OSError, TimeoutError):
            pass

    def on_change(self, change: Change) -> None:
        """A change of our own: tell the others."""
        if change.kind not in {"routed", "removed"}:
            return
        revision = change.revision
        notice = orjson.dumps({"from": self.member, "namespace": revision.namespace, "function": revision.function})
        if self._notices.full():
            self._notices.get_nowait()
        self._notices.put_nowait(notice)

    async def members(self) -> list[str]:
        """The gateways that live. Raises ValkeyError, OSError."""
        return sorted([key.decode()[len(MEMBER_KEY) :] async for key in self._client.scan_iter(MEMBER_KEY + "*")])

    async def _persist(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        pause_s = self._params.pause_s
        while True:
            try:
                await work()
            except (ValkeyError, OSError, TimeoutError) as error:
                if self.connected:
                    log.warning("Valkey is away (%s: %s); serving on without it", name, error)
                self.connected = False
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, self._params.pause_max_s)

    async def _renew(self) -> None:
        params = self._params
        while True:
            async with asyncio.timeout(params.answer_timeout_s):
                await self._client.set(MEMBER_KEY + self.member, os.getpid(), px=int(params.lease_s * 1000))
            self.connected = True
            await asyncio.sleep(params.renew_s)

    async def _send(self) -> None:
        while True:
            notice = await self._notices.get()
            async with asyncio.timeout(self._params.answer_timeout_s):
                await self._client.publish(CHANNEL, notice)

    async def _listen(self) -> None:
        async with self._client.pubsub(ignore_subscribe_messages=True) as pubsub:
            await pubsub.subscribe(CHANNEL)
            async for message in pubsub.listen():
                try:
                    notice = orjson.loads(message["data"])
                    if notice["from"] != self.member:
                        self._on_foreign_change(str(notice["namespace"]), str(notice["function"]))
                except (orjson.JSONDecodeError, KeyError, TypeError):
                    log.warning("an unreadable notice came through Valkey")
