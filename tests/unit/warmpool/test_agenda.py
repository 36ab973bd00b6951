from __future__ import annotations

from math import inf

from warmpool.agenda import SWEEP_FLOOR, Agenda
from warmpool.ledger import Revision
from warmpool.rooms import room_for
from warmpool.values import RevisionSpec


def revision(name: str) -> Revision:
    return Revision(RevisionSpec(name, "env"), room_for(1), 0.0)


def test_due_ones_come_in_order_of_date_and_once() -> None:
    agenda, one, two, three = Agenda(), revision("1"), revision("2"), revision("3")
    for who, due in ((one, 5.0), (two, 3.0), (three, 9.0)):
        agenda.set(who, due)
    assert agenda.next() == 3.0
    assert agenda.take_due(6.0) == [two, one]
    assert agenda.take_due(6.0) == []
    assert (one.due, three.due) == (inf, 9.0)


def test_only_the_last_date_counts() -> None:
    agenda, one = Agenda(), revision("1")
    for due in (5.0, 3.0, 8.0, 5.0):
        agenda.set(one, due)
    assert agenda.take_due(4.0) == []
    assert agenda.take_due(5.0) == [one]
    assert agenda.take_due(99.0) == []
    agenda.set(one, 7.0)
    agenda.set(one, inf)
    assert agenda.next() is None


def test_overtaken_dates_do_not_pile_up() -> None:
    agenda, many = Agenda(), [revision(str(n)) for n in range(10)]
    for turn in range(1_000):
        for who in many:
            agenda.set(who, 1e6 - turn)
            agenda.set(who, 2e6 + turn)
    assert len(agenda._heap) <= SWEEP_FLOOR + 2 * len(many) + 1
    assert agenda.take_due(3e6) == many
