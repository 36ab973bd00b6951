"""The worker's spec on the wire."""

from __future__ import annotations

from runtime.spec import WorkerSpec

SPEC = WorkerSpec("w", "unix:/s", "t", "ns", "fn", 3, "env", "/python", "/bundle", "handler:main", variables={"A": "b"})


def test_a_spec_comes_back_as_it_was() -> None:
    assert WorkerSpec.from_dict(SPEC.as_dict()) == SPEC


def test_keys_of_a_newer_gateway_are_ignored() -> None:
    assert WorkerSpec.from_dict(SPEC.as_dict() | {"later": 1}) == SPEC
