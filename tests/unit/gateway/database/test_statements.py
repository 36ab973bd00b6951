"""Named SQL."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.database.statements import SQL_DIRECTORY, BadStatements, load_statements, parse_statements


def test_a_name_opens_a_statement_that_runs_to_the_next() -> None:
    found = parse_statements("-- a file\n\n-- name: one\nSELECT 1;\n-- a note\n-- name: two\nSELECT\n  2;\n", "x.sql")
    assert found == {"one": "SELECT 1;\n-- a note", "two": "SELECT\n  2;"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT 1;", "x.sql:1: SQL before the first name"),
        ("-- name: one\nSELECT 1;\n-- name: one\nSELECT 2;", "x.sql:3: a second statement named 'one'"),
        ("-- name: one\n-- only a note\n", "'one' is empty"),
        ("-- name: one-two\nSELECT 1;", "'one-two' is not a name"),
    ],
)
def test_a_bad_file_is_refused_with_file_and_line(text: str, said: str) -> None:
    with pytest.raises(BadStatements, match=said):
        parse_statements(text, "x.sql")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadStatements, match=r"nothing\.sql cannot be read"):
        load_statements("nothing", tmp_path)


def test_every_file_that_is_shipped_can_be_read() -> None:
    for path in SQL_DIRECTORY.glob("*.sql"):
        assert load_statements(path.stem)
