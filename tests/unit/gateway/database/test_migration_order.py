"""Which migrations run."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.database.migrations import Migration, SchemaMismatch, load_migrations, pending

ONE, TWO = Migration(1, "one", "SELECT 1;"), Migration(2, "two", "SELECT 2;")


def done(*migrations: Migration) -> list[tuple[int, str, str]]:
    return [(m.number, m.name, m.checksum) for m in migrations]


def test_what_has_not_run_is_pending_in_order() -> None:
    assert pending([ONE, TWO], []) == [ONE, TWO]
    assert pending([ONE, TWO], done(ONE)) == [TWO]
    assert pending([ONE, TWO], done(ONE, TWO)) == []


def test_a_database_of_a_newer_samovar_is_refused() -> None:
    with pytest.raises(SchemaMismatch, match="0002_two, which this Samovar does not know"):
        pending([ONE], done(ONE, TWO))


def test_an_edited_migration_is_refused() -> None:
    with pytest.raises(SchemaMismatch, match="0001_one was edited"):
        pending([Migration(1, "one", "SELECT 11;")], done(ONE))


def test_files_are_read_in_order_and_a_gap_is_refused(tmp_path: Path) -> None:
    (tmp_path / "0001_one.sql").write_text(ONE.sql)
    (tmp_path / "0002_two.sql").write_text(TWO.sql)
    assert load_migrations(tmp_path) == [ONE, TWO]
    (tmp_path / "0004_four.sql").write_text("SELECT 4;")
    with pytest.raises(SchemaMismatch, match="0004 stands where 0003 should"):
        load_migrations(tmp_path)


def test_a_misspelt_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "1-one.sql").write_text(ONE.sql)
    with pytest.raises(SchemaMismatch, match="NNNN_words"):
        load_migrations(tmp_path)


def test_the_shipped_migrations_are_in_order() -> None:
    assert load_migrations()
