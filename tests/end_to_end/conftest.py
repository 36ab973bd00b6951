"""A whole Samovar for a test: the gateway as its users start it, real services, real workers, a free port."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from house import Samovar


@pytest.fixture(scope="session")
def samovar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Samovar]:
    """One gateway for all tests that do not hurt it."""
    house = Samovar(tmp_path_factory.mktemp("house") / "data")
    house.start()
    yield house
    assert house.process.poll() is None, f"the gateway died:\n{house.log_text()[-4000:]}"
    house.stop()


@pytest.fixture
def own_samovar(tmp_path: Path) -> Iterator[Samovar]:
    """A gateway of this test's own, to be killed and restarted."""
    house = Samovar(tmp_path / "data")
    yield house
    if getattr(house, "process", None) is not None and house.process.poll() is None:
        house.stop()
