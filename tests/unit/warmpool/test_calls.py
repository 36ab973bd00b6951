from __future__ import annotations

from warmpool.commands import Reject, StartWorker


def test_the_first_call_waits_for_a_worker_and_the_second_finds_it_hot(house) -> None:
    house.revision()
    assert house.started(house.call("one")) == ["w-1"]
    assert house.sent(house.ready("w-1")) == [("one", "w-1", "warm")]
    house.finish("one")
    assert house.sent(house.call("two")) == [("two", "w-1", "hot")]


def test_a_burst_of_first_calls_gets_a_worker_each_and_none_is_refused(house) -> None:
    house.revision()
    out = house.calls(50)
    assert len(house.started(out)) == 50
    assert not house.of(Reject, out)
    sent = house.sent(house.ready(*house.started(out)))
    assert [name for name, _, _ in sent] == [f"f-{n}" for n in range(50)]


def test_starting_workers_are_counted_with_all_the_calls_they_will_take(house) -> None:
    house.revision(concurrency=10)
    assert len(house.started(house.calls(10))) == 1
    assert len(house.started(house.calls(11, first=10))) == 2
    assert len(house.sent(house.ready("w-1"))) == 10


def test_the_next_free_worker_takes_the_next_call_in_order(house) -> None:
    house.revision(max_workers=2)
    out = house.calls(6)
    house.ready(*house.started(out))
    assert house.sent(house.finish("f-1")) == [("f-2", "w-2", "warm")]
    assert house.sent(house.finish("f-0")) == [("f-3", "w-1", "warm")]
    assert house.sent(house.finish("f-3", "f-2")) == [("f-4", "w-1", "warm"), ("f-5", "w-2", "warm")]


def test_a_call_that_waited_behind_others_on_a_ready_worker_is_hot(house) -> None:
    house.revision(max_workers=1)
    house.ready(*house.started(house.call("one")))
    house.call("two")
    assert house.sent(house.finish("one")) == [("two", "w-1", "hot")]


def test_a_cancelled_call_only_leaves_the_queue(house) -> None:
    house.revision(max_workers=1)
    out = house.calls(3)
    assert house.cancel("f-1") == []
    assert [name for name, _, _ in house.sent(house.ready(*house.started(out)))] == ["f-0"]
    assert [name for name, _, _ in house.sent(house.finish("f-0"))] == ["f-2"]
    assert house.cancel("f-2") == []
    assert house.view().running == 1


def test_a_full_queue_of_the_revision_rejects_with_a_time_to_retry(house) -> None:
    house.revision(max_workers=1, queue_limit=2)
    house.calls(2)
    (reject,) = house.of(Reject, house.call("more"))
    assert (reject.invocation, reject.code) == ("more", "queue_full")
    assert reject.retry_after_s >= 1.0
    assert "2 calls" in reject.reason


def test_a_full_queue_of_the_pool_rejects_whatever_the_revision(build) -> None:
    house = build(max_queued=3)
    house.revision("f")
    house.revision("g")
    house.calls(3, "f")
    (reject,) = house.of(Reject, house.call("more", "g"))
    assert reject.code == "queue_full"
    house.cancel("f-0")
    assert house.call("again", "g") != [reject]
    assert house.view("g").queued == 1


def test_retry_after_is_the_time_the_queue_takes_at_the_present_rate(house) -> None:
    house.revision(max_workers=1, queue_limit=40)
    house.ready(*house.started(house.call("f-0")))
    for n in range(1, 21):
        house.call(f"f-{n}")
        house.finish(f"f-{n - 1}")
    house.pass_time(2.0)  # twenty ended in two seconds
    house.calls(40, first=21)
    (reject,) = house.of(Reject, house.call("more"))
    assert 3.9 <= reject.retry_after_s <= 4.1


def test_an_unknown_revision_is_rejected(house) -> None:
    (reject,) = house.call("one", "nobody")
    assert reject.code == "unknown_revision"


def test_duplicate_late_and_unknown_events_change_nothing(house) -> None:
    house.revision(max_workers=1)
    house.calls(2)
    assert house.call("f-0") == house.call("f-1") == []  # both wait
    assert house.finish("f-0", "nobody") == []
    house.ready("w-1")
    assert house.call("f-0") == []  # it runs
    assert house.ready("w-1", "nobody") == []
    house.finish("f-0", "f-1")
    assert house.finish("f-0", "f-1") == []
    assert house.cancel("f-1") == []
    assert (house.view().queued, house.view().running) == (0, 0)


def test_with_no_agent_a_call_waits_until_one_joins(build) -> None:
    house = build()
    house.revision(target_utilisation=1.0)
    assert house.started(house.call("one")) == []
    house.pass_time(100.0)
    assert house.view().queued == 1
    assert house.started(house.agent()) == ["w-1"]


def test_a_ready_worker_that_is_leaving_takes_the_call_nobody_else_can(house) -> None:
    house.revision(concurrency=2, idle_timeout_s=1e6)
    house.calls(8)
    house.ready("w-1", "w-2", "w-3", "w-4")
    house.finish("f-1", "f-3", "f-5", "f-7")  # four workers with one call each
    house.revision(concurrency=2, idle_timeout_s=1e6, max_workers=2)
    assert house.of(StartWorker, house.calls(2, first=10)) == []  # the two that stay fill up
    sent = house.sent(house.calls(2, first=20))
    assert len(sent) == 2  # and then those that were to leave
    assert house.stopped(house.finish("f-0", "f-10", "f-20")) == []
