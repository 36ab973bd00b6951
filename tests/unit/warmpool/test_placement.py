from __future__ import annotations

from warmpool.placement import FreeSlice, PlacementParams, choose_slice
from warmpool.values import Need

MIB = 1024 * 1024
NEED = Need(cpu_millis=500, memory_bytes=256 * MIB)


def free(name: str, mib: int, **rest) -> FreeSlice:
    fields = {"kind": "cpu", "workers": 4, "cpu_millis": 1000, "forkable": False} | rest
    return FreeSlice("a", name, fields["kind"], mib * MIB, fields["workers"], fields["cpu_millis"], fields["forkable"])


def chosen(*slices: FreeSlice, params: PlacementParams | None = None) -> str | None:
    placement = choose_slice(NEED, slices, params or PlacementParams())
    return placement.slice_id if placement is not None else None


def test_the_tightest_slice_that_fits_is_chosen() -> None:
    assert chosen(free("big", 2000), free("small", 100), free("fits", 256), free("more", 300)) == "fits"


def test_kind_memory_and_places_are_conditions() -> None:
    assert chosen(free("gpu", 900, kind="1g.10gb"), free("small", 255), free("crowded", 900, workers=0)) is None
    assert chosen() is None


def test_an_agent_that_can_fork_comes_before_a_tighter_fit() -> None:
    slices = (free("tight", 256), free("loaded", 4000, forkable=True))
    assert chosen(*slices) == "loaded"
    assert chosen(*slices, params=PlacementParams(prefer_forkable=False)) == "tight"


def test_too_little_cpu_is_the_last_choice_but_a_choice() -> None:
    assert chosen(free("slow", 256, cpu_millis=100), free("fast", 4000)) == "fast"
    assert chosen(free("slow", 256, cpu_millis=100)) == "slow"


def test_equals_go_by_name_whatever_the_order() -> None:
    one, two = free("one", 512), free("two", 512)
    assert chosen(one, two) == chosen(two, one) == "one"


def test_the_reason_says_how_tight_it_is() -> None:
    placement = choose_slice(NEED, [free("a", 300)], PlacementParams())
    assert placement is not None
    assert placement.reason == "tightest fit of 1 slices, 44 MiB left"
