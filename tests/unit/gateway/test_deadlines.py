"""Many limits on one timer: each is told once, none early, and the timer rests when nothing is waited for."""

from __future__ import annotations

import asyncio
import time

from gateway.deadlines import Deadlines


class Waiting:
    def __init__(self) -> None:
        self.told_at: list[float] = []
        self.told = asyncio.Event()

    def on_deadline(self) -> None:
        self.told_at.append(time.monotonic())
        self.told.set()


async def test_a_limit_is_told_once_and_never_early() -> None:
    deadlines = Deadlines()
    now = time.monotonic()
    waiting = {at: Waiting() for at in (now - 1, now, now + 0.01, now + 0.06, now + 0.061)}
    for at, who in waiting.items():
        deadlines.set(who, at)
    for at, who in waiting.items():
        await asyncio.wait_for(who.told.wait(), 10)
        assert len(who.told_at) == 1
        assert who.told_at[0] >= at
    assert deadlines._timer is None, "nothing runs while nothing is waited for"


async def test_a_limit_that_was_cleared_is_not_told() -> None:
    deadlines = Deadlines()
    now = time.monotonic()
    cleared, kept = Waiting(), Waiting()
    tick = deadlines.set(cleared, now + 0.01)
    deadlines.set(kept, now + 0.02)
    deadlines.clear(cleared, tick)
    await asyncio.wait_for(kept.told.wait(), 10)
    deadlines.clear(kept, tick)
    assert not cleared.told_at


async def test_a_nearer_limit_set_later_is_told_first() -> None:
    deadlines = Deadlines()
    now = time.monotonic()
    far, near = Waiting(), Waiting()
    deadlines.set(far, now + 1000)
    deadlines.set(near, now + 0.01)
    await asyncio.wait_for(near.told.wait(), 10)
    assert not far.told_at


async def test_whoever_is_told_may_set_the_next_limit() -> None:
    deadlines = Deadlines()
    told = asyncio.Event()

    class Twice:
        times = 0

        def on_deadline(self) -> None:
            self.times += 1
            if self.times < 3:
                deadlines.set(self, time.monotonic())
            else:
                told.set()

    deadlines.set(Twice(), time.monotonic())
    await asyncio.wait_for(told.wait(), 10)
