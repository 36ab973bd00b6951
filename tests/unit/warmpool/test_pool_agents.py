from __future__ import annotations

from warmpool import events
from warmpool.commands import DropEnvironment, LoadEnvironment, StartWorker, StopWorker


def test_the_first_worker_of_an_environment_is_cold_and_loads_it(build) -> None:
    house = build()
    house.agent(environments=())
    house.revision(preload=("numpy",))
    out = house.call("one")
    assert out[0] == LoadEnvironment("a", "env", ("numpy",), out[0].reason)
    assert [one.start_kind for one in house.of(StartWorker, out)] == ["cold"]
    second = house.call("two")
    assert house.of(LoadEnvironment, second) == []  # it is being loaded
    assert house.of(StartWorker, second)[0].start_kind == "cold"
    house.tell(events.EnvironmentLoaded("a", "env", True, ""))
    assert house.of(StartWorker, house.call("three"))[0].start_kind == "warm"


def test_an_environment_that_may_not_be_forked_starts_cold_and_is_not_loaded_again(build) -> None:
    house = build()
    house.agent(environments=())
    house.revision()
    house.call("one")
    house.tell(events.EnvironmentLoaded("a", "env", False, "threads at import"))
    out = house.call("two")
    assert house.of(LoadEnvironment, out) == []
    assert house.of(StartWorker, out)[0].start_kind == "cold"


def test_new_modules_to_import_are_told_to_the_agents_that_have_the_environment(build) -> None:
    house = build()
    house.agent("a", environments=())
    house.agent("b", environments=())
    house.revision("f", preload=("numpy",))
    house.call("one")
    (load,) = house.of(LoadEnvironment, house.revision("g", preload=("scipy", "numpy")))
    assert (load.agent, load.preload) == ("a", ("numpy", "scipy"))
    assert house.of(LoadEnvironment, house.revision("g", preload=("scipy",))) == []


def test_a_failed_environment_is_tried_again_after_a_while(build) -> None:
    house = build()
    house.agent(environments=())
    house.revision()
    house.call("one")
    house.tell(events.EnvironmentFailed("a", "env", "no such interpreter"))
    assert house.of(LoadEnvironment, house.call("two")) == []
    house.now += 1.0
    assert len(house.of(LoadEnvironment, house.call("three"))) == 1


def test_an_environment_without_revisions_is_dropped(build) -> None:
    house = build()
    house.revision("f")
    house.revision("g")
    house.agent(environments=("env",))
    assert house.of(DropEnvironment, house.tell(events.RevisionRemoved("f"))) == []
    (drop,) = house.of(DropEnvironment, house.tell(events.RevisionRemoved("g")))
    assert (drop.agent, drop.environment) == ("a", "env")
    (late,) = house.tell(events.EnvironmentLoaded("a", "env", True, ""))
    assert type(late) is DropEnvironment


def test_the_environment_unused_longest_makes_room_on_a_full_agent(build) -> None:
    house = build(max_environments_per_agent=2)
    house.agent(environments=())
    for name in ("f", "g", "h"):
        house.revision(name, environment=f"env-{name}")
    for name in ("f", "g", "f"):
        house.ready(*house.started(house.call(f"{name}{house.now}", name)))
        house.now += 1.0
    out = house.call("one", "h")
    assert [(one.environment) for one in house.of(DropEnvironment, out)] == ["env-g"]
    assert len(house.started(out)) == 1


def test_an_environment_is_not_dropped_under_a_worker_that_starts_from_it(build) -> None:
    house = build(max_environments_per_agent=1)
    house.agent(environments=())
    house.revision("f", environment="env-f")
    house.revision("g", environment="env-g")
    house.call("one", "f")
    assert house.started(house.call("two", "g")) == []
    out = house.ready("w-1")
    assert [one.environment for one in house.of(DropEnvironment, out)] == ["env-f"]
    assert house.started(out) == ["w-2"]


def test_workers_found_running_are_adopted_and_serve_who_waits(build) -> None:
    house = build()
    house.revision(idle_timeout_s=600.0)
    house.calls(2)
    held = [(f"old-{n}", "f", "a/0") for n in range(8)]
    out = house.agent(held=held)
    assert house.sent(out) == [("f-0", "old-0", "hot"), ("f-1", "old-1", "hot")]
    assert house.started(out) == house.stopped(out) == []
    house.finish("f-0", "f-1")
    assert house.stopped(house.pass_time(30.0)) == []  # not for lack of history
    assert list(house.states().values()) == ["ready"] * 8
    assert house.stopped(house.pass_time(60.0)) != []


def test_workers_nobody_knows_are_stopped(build) -> None:
    house = build()
    house.revision(max_workers=1)
    held = [("x", "nobody", "a/0"), ("y", "f", "a/9"), ("z", "f", "a/0"), ("zz", "f", "a/0")]
    out = house.agent(held=held)
    assert house.stopped(out) == ["x", "y", "zz"]
    assert house.states() == {"z": "ready"}
    assert all(one.reason for one in house.of(StopWorker, out))


def test_an_agents_report_is_the_truth_about_its_ready_workers(house) -> None:
    house.revision()
    house.ready(*house.started(house.calls(2)))
    house.call("three")
    out = house.agent(held=[("w-2", "f", "a/0")])
    assert house.stopped(out) == ["w-1"]
    states = house.states()
    assert "w-1" not in states
    assert (states["w-2"], states["w-3"]) == ("ready", "starting")
    assert house.finish("f-0") == []
    assert house.agent(held=[("w-2", "f", "a/0")]) == []


def test_an_adopted_worker_that_was_told_to_stop_is_told_again(house) -> None:
    house.revision(idle_timeout_s=1.0)
    house.ready(*house.started(house.call("one")))
    house.finish("one")
    house.pass_time(1.0)
    assert house.stopped(house.agent(held=[("w-1", "f", "a/0")])) == ["w-1"]
    assert house.states() == {"w-1": "draining"}
    assert house.agent() == []
    assert house.states() == {}


def test_a_lost_agent_takes_its_workers_and_calls_go_on_elsewhere(house) -> None:
    house.agent("b")
    house.revision(max_workers=2)
    house.ready(*house.started(house.calls(4)))
    assert {view.agent for view in house.pool.workers()} == {"a"}
    out = house.tell(events.AgentLost("a"))
    assert [(one.agent, one.revision) for one in house.of(StartWorker, out)] == [("b", "f"), ("b", "f")]
    assert house.finish("f-0", "f-1") == []
    assert house.tell(events.AgentLost("a")) == []


def test_a_slice_that_is_no_more_takes_its_workers_with_it(house) -> None:
    house.revision()
    house.agent("a", slices=2, mib=512)
    out = house.calls(4)
    house.ready(*house.started(out))
    homes = {view.worker: view.slice_id for view in house.pool.workers()}
    out = house.agent("a", slices=1, mib=512, held=[(w, "f", home) for w, home in homes.items()])
    assert house.stopped(out) == [worker for worker, home in homes.items() if home == "a/1"]


def test_a_slice_that_shrank_takes_nobody_new_until_it_has_room(house) -> None:
    house.revision()
    house.ready(*house.started(house.calls(3)))
    held = [(f"w-{n}", "f", "a/0") for n in (1, 2, 3)]
    house.agent(mib=512, held=held)
    assert len(house.states()) == 3
    house.call("more")
    assert house.started(house.lost("w-1")) == []
    assert house.started(house.lost("w-2")) == ["w-4"]


def test_what_an_unknown_agent_says_of_environments_is_ignored(house) -> None:
    assert house.tell(events.EnvironmentLoaded("nobody", "env", True, "")) == []
    assert house.tell(events.EnvironmentFailed("nobody", "env", "?")) == []
