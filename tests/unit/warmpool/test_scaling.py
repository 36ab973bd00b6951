from __future__ import annotations

from warmpool.commands import Note


def busy_house(house, workers: int, **scale):
    """A concurrency-1 revision with so many idle workers, all used."""
    house.revision(**scale)
    house.ready(*house.started(house.calls(workers)))
    house.finish(*(f"f-{n}" for n in range(workers)))
    return house


def test_after_the_idle_timeout_the_workers_go_to_zero(house) -> None:
    busy_house(house, 3, idle_timeout_s=5.0)
    house.pass_time(4.9)
    assert "ready" in house.states().values()
    house.pass_time(0.2)
    assert set(house.states().values()) == {"draining"}
    assert house.pool.next_due(house.now) is None
    house.lost("w-1", "w-2", "w-3")
    assert house.states() == {}


def test_the_last_worker_is_kept_until_then_though_the_autoscaler_wants_none(house) -> None:
    busy_house(house, 8, idle_timeout_s=600.0, stable_window_s=6.0)
    house.pass_time(100.0)
    states = list(house.states().values())
    assert states.count("ready") == 1


def test_the_reason_says_that_the_last_worker_stays_against_the_autoscaler(house) -> None:
    busy_house(house, 1, idle_timeout_s=600.0)
    house.pass_time(100.0)
    assert "want 0; the last worker stays: idle for" in house.view().reason


def test_the_autoscaler_takes_surplus_workers_at_its_pace(house) -> None:
    busy_house(house, 16, idle_timeout_s=600.0, stable_window_s=6.0)
    ready = []
    for _ in range(5):
        house.pass_time(2.0)
        ready.append(list(house.states().values()).count("ready"))
    assert ready == [8, 4, 2, 1, 1]


def test_the_longest_idle_worker_goes_first(house) -> None:
    house.revision(idle_timeout_s=600.0)
    house.ready(*house.started(house.calls(3)))
    for name in ("f-1", "f-0", "f-2"):
        house.finish(name)
        house.now += 0.1
    assert house.stopped(house.pass_time(2.0)) == ["w-2", "w-1"]


def test_the_minimum_is_started_and_kept_without_calls(house) -> None:
    out = house.revision(min_workers=2, idle_timeout_s=1.0)
    assert house.started(out) == ["w-1", "w-2"]
    house.ready("w-1", "w-2")
    house.pass_time(100.0)
    assert list(house.states().values()) == ["ready", "ready"]
    assert house.pool.next_due(house.now) is None  # at rest
    assert house.started(house.lost("w-1")) == []  # it died unused: not again at once
    assert house.started(house.pass_time(1.1)) == ["w-3"]


def test_the_maximum_counts_draining_workers_too(house) -> None:
    busy_house(house, 1, max_workers=1, idle_timeout_s=2.0)
    house.pass_time(2.0)
    assert house.states() == {"w-1": "draining"}
    assert house.started(house.call("more")) == []
    assert house.started(house.lost("w-1")) == ["w-2"]


def test_a_call_around_the_edge_of_sleep_is_answered(house) -> None:
    busy_house(house, 1, idle_timeout_s=2.0)
    house.pass_time(2.0)
    assert house.states() == {"w-1": "draining"}
    assert house.started(house.call("late")) == ["w-2"]
    house.lost("w-1")
    assert house.sent(house.ready("w-2")) == [("late", "w-2", "warm")]


def test_a_remembered_burst_does_not_raise_workers_for_the_next_single_call(house) -> None:
    house.revision(idle_timeout_s=2.0, target_utilisation=0.9)
    house.ready(*house.started(house.calls(30)))
    more = house.started(house.pass_time(8.0))  # thirty calls at once for eight seconds
    assert len(more) == 4  # ceil(30 / 0.9) in all
    house.ready(*more)
    house.finish(*(f"f-{n}" for n in range(30)))
    house.pass_time(2.0)
    house.lost(*house.states())
    house.ready(*house.started(house.call("single")))
    assert len(house.started(house.pass_time(10.0))) == 1  # ceil(1 / 0.9) in all


def test_sustained_load_gets_the_autoscalers_headroom(house) -> None:
    house.revision(concurrency=10)
    out = house.calls(20)
    assert len(house.started(out)) == 2
    house.ready(*house.started(out))
    out = house.pass_time(4.0)
    assert len(house.started(out)) == 1  # ceil(20 / 7)
    notes = [note.reason for note in house.of(Note, out) if note.decision == "scale"]
    assert notes
    assert "2 -> 3 workers" in notes[0]


def test_surplus_workers_that_share_calls_leave_when_they_are_idle(house) -> None:
    house.revision(concurrency=10, idle_timeout_s=600.0, stable_window_s=6.0)
    house.ready(*house.started(house.calls(40)))
    house.finish(*(f"f-{n}" for n in range(40) if n % 10))  # one call on each of four workers
    house.pass_time(10.0)
    assert list(house.states().values()) == ["ready"] * 4  # nobody busy is stopped
    stopped = house.stopped(house.finish("f-0", "f-10", "f-20"))
    assert len(stopped) >= 2


def test_an_unreachable_revision_serves_its_queue_then_goes_to_zero(house) -> None:
    house.revision(max_workers=1, min_workers=1, idle_timeout_s=600.0)
    house.ready("w-1")
    house.calls(2)
    house.revision(max_workers=1, min_workers=1, idle_timeout_s=600.0, reachable=False)
    assert house.sent(house.finish("f-0")) == [("f-1", "w-1", "hot")]
    house.finish("f-1")
    house.pass_time(0.1)
    assert house.states() == {"w-1": "draining"}


def test_a_tick_touches_only_what_is_due(house) -> None:
    for n in range(200):
        house.specs.clear()
        house.revision(f"sleeper-{n}")
    assert house.pass_time(1000.0) == []
    assert house.pool.next_due(house.now) is None


def test_changed_windows_do_not_scale_a_live_revision_down(house) -> None:
    busy_house(house, 8, idle_timeout_s=600.0)
    house.calls(8, first=100)
    house.revision(idle_timeout_s=600.0, stable_window_s=6.0)
    house.finish(*(f"f-{n}" for n in range(101, 108)))
    house.pass_time(5.0)
    assert list(house.states().values()).count("ready") == 8
