"""Seeded lives of the pool, with faults. The world raises on any contradiction; see loadtests/world.py for its list."""

from __future__ import annotations

import pytest

from loadtests.world import Plan, World
from warmpool.commands import Dispatch, LoadEnvironment, Reject, StartWorker, StopWorker

#: Seeds that once found a fault, with what it was. Never removed.
REGRESSIONS = {
    38: "a place freed for a waiting call was given to another revision's minimum, again and again",
}
SHORT = Plan(seconds=25.0)


@pytest.mark.parametrize("seed", range(1_000, 1_010))
def test_a_rough_life_holds_every_invariant_and_comes_to_rest(seed: int) -> None:
    world = World(seed, SHORT)
    world.run()
    kinds = {type(command) for command in world.commands}
    assert {Dispatch, StartWorker, StopWorker, LoadEnvironment} <= kinds


@pytest.mark.parametrize("seed", sorted(REGRESSIONS))
def test_a_seed_that_once_found_a_fault_finds_none(seed: int) -> None:
    World(seed).run()


def test_without_faults_and_with_room_every_call_is_dispatched() -> None:
    plan = Plan(
        seconds=15.0,
        start_failure=0.0,
        worker_deaths_per_s=1e-9,
        agent_losses_per_s=1e-9,
        changes_per_s=1e-9,
        patience_s=0.0,
        queue_limits=(1000,),
        revisions=3,
    )
    world = World(7, plan)
    world.run()
    rejected = [command for command in world.commands if type(command) is Reject]
    dispatched = [command for command in world.commands if type(command) is Dispatch]
    assert rejected == []
    assert len(dispatched) == len(world.call_revision) > 100


def test_a_tight_house_rejects_but_loses_nobody() -> None:
    plan = Plan(seconds=15.0, agents=1, calls_per_s=60.0, burst_chance=0.2)
    world = World(11, plan)
    world.run()
    codes = {command.code for command in world.commands if type(command) is Reject}
    assert "queue_full" in codes
