"""Deploy, call, go to zero, come back, roll back, delete: what every tenant does."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from house import PROJECT, Samovar, manifest

COUNTER = """
import os
calls = 0
def main(event, context):
    global calls
    calls += 1
    return {"event": event, "calls": calls, "pid": os.getpid(), "version": context.function_version}
"""


def test_a_function_answers_hot_goes_to_zero_and_comes_back_warm(samovar: Samovar) -> None:
    samovar.deployed("life", COUNTER, scale={"idle_timeout": "500ms"})
    first = samovar.call("life", json={"n": 1})
    assert first.status_code == 200
    assert first.json()["event"] == {"n": 1}
    assert first.headers["x-samovar-start"] == "hot"
    assert first.headers["x-samovar-revision"] == "default/life@1"
    assert "queue;dur=" in first.headers["server-timing"]
    samovar.wait_for_zero("life")
    again = samovar.call("life", json={"n": 2})
    assert again.status_code == 200
    assert again.headers["x-samovar-start"] == "warm"
    assert again.json()["pid"] != first.json()["pid"]
    usage = samovar.usage("life")
    assert (usage["calls"], usage["hot"], usage["warm"], usage["errors"]) == (2, 1, 1, 0)


def test_a_failing_import_shows_the_traceback_and_the_old_revision_serves_on(samovar: Samovar) -> None:
    samovar.deployed("careful", "def main(event, context):\n    return 'one'\n")
    broken = "import json\nimport not_there_at_all\ndef main(event, context): return 'two'\n"
    last = samovar.deploy({"function.toml": manifest("careful"), "handler.py": broken})
    assert last["event"] == "failed"
    assert last["phase"] == "proof"
    assert "not_there_at_all" in last["error"]["message"]
    assert "import not_there_at_all" in last["error"]["detail"]["traceback"]
    assert "runtime" not in last["error"]["detail"]["traceback"]
    assert samovar.call("careful", json=None).json() == "one"


def test_rollback_switches_traffic_to_the_previous_revision(samovar: Samovar) -> None:
    for text in ("one", "two"):
        samovar.deployed("roll", f"def main(event, context):\n    return {text!r}\n")
    assert samovar.call("roll").json() == "two"
    answer = samovar.client.post("/api/v1/functions/default/roll/rollback", json={})
    assert answer.status_code == 200, answer.text
    assert answer.json()["revision"] == 1
    assert samovar.call("roll").json() == "one"
    assert samovar.call("roll").headers["x-samovar-revision"] == "default/roll@1"


def test_a_deleted_function_is_unknown_and_can_be_deployed_again(samovar: Samovar) -> None:
    samovar.deployed("gone", "def main(event, context):\n    return 1\n")
    assert samovar.client.delete("/api/v1/functions/default/gone").status_code == 200
    assert samovar.call("gone").status_code == 404
    samovar.wait_for_zero("gone")
    samovar.deployed("gone", "def main(event, context):\n    return 2\n")
    assert samovar.call("gone").json() == 2


def test_a_bad_manifest_is_refused_with_key_rule_and_line(samovar: Samovar) -> None:
    from house import bundle

    text = manifest("bad") + "concurency = 3\n"
    answer = samovar.client.post("/api/v1/functions/default", content=bundle({"function.toml": text, "handler.py": ""}))
    assert answer.status_code == 400
    message = answer.json()["error"]["message"]
    assert "concurency" in message
    assert "3" in message


def test_a_researchers_own_modules_win_over_ours_of_the_same_name(samovar: Samovar) -> None:
    files = {
        "function.toml": manifest("names"),
        "handler.py": """
            import runtime, gateway, warmpool, functions, msgpack, sys
            def main(event, context):
                return [m.MINE for m in (runtime, gateway, warmpool, functions, msgpack)]
        """,
    }
    for name in ("runtime", "gateway", "warmpool", "functions", "msgpack"):
        files[f"{name}.py"] = f"MINE = {name!r}\n"
    last = samovar.deploy(dict(files))
    assert last["event"] == "deployed", last
    assert samovar.call("names").json() == ["runtime", "gateway", "warmpool", "functions", "msgpack"]


def test_explain_and_logs_tell_what_happened(samovar: Samovar) -> None:
    code = "def main(event, context):\n    print('seen', event)\n    return 1\n"
    samovar.deployed("told", code)
    samovar.call("told", json=42)
    decisions = samovar.rows("functions/default/told/explain")
    assert any("start" in row["decision"] for row in decisions)
    assert all(row["reason"] for row in decisions)
    from house import wait_until

    def lines() -> bool:
        answer = samovar.client.get("/api/v1/functions/default/told/logs")
        return "seen 42" in answer.text

    wait_until(lines, "the line the handler printed is in the log")


SAMPLES = sorted(p.name for p in (PROJECT / "functions").iterdir() if (p / "function.toml").exists())


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_deploys_and_answers_as_its_folder_says(samovar: Samovar, name: str) -> None:
    folder = PROJECT / "functions" / name
    last = samovar.deploy_folder(folder)
    assert last["event"] == "deployed", last
    expected = json.loads((folder / "expected.json").read_text())
    body = (folder / expected["request"]).read_bytes() if "request" in expected else b""
    kind = "image/jpeg" if expected.get("request", "").endswith(".jpg") else "application/json"
    answer = samovar.call(
        name, expected["path"], method=expected["method"], content=body, headers={"content-type": kind}
    )
    assert answer.status_code == expected["status"], answer.text
    for header, value in expected["headers"].items():
        assert answer.headers[header].split(";")[0] == value
    if "json" in expected:
        assert json.loads(answer.content, parse_float=_rounded) == _round_all(expected["json"])
    elif "json_has" in expected:
        seen = json.loads(answer.content, parse_float=_rounded)
        assert {key: seen[key] for key in expected["json_has"]} == _round_all(expected["json_has"])
    elif "png" in expected:
        width, height = struct.unpack(">II", answer.content[16:24])
        assert answer.content.startswith(b"\x89PNG\r\n\x1a\n")
        assert {"width": width, "height": height} == expected["png"]
    else:
        assert answer.text == expected["text"]


def _rounded(text: str) -> float:
    return round(float(text), 6)


def _round_all(value: Any) -> Any:
    """JSON with its fractions to six places, as the samples' rule says."""
    return json.loads(json.dumps(value), parse_float=_rounded)
