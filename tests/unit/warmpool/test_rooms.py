from __future__ import annotations

import random

import pytest

from warmpool.ledger import Revision, Worker
from warmpool.rooms import FirstAvailable, LeastLoaded, MostRecentlyUsed, room_for
from warmpool.values import Need, RevisionSpec, StartKind


def workers(count: int, concurrency: int) -> list[Worker]:
    revision = Revision(RevisionSpec("f", "env", concurrency), room_for(concurrency), 0.0)
    made = [Worker(f"w-{n}", revision, "a", "a/0", Need(), StartKind.WARM, 0.0) for n in range(count)]
    for order, worker in enumerate(made):
        worker.ready_order = order
    return made


def names(room, count: int) -> list[str | None]:
    taken = [room.take() for _ in range(count)]
    return [worker.name if worker is not None else None for worker in taken]


def test_the_rule_follows_the_concurrency() -> None:
    kinds = [type(room_for(concurrency)) for concurrency in (0, 1, 2, 3, 4, 100)]
    assert kinds == [MostRecentlyUsed] * 2 + [FirstAvailable] * 2 + [LeastLoaded] * 2


def test_single_calls_go_to_the_most_recently_used() -> None:
    one, two, three = workers(3, 1)
    room = room_for(1)
    for worker in (one, two, three):
        room.add(worker)
    assert names(room, 3) == ["w-2", "w-1", "w-0"]
    room.give(two)
    room.give(one)
    assert names(room, 3) == ["w-0", "w-1", None]


def test_few_calls_are_packed_on_the_first_with_room() -> None:
    one, two = workers(2, 2)
    room = room_for(2)
    room.add(two)
    room.add(one)
    assert names(room, 5) == ["w-0", "w-0", "w-1", "w-1", None]
    room.give(two)
    room.give(one)
    assert names(room, 2) == ["w-0", "w-1"]


def test_many_calls_are_spread_over_the_least_loaded() -> None:
    one, two = workers(2, 4)
    room = room_for(4)
    room.add(one)
    room.add(two)
    taken = names(room, 6)
    assert (one.in_flight, two.in_flight) == (3, 3)
    assert set(taken[:2]) == {"w-0", "w-1"}
    room.give(one)
    room.give(one)
    assert names(room, 2) == ["w-0", "w-0"]


@pytest.mark.parametrize("concurrency", [1, 2, 3, 4, 9])
def test_a_room_holds_exactly_those_with_room_whatever_happens(concurrency: int) -> None:
    chance = random.Random(concurrency)
    everyone = workers(6, concurrency)
    room = room_for(concurrency)
    inside: dict[Worker, None] = {}
    for _ in range(3_000):
        what = chance.random()
        if what < 0.45:
            full = all(w.in_flight >= concurrency for w in inside)
            worker = room.take()
            assert (worker is None) == full
            least = min((w.in_flight for w in inside if w is not worker), default=concurrency)
            assert worker is None or concurrency <= 3 or worker.in_flight - 1 <= least
        elif what < 0.9:
            busy = [w for w in inside if w.in_flight]
            if busy:
                room.give(chance.choice(busy))
        else:
            worker = chance.choice(everyone)
            if worker in inside:
                room.remove(worker)
                del inside[worker]
                worker.in_flight = 0
            else:
                worker.in_flight = chance.randint(0, concurrency)
                room.add(worker)
                inside[worker] = None
        assert set(room) == {w for w in inside if w.in_flight < concurrency}
        assert all(0 <= w.in_flight <= concurrency for w in everyone)
