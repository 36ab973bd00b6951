from __future__ import annotations

from warmpool.ledger import Revision
from warmpool.rooms import room_for
from warmpool.shortages import Shortages
from warmpool.values import Need, RevisionSpec

SMALL, LARGE = Need(memory_bytes=1), Need(memory_bytes=9)


def revision(name: str, need: Need = SMALL, waiting: int = 0) -> Revision:
    made = Revision(RevisionSpec(name, "env", need=need), room_for(1), 0.0)
    made.waiting.update((f"{name}-{n}", 0) for n in range(waiting))
    return made


def test_lines_are_first_come_with_waiting_calls_before_spare_workers() -> None:
    shortages = Shortages()
    spare, one, two = revision("spare"), revision("one", waiting=1), revision("two", waiting=1)
    for who in (spare, one, two):
        shortages.put(who, 1, len(who.waiting))
    order = []
    while (who := shortages.first(SMALL)) is not None:
        order.append(who.name)
        shortages.remove(who)
    assert order == ["one", "two", "spare"]
    assert shortages.by_calls == 0


def test_who_gets_a_waiting_call_moves_up_and_a_recount_keeps_the_place() -> None:
    shortages = Shortages()
    one, two = revision("one"), revision("two", waiting=2)
    shortages.put(one, 1, 0)
    shortages.put(two, 2, 2)
    one.waiting["late"] = 0
    shortages.put(one, 1, 1)
    shortages.put(two, 1, 1)
    assert [who.name for who in shortages] == ["two", "one"]
    assert shortages.by_calls == 2


def test_each_need_has_its_own_line_and_empty_lines_go() -> None:
    shortages = Shortages()
    small, large = revision("small"), revision("large", LARGE)
    shortages.put(small, 1, 0)
    shortages.put(large, 1, 0)
    assert (shortages.first(SMALL), shortages.first(LARGE)) == (small, large)
    shortages.remove(small)
    shortages.remove(small)
    assert list(shortages.lines) == [LARGE]
