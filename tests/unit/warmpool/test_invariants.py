from __future__ import annotations

import pytest

from warmpool.invariants import BrokenInvariant


@pytest.mark.parametrize(
    ("spoil", "name"),
    [
        (lambda pool: pool._supply.workers["w-1"].__setattr__("in_flight", 0), "in-flight is what runs"),
        (lambda pool: pool._calls.holders.pop("f-0"), "in-flight is what runs"),
        (lambda pool: pool._calls.__setattr__("waiting", 7), "queues hold what waits"),
        (lambda pool: pool._revisions["f"].__setattr__("ready", 9), "worker counters"),
        (lambda pool: pool._revisions["f"].meter.enter(100.0), "the meter's level is the load"),
        (lambda pool: pool._revisions["f"].room.add(pool._supply.workers["w-1"]), "the room holds those with room"),
        (lambda pool: pool._revisions["f"].__setattr__("due", float("inf")), "who is not at rest has a date"),
        (
            lambda pool: pool._supply.capacity.agents["a"].slices["a/0"].__setattr__("memory_used", 1),
            "slices: used is what is in them",
        ),
        (lambda pool: pool._supply.capacity.agents["a"].__setattr__("starting", 3), "starting slots"),
        (lambda pool: pool._supply.capacity.agents.clear(), "every worker is on an agent"),
    ],
)
def test_a_spoilt_book_is_named(house, spoil, name: str) -> None:
    house.revision(concurrency=2)
    house.ready(*house.started(house.calls(1)))
    house.pool.check()
    if name == "the room holds those with room":
        house.calls(1, first=1)  # the worker is full, so it must not be in the room
        house.pool._supply.workers["w-1"].in_flight = 1
        spoil(house.pool)
        house.pool._supply.workers["w-1"].in_flight = 2
    else:
        spoil(house.pool)
    with pytest.raises(BrokenInvariant) as broken:
        house.pool.check()
    assert broken.value.name == name
    assert str(broken.value).startswith(name)


def test_a_broken_invariant_is_an_assertion_error() -> None:
    assert issubclass(BrokenInvariant, AssertionError)
