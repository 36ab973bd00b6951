from __future__ import annotations

import pytest

from warmpool import events
from warmpool.commands import Note, Reject
from warmpool.ledger import IllegalMove
from warmpool.values import WorkerState


def test_a_function_that_cannot_start_tells_its_waiting_calls(house) -> None:
    house.revision(max_workers=1)
    house.calls(3)
    rejects = house.of(Reject, house.failed("w-1", by_function=True))
    assert [(one.invocation, one.code) for one in rejects] == [(f"f-{n}", "start_failed") for n in range(3)]
    assert rejects[0].reason == "ImportError: no"
    assert house.states() == {}


def test_waiting_calls_are_not_told_while_another_worker_starts(house) -> None:
    house.revision()
    house.calls(2)
    assert house.of(Reject, house.failed("w-1", by_function=True)) == []
    assert house.sent(house.ready("w-2")) == [("f-0", "w-2", "warm")]
    assert house.sent(house.finish("f-0")) == [("f-1", "w-2", "warm")]


def test_failed_starts_back_off_exponentially_up_to_a_bound(build) -> None:
    house = build(start_backoff_s=1.0, start_backoff_max_s=5.0)
    house.agent()
    house.revision(target_utilisation=1.0)
    waits = []
    house.call("patient")
    for n in range(1, 6):
        before = house.now
        house.failed(f"w-{n}")
        while not house.started(house.pass_time(0.1)):
            assert house.now < before + 100.0
        waits.append(round(house.now - before))
    assert waits == [1, 2, 4, 5, 5]
    assert house.sent(house.ready("w-6")) == [("patient", "w-6", "cold")]
    assert house.started(house.call("next")) == ["w-7"]  # success forgives


def test_a_volley_of_failures_counts_once(house) -> None:
    house.revision()
    house.calls(10)
    notes = [note for n in range(1, 11) for note in house.of(Note, house.failed(f"w-{n}"))]
    assert [note.decision for note in notes] == ["back off"]
    assert len(house.started(house.pass_time(1.0))) == 10


def test_calls_wait_for_a_near_retry_and_are_told_of_a_far_one(build) -> None:
    house = build(start_backoff_s=4.0, start_backoff_wait_s=5.0)
    house.agent()
    house.revision(max_workers=1)
    house.call("one")
    house.failed("w-1", by_function=True)
    assert house.of(Reject, house.call("two")) == []
    assert house.started(house.pass_time(4.0)) == ["w-2"]
    house.failed("w-2", by_function=True)
    (reject,) = house.of(Reject, house.call("three"))
    assert (reject.code, reject.retry_after_s) == ("start_failed", 8.0)


def test_a_lost_worker_frees_its_calls_silently_and_is_replaced_for_those_that_wait(house) -> None:
    house.revision(max_workers=1)
    house.ready(*house.started(house.calls(2)))
    out = house.lost("w-1")
    assert house.of(Reject, out) == []
    assert house.started(out) == ["w-2"]
    assert house.finish("f-0") == []
    assert (house.view().queued, house.view().running) == (1, 0)


def test_a_draining_worker_keeps_its_place_until_it_is_gone(build) -> None:
    house = build()
    house.agent(mib=256)
    house.revision("f", idle_timeout_s=1.0)
    house.revision("g")
    house.ready(*house.started(house.call("one")))
    house.finish("one")
    house.pass_time(1.0)
    assert house.states("f") == {"w-1": "draining"}
    assert house.started(house.call("two", "g")) == []
    assert house.started(house.lost("w-1")) == ["w-2"]


def test_idle_workers_of_others_make_room_for_calls_that_wait(build) -> None:
    house = build()
    house.agent(mib=512)
    for name in ("f", "g", "h"):
        house.revision(name, idle_timeout_s=600.0)
    for name in ("f", "g"):
        house.ready(*house.started(house.call(name, name)))
        house.finish(name)
        house.now += 1.0
    out = house.call("here", "h")
    assert house.stopped(out) == ["w-1"]  # the longest idle
    assert "calls of h wait" in out[-1].reason
    assert house.stopped(house.call("too", "h")) == ["w-2"]
    assert house.stopped(house.call("three", "h")) == []
    assert house.started(house.lost("w-1")) == ["w-3"]


def test_a_minimum_and_the_busy_are_never_evicted(build) -> None:
    house = build()
    house.agent(mib=512)
    house.revision("kept", min_workers=1)
    house.revision("busy")
    house.revision("h")
    house.ready("w-1", *house.started(house.call("long", "busy")))
    out = house.call("here", "h")
    assert house.stopped(out) == []
    assert house.stopped(house.pass_time(1.0)) == []
    house.finish("long")
    assert house.stopped(house.pass_time(1.0)) == ["w-2"]


def test_spare_workers_and_minimums_evict_nobody(build) -> None:
    house = build()
    house.agent(mib=256)
    house.revision("f", idle_timeout_s=600.0)
    house.ready(*house.started(house.call("one")))
    house.finish("one")
    assert house.stopped(house.revision("g", min_workers=1)) == []
    assert house.stopped(house.pass_time(5.0)) == []


def test_several_small_idle_workers_make_room_for_a_large_one(build) -> None:
    house = build()
    house.agent(mib=1024)
    house.revision("f", idle_timeout_s=600.0)
    house.revision("large", mib=512)
    house.ready(*house.started(house.calls(4)))
    house.finish(*(f"f-{n}" for n in range(4)))
    assert len(house.stopped(house.call("one", "large"))) == 2


def test_the_pools_cap_holds_and_is_made_room_in(build) -> None:
    house = build(max_workers=2)
    house.agent()
    house.revision("f", idle_timeout_s=600.0)
    house.revision("g")
    house.ready(*house.started(house.calls(3)))
    assert len(house.states()) == 2
    house.finish("f-0", "f-1", "f-2")
    house.pass_time(1.0)
    assert house.stopped(house.call("one", "g")) == ["w-1"]
    assert house.started(house.lost("w-1")) == ["w-3"]


def test_no_more_workers_start_at_once_than_an_agent_may(build) -> None:
    house = build(max_starting_per_agent=3)
    house.agent()
    house.revision()
    assert len(house.started(house.calls(10))) == 3
    assert house.started(house.ready("w-1")) == ["w-4"]
    assert house.started(house.failed("w-2")) == []  # backs off
    assert len(house.started(house.pass_time(1.0))) == 1
    assert house.stopped(house.pass_time(10.0)) == []


def test_a_shortage_is_noted_once_with_its_reason(build) -> None:
    house = build()
    house.agent(mib=128)
    house.revision(mib=256)
    (note,) = house.of(Note, house.call("one"))
    assert note.decision == "shortage"
    assert "more memory than any slice has" in note.reason
    assert house.of(Note, house.calls(5)) == []
    assert [n for n in house.of(Note, house.pass_time(5.0)) if n.decision == "shortage"] == []


def test_short_revisions_get_freed_places_in_turn(build) -> None:
    house = build()
    house.agent(mib=256 * 2)
    for name in ("f", "g", "h"):
        house.revision(name)
    house.calls(2, "f")
    house.calls(2, "g")
    house.calls(2, "h")
    out = house.lost("w-1", "w-2")
    house.pass_time(1.0)
    assert [one.revision for one in out if house.started([one])] == ["g", "h"]


def test_a_requested_worker_starts_and_is_held_though_nothing_is_routed(house) -> None:
    house.revision(reachable=False, idle_timeout_s=5.0)
    assert house.started(house.tell(events.WorkerRequested("f", "it proves itself"))) == ["w-1"]
    assert house.started(house.tell(events.WorkerRequested("f", "again"))) == []
    house.pass_time(30.0)
    house.ready("w-1")
    house.pass_time(4.9)
    assert house.states() == {"w-1": "ready"}
    house.pass_time(0.2)
    assert house.states() == {"w-1": "draining"}


def test_a_requested_worker_that_cannot_start_is_not_tried_for_ever(build) -> None:
    house = build(request_expires_s=100.0)
    house.agent()
    house.revision(reachable=False)
    house.tell(events.WorkerRequested("f", "it proves itself"))
    assert house.started(house.failed("w-1")) == []
    assert house.started(house.pass_time(1.0)) == ["w-2"]  # not its own fault: again
    house.failed("w-2", by_function=True)
    assert house.started(house.pass_time(1000.0)) == []
    house.tell(events.WorkerRequested("f", "once more"))
    assert house.started(house.pass_time(99.0)) == ["w-4"] or house.states()


def test_a_proved_revision_that_becomes_reachable_keeps_its_worker_for_the_idle_timeout(house) -> None:
    house.revision(reachable=False, idle_timeout_s=5.0)
    house.tell(events.WorkerRequested("f", "it proves itself"))
    house.ready("w-1")
    house.pass_time(4.0)
    house.revision(idle_timeout_s=5.0)
    house.pass_time(4.0)
    assert house.sent(house.call("one")) == [("one", "w-1", "hot")]


def test_a_removed_revision_rejects_who_waits_and_drains_its_workers(house) -> None:
    house.revision(max_workers=2)
    house.ready(*house.started(house.calls(3))[:1])
    out = house.tell(events.RevisionRemoved("f"))
    assert [(one.invocation, one.code) for one in house.of(Reject, out)] == [
        ("f-1", "revision_removed"),
        ("f-2", "revision_removed"),
    ]
    assert house.stopped(out) == ["w-2"]
    assert house.stopped(house.finish("f-0")) == ["w-1"]
    assert house.view() is None
    assert house.of(Reject, house.call("late"))[0].code == "unknown_revision"


def test_a_removed_revision_can_come_back_while_its_old_workers_drain(house) -> None:
    house.revision()
    house.ready(*house.started(house.call("one")))
    house.tell(events.RevisionRemoved("f"))
    house.revision()
    assert house.started(house.call("two")) == ["w-2"]
    assert house.stopped(house.finish("one")) == ["w-1"]
    assert house.sent(house.ready("w-2")) == [("two", "w-2", "warm")]


def test_what_makes_a_revision_cannot_change_under_it(house) -> None:
    house.revision(concurrency=2)
    (note,) = house.of(Note, house.revision(concurrency=5, environment="else"))
    assert note.decision == "settings"
    assert len(house.started(house.calls(4))) == 2


def test_states_move_only_as_the_table_says(house) -> None:
    house.revision()
    house.ready(*house.started(house.call("one")))
    worker = house.pool._supply.workers["w-1"]
    with pytest.raises(IllegalMove, match="ready -> starting"):
        worker.move(WorkerState.STARTING)


def test_a_late_failure_of_a_ready_worker_is_ignored(house) -> None:
    house.revision()
    house.ready(*house.started(house.call("one")))
    assert house.failed("w-1", by_function=True) == []
    assert house.states() == {"w-1": "ready"}
