from __future__ import annotations

import json

from loadtests.bench.table import BEGIN, END, Row, as_json, failed, inserted, markdown, text

ROWS = [
    Row("fast", "10/s", "20/s", "50%", ">= 40%", True, note="as hoped", values={"per_s": 10.0}),
    Row("slow", "1/s", "20/s", "5%", ">= 40%", False),
    Row("told", "7 MiB"),
    failed("broken", "OSError: no such thing"),
]


def test_text_says_met_missed_and_error() -> None:
    lines = text(ROWS).splitlines()
    assert lines[0].split() == ["row", "measured", "control", "ratio", "bound", "met"]
    assert lines[2].endswith("yes")
    assert lines[3].endswith("NO")
    assert lines[4].split() == ["told", "7", "MiB"]
    assert lines[5].endswith("error")
    assert "broken: OSError: no such thing" in text(ROWS)
    assert "fast: as hoped" in text(ROWS)


def test_markdown_escapes_bars_and_names_the_machine() -> None:
    written = markdown([Row("a|b", "1")], "a machine")
    assert "a\\|b" in written
    assert written.startswith("Measured on a machine.")


def test_a_table_replaces_only_what_is_between_the_marks() -> None:
    document = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    assert inserted(document, "new\n") == f"before\n{BEGIN}\nnew\n{END}\nafter\n"


def test_a_document_without_marks_becomes_the_table() -> None:
    assert inserted("", "new\n") == "new\n"


def test_json_holds_the_raw_numbers() -> None:
    told = json.loads(json.dumps(as_json(ROWS, {"cpu": "x"})))
    assert told["environment"] == {"cpu": "x"}
    assert told["rows"][0]["values"] == {"per_s": 10.0}
    assert told["rows"][3]["error"] == "OSError: no such thing"
