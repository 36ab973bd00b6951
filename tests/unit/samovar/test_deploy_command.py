"""`samovar deploy`: what is uploaded, what is shown on the way, and how a failure reads."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

WHERE = "POST /api/v1/functions/default"


def step(phase: str, message: str, elapsed_ms: int) -> dict[str, Any]:
    return {"event": "progress", "phase": phase, "message": message, "elapsed_ms": elapsed_ms}


DEPLOYED = {
    "event": "deployed", "namespace": "default", "function": "sums", "revision": 3, "url": "/fn/default/sums",
    "elapsed_ms": 1234,
}  # fmt: skip
FAILED = {
    "event": "failed",
    "phase": "proof",
    "error": {
        "code": "worker_broke",
        "message": "ModuleNotFoundError: No module named 'numpi'",
        "detail": {"traceback": 'Traceback (most recent call last):\n  File "handler.py", line 1\nModuleNotFoundError'},
    },
}


def test_the_folder_is_uploaded_and_every_step_is_a_line(cli: Any, played: Any, function_folder: Path) -> None:
    (function_folder / "__pycache__").mkdir()
    (function_folder / "__pycache__" / "handler.pyc").write_text("x")
    played.on(WHERE, (step("bundle", "stored", 3), step("proof", "the handler answers", 900), DEPLOYED))
    ran = cli("deploy", str(function_folder))
    assert ran.code == 0
    assert played.uploaded().keys() == {"function.toml", "handler.py"}
    call = played.calls[-1]
    assert call.header("content-type") == "application/gzip"
    assert call.header("content-length") == str(len(call.body))
    gzip.decompress(call.body)
    assert "2 files" in ran.err
    assert "stored" in ran.err
    assert "the handler answers" in ran.err
    assert "default/sums revision 3 serves now (1.2 s)" in ran.text
    assert f"{played.url}/fn/default/sums" in ran.text


def test_json_gives_the_last_event_alone(cli: Any, played: Any, function_folder: Path) -> None:
    played.on(WHERE, (step("bundle", "stored", 3), DEPLOYED))
    ran = cli("deploy", str(function_folder), "--json")
    assert ran.value == DEPLOYED
    assert ran.err == ""


def test_the_namespace_is_the_options_else_the_manifests(cli: Any, played: Any, function_folder: Path) -> None:
    (function_folder / "function.toml").write_text('name = "sums"\nnamespace = "lab"\nhandler = "handler:main"\n')
    for namespace in ("lab", "other"):
        played.on(f"POST /api/v1/functions/{namespace}", (DEPLOYED,))
    assert cli("deploy", str(function_folder)).code == 0
    assert played.calls[-1].target == "/api/v1/functions/lab"
    assert cli("deploy", str(function_folder), "--namespace", "other").code == 0
    assert played.calls[-1].target == "/api/v1/functions/other"


def test_a_failing_import_shows_the_traceback_and_what_keeps_serving(
    cli: Any, played: Any, function_folder: Path
) -> None:
    played.on(WHERE, (step("bundle", "stored", 3), FAILED))
    played.on("GET /api/v1/functions/default/sums", {"live": 2})
    ran = cli("deploy", str(function_folder))
    assert (ran.code, ran.out) == (1, b"")
    assert 'File "handler.py", line 1' in ran.err
    assert "default/sums was not deployed, proof failed: ModuleNotFoundError: No module named 'numpi'" in ran.err
    assert "revision 2 keeps serving" in ran.err


def test_a_first_deploy_that_fails_says_that_nothing_serves(cli: Any, played: Any, function_folder: Path) -> None:
    played.on(WHERE, (FAILED,))
    ran = cli("deploy", str(function_folder))
    assert ran.code == 1
    assert "nothing serves it yet" in ran.err
    error = json.loads(cli("deploy", str(function_folder), "--json").err)["error"]
    assert error["code"] == "worker_broke"
    assert "handler.py" in error["detail"]["traceback"]


def test_a_refused_manifest_is_told_in_the_gateways_words(cli: Any, played: Any, function_folder: Path) -> None:
    played.refuse(WHERE, 400, "bad_request", "function.toml line 3: concurency: unknown key")
    ran = cli("deploy", str(function_folder))
    assert ran.code == 1
    assert "line 3: concurency" in ran.err


def test_a_deploy_that_is_cut_off_is_not_taken_for_done(cli: Any, played: Any, function_folder: Path) -> None:
    played.on(WHERE, (step("environment", "installing", 3),))
    ran = cli("deploy", str(function_folder))
    assert ran.code == 3
    assert "samovar show sums" in ran.err


def test_a_broken_manifest_never_leaves_the_machine(cli: Any, played: Any, function_folder: Path) -> None:
    for text, told in (
        ("name = ", "Invalid value"),
        ("handler = 'x'", "name: missing"),
        ("name = 3", "name: 3 is not text"),
    ):
        (function_folder / "function.toml").write_text(text)
        ran = cli("deploy", str(function_folder))
        assert ran.code == 2
        assert told in ran.err
    assert played.calls == []
