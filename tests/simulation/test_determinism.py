"""The same seed gives the same commands, whatever the process; and a recorded log gives them again."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

from loadtests.world import Plan, World
from warmpool.pool import WarmPool

PLAN = Plan(seconds=15.0)
SEED = 4_711


def digest_of_a_life(seed: int = SEED) -> str:
    world = World(seed, PLAN)
    world.run()
    return hashlib.sha256(repr((world.log, world.commands)).encode()).hexdigest()


def test_the_same_seed_gives_the_same_commands_under_any_hash_seed() -> None:
    script = (
        "import hashlib; from loadtests.world import Plan, World\n"
        f"world = World({SEED}, Plan(seconds={PLAN.seconds})); world.run()\n"
        "print(hashlib.sha256(repr((world.log, world.commands)).encode()).hexdigest())"
    )
    digests = {digest_of_a_life()}
    for hash_seed in ("1", "4242"):
        done = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=100,
        )
        digests.add(done.stdout.strip())
    assert len(digests) == 1


def test_another_seed_gives_another_life() -> None:
    assert digest_of_a_life(1) != digest_of_a_life(2)


def test_a_recorded_log_replayed_into_a_fresh_pool_gives_the_same_commands() -> None:
    world = World(SEED, PLAN)
    world.run()
    fresh = WarmPool(PLAN.params)
    again = [command for now, event in world.log for command in fresh.handle(event, now)]
    assert again == world.commands
    assert fresh.workers() == world.pool.workers()


def test_looking_at_the_pool_changes_nothing() -> None:
    world = World(SEED, PLAN)
    world.run()
    fresh = WarmPool(PLAN.params)
    again = []
    for now, event in world.log:
        fresh.check()
        fresh.next_due(now)
        again += fresh.handle(event, now)
    assert again == world.commands
