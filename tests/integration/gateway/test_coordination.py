"""Gateways that know of each other through a real Valkey."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from gateway.catalog import Manifest, Revision
from gateway.coordination import Coordination, CoordinationParams
from gateway.embedded.valkey import EmbeddedValkey
from gateway.registry import Change

QUICK = CoordinationParams(lease_s=1.0, renew_s=0.05, pause_s=0.01, pause_max_s=0.05)
PATIENCE_S = 30.0


class Gateway:
    """One gateway's end, and what it heard."""

    def __init__(self, url: str) -> None:
        self.heard: list[tuple[str, str]] = []
        self.coordination = Coordination(url, lambda namespace, name: self.heard.append((namespace, name)), QUICK)

    def deploys(self, name: str) -> None:
        revision = Revision("lab", name, 1, Manifest(name, "lab", "handler:main"), "b", "e", "python")
        self.coordination.on_change(Change("routed", revision))


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():
            await asyncio.sleep(0.01)


async def heard_by(listener: Gateway, speaker: Gateway, name: str) -> None:
    """Notices are not kept for who is not there: repeated until heard."""

    async def heard() -> bool:
        speaker.deploys(name)
        return ("lab", name) in listener.heard

    await until(heard)


async def test_gateways_see_each_other_and_hear_of_changes_of_the_others_only(valkey_url: str) -> None:
    one, other = Gateway(valkey_url), Gateway(valkey_url)
    for gateway in (one, other):
        await gateway.coordination.start()
    members = sorted((one.coordination.member, other.coordination.member))

    async def both_there() -> bool:
        return all(g.coordination.connected for g in (one, other)) and await one.coordination.members() == members

    await until(both_there)
    await heard_by(other, one, "hello")
    assert one.heard == []
    await other.coordination.stop()
    assert await one.coordination.members() == [one.coordination.member]
    await one.coordination.stop()


async def test_an_outage_is_noticed_and_ends_by_itself() -> None:
    with tempfile.TemporaryDirectory() as short:
        server = EmbeddedValkey(Path(short))
        url = await server.start()
        await server.stop()
        one, other = Gateway(url), Gateway(url)
        for gateway in (one, other):
            await gateway.coordination.start()
        assert not one.coordination.connected
        for _ in range(2):
            await server.start()

            async def connected() -> bool:
                return one.coordination.connected and other.coordination.connected

            await until(connected)
            other.heard.clear()
            await heard_by(other, one, "hello")
            await server.stop()
            one.deploys("into the void")

            async def noticed() -> bool:
                return not one.coordination.connected

            await until(noticed)
        for gateway in (one, other):
            await gateway.coordination.stop()
