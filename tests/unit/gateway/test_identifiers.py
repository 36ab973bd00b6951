"""Call ids."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.identifiers import Uuid7, arrival_ms

MS = 1_000_000


def maker(times_ms: Iterable[int], entropy: bytes = bytes(range(16))) -> Uuid7:
    clock = iter(times_ms)
    return Uuid7(clock=lambda: next(clock) * MS, entropy=lambda n: entropy[:n])


def test_an_id_is_a_version_7_uuid_of_the_rfc_variant_with_its_time() -> None:
    made = maker([1_733_020_000_123])()
    parsed = uuid.UUID(made)
    assert (parsed.version, parsed.variant) == (7, uuid.RFC_4122)
    assert str(parsed) == made
    assert arrival_ms(made) == 1_733_020_000_123


@given(st.lists(st.integers(0, 5), min_size=2, max_size=200), st.binary(min_size=16, max_size=16))
def test_ids_rise_whatever_the_clock_and_the_entropy_do(steps: list[int], entropy: bytes) -> None:
    make = maker([1_000_000 + step for step in steps], entropy)
    made = [make() for _ in steps]
    assert made == sorted(set(made))
    assert all(uuid.UUID(one).version == 7 for one in made)


def test_many_ids_in_one_millisecond_rise_and_the_time_moves_on_when_the_counter_is_full() -> None:
    # The highest first tail and the largest step: the counter is full after 2**33 ids; shorten the way there.
    make = maker([5] * 10, b"\xff" * 16)
    first = make()
    make._tail = (1 << 74) - 1
    second = make()
    assert second > first
    assert (arrival_ms(first), arrival_ms(second)) == (5, 6)


def test_two_makers_do_not_meet() -> None:
    one, other = Uuid7(), Uuid7()
    assert not {one() for _ in range(1000)} & {other() for _ in range(1000)}


@pytest.mark.parametrize("text", ["", "x", "0193a5b2-7c1e-4abc-8def-0123456789ab", "0193a5b27c1e7abc8def0123456789ab"])
def test_what_is_no_uuid7_has_no_arrival_time(text: str) -> None:
    with pytest.raises(ValueError, match="not a UUIDv7"):
        arrival_ms(text)
