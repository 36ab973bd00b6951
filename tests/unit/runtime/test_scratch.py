"""Workers' private directories."""

from __future__ import annotations

from pathlib import Path

import pytest

from runtime.scratch import Scratch, make, remove


def test_leftovers_of_a_killed_agent_are_cleared(tmp_path: Path) -> None:
    root = tmp_path / "scratch"
    Scratch(root).prepare()
    make(root / "w1")
    (root / "w1" / "file").write_text("x")
    Scratch(root).prepare()
    assert not (root / "w1").exists()


def test_a_directory_with_other_peoples_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    scratch = Scratch(tmp_path)
    scratch.prepare()
    scratch.prepare()
    assert (tmp_path / "thesis.tex").exists()


def test_a_workers_directory_is_private_and_new(tmp_path: Path) -> None:
    make(tmp_path / "a" / "w1")
    assert (tmp_path / "a" / "w1").stat().st_mode & 0o777 == 0o700
    with pytest.raises(FileExistsError):
        make(tmp_path / "a" / "w1")


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".zygote"])
def test_names_that_lead_elsewhere_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="worker"):
        Scratch(tmp_path).path_for(name)


def test_removal_follows_no_link_and_minds_no_mode(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("x")
    place = tmp_path / "w1"
    (place / "locked" / "deep").mkdir(parents=True)
    (place / "locked" / "deep" / "file").write_text("x")
    (place / "link").symlink_to(kept)
    (place / "locked" / "deep").chmod(0)
    (place / "locked").chmod(0o500)
    remove(place)
    assert not place.exists()
    assert (kept / "file").exists()
    remove(place)  # gone already: fine
