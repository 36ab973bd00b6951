"""What is deployed, with a real PostgreSQL behind."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
import pytest_asyncio

from gateway.catalog import Manifest, Revision, Scale
from gateway.database.database import Database
from gateway.errors import BadRequest, Conflict, NotFound
from gateway.registry import Registry


class Followed:
    """A registry and what it told."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.changes: list[tuple[str, int]] = []
        registry.subscribe(lambda change: self.changes.append((change.kind, change.revision.number)))

    def told(self) -> list[tuple[str, int]]:
        found, self.changes = self.changes, []
        return found

    async def ready(self, name: str = "hello", **manifest: Any) -> Revision:
        """A proved revision."""
        return await self.registry.mark_ready(await create(self.registry, name, **manifest), "event", ("numpy",))

    async def live(self, name: str = "hello", **manifest: Any) -> Revision:
        """One that has the traffic."""
        revision = await self.ready(name, **manifest)
        return await self.registry.route(revision.namespace, name, revision.number)


async def create(registry: Registry, name: str = "hello", **manifest: Any) -> Revision:
    values = {"namespace": "lab", "handler": "handler:main", "requirements": ("numpy==2.0",), **manifest}
    return await registry.create_revision(Manifest(name=name, **values), "sha256:b", "sha256:e", "/usr/bin/python3")


@pytest_asyncio.fixture
async def house(database: Database) -> Followed:
    registry = Registry(database, time.time)
    await registry.load()
    return Followed(registry)


async def test_a_revision_is_made_proved_and_gets_the_traffic(house: Followed, database: Database) -> None:
    registry = house.registry
    made = await create(registry, scale=Scale(min=1), public=True, variables={"A": "ä"})
    assert (made.number, made.state, made.key) == (1, "building", "lab/hello@1")
    assert registry.lookup("lab", "hello") is None
    function = registry.function("lab", "hello")
    assert function is not None
    assert (function.live, function.public) == (None, False)
    ready = await registry.mark_ready(made, "event", ("numpy",))
    assert (ready.state, ready.shape, ready.preload) == ("ready", "event", ("numpy",))
    await registry.route("lab", "hello", 1)
    assert registry.lookup("lab", "hello") == ready
    function = registry.function("lab", "hello")
    assert function is not None
    assert (function.live, function.public) == (1, True)
    assert registry.account("lab") == "lab"
    assert house.told() == [("revision_ready", 1), ("routed", 1)]

    again = Registry(database, time.time)
    await again.load()
    assert again.lookup("lab", "hello") == ready
    assert again.functions(None) == registry.functions(None) == again.functions("lab")
    assert again.functions("other") == []
    assert again.price_version == 1


async def test_a_failed_revision_leaves_the_live_one(house: Followed) -> None:
    live = await house.live()
    failed = await house.registry.mark_failed(await create(house.registry), "Traceback: no module\0 \ud800")
    assert failed.state == "failed"
    assert failed.error.startswith("Traceback: no module")
    assert house.registry.lookup("lab", "hello") == live
    with pytest.raises(Conflict, match="not ready"):
        await house.registry.route("lab", "hello", failed.number)


async def test_switching_says_the_new_one_before_the_old_one(house: Followed) -> None:
    await house.live()
    second = await house.ready()
    house.told()
    await house.registry.route("lab", "hello", second.number)
    assert house.told() == [("routed", 2), ("unrouted", 1)]


async def test_simultaneous_deploys_get_numbers_of_their_own(house: Followed) -> None:
    made = await asyncio.gather(*(create(house.registry) for _ in range(8)))
    assert sorted(revision.number for revision in made) == list(range(1, 9))
    assert [revision.number for revision in house.registry.revisions("lab", "hello")] == list(range(1, 9))


async def test_rolling_back_goes_to_the_ready_one_before(house: Followed) -> None:
    first = await house.live()
    await house.registry.mark_failed(await create(house.registry), "no")
    await house.live()
    registry = house.registry
    assert await registry.rollback_target("lab", "hello", None) == first
    assert await registry.rollback_target("lab", "hello", 1) == first
    with pytest.raises(Conflict):
        await registry.rollback_target("lab", "hello", 2)
    with pytest.raises(NotFound, match="no revision 9"):
        await registry.rollback_target("lab", "hello", 9)
    with pytest.raises(NotFound, match="no function lab/other"):
        await registry.rollback_target("lab", "other", None)
    await registry.route("lab", "hello", 1)
    with pytest.raises(Conflict):
        await registry.rollback_target("lab", "hello", None)


async def test_a_deleted_function_is_gone_and_its_numbers_go_on_when_it_comes_again(
    house: Followed, database: Database
) -> None:
    await house.live()
    await house.ready()
    house.told()
    registry = house.registry
    await registry.delete_function("lab", "hello")
    assert [change for change in house.told() if change[0] == "removed"] == [("removed", 1), ("removed", 2)]
    assert registry.lookup("lab", "hello") is None
    assert registry.functions(None) == []
    with pytest.raises(NotFound):
        await registry.delete_function("lab", "hello")
    with pytest.raises(NotFound):
        await registry.route("lab", "hello", 2)
    assert (await create(registry)).number == 3
    again = Registry(database, time.time)
    await again.load()
    assert [revision.number for revision in again.revisions("lab", "hello")] == [3]
    assert again.lookup("lab", "hello") is None


async def test_a_revision_whose_function_was_deleted_meanwhile_is_not_proved(house: Followed) -> None:
    made = await create(house.registry)
    await house.registry.delete_function("lab", "hello")
    with pytest.raises((Conflict, NotFound)):
        await house.registry.mark_ready(made, "event", ())
    assert house.registry.functions(None) == []


async def test_another_gateways_changes_are_told_after_reading_again(house: Followed, database: Database) -> None:
    await house.live("stays")
    await house.live("switched")
    await house.live("deleted")
    other = Registry(database, time.time)
    await other.load()
    followed = Followed(other)
    house.told()
    await followed.live("switched")
    await followed.live("new")
    await other.delete_function("lab", "deleted")
    await house.registry.reload()
    told = house.told()
    assert sorted(told) == [("removed", 1), ("routed", 1), ("routed", 2), ("unrouted", 1)]
    assert told.index(("routed", 2)) < told.index(("unrouted", 1))
    assert house.registry.functions(None) == other.functions(None)
    await house.registry.reload()
    assert house.told() == []


async def test_reading_again_while_something_is_deployed_forgets_nothing(house: Followed) -> None:
    made = await asyncio.gather(
        *(work for n in range(10) for work in (house.live(f"f{n}"), house.registry.reload())), return_exceptions=True
    )
    assert [one for one in made if isinstance(one, BaseException)] == []
    assert all(house.registry.lookup("lab", f"f{n}") is not None for n in range(10))


@pytest.mark.parametrize("name", ["", "A", "-a", "a-", "a_b", "ä", "a" * 64, "a/b", "a\n"])
async def test_a_name_that_is_none_is_refused(house: Followed, name: str) -> None:
    with pytest.raises(BadRequest, match="name"):
        await create(house.registry, name)
    with pytest.raises(BadRequest, match="namespace"):
        await create(house.registry, namespace=name)
