"""The commands against a played gateway: what they send, what they show, how they end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

FUNCTION = {
    "namespace": "default", "name": "sums", "live": 2, "public": False, "url": "/fn/default/sums", "state": "ready",
    "workers": 1, "updated_at": 1_764_000_000.0,
}  # fmt: skip
WORKER = {
    "worker": "w-1", "namespace": "default", "function": "sums", "revision": 2, "state": "READY", "start_kind": "warm",
    "agent": "local", "slice": "s0", "pid": 4711, "in_flight": 1, "concurrency": 4, "age_s": 61.2, "idle_s": 0.0,
}  # fmt: skip
USAGE = {
    "namespace": "default", "function": "sums", "calls": 3, "errors": 1, "hot": 2, "warm": 1, "cold": 0, "frozen": 0,
    "queued_ms": 4.5, "run_ms": 1500, "slice_ms": 1503, "cpu_ms": 900, "bytes_in": 2048, "bytes_out": 10,
    "platform_faults": 0, "client_gone": 0,
}  # fmt: skip
DECISION = {"at": 1_764_000_000.0, "revision": 2, "decision": "start", "reason": "one call waits", "worker": "w-1"}

LISTS = [
    (["list"], "GET /api/v1/functions", FUNCTION, ["default/sums", "/fn/default/sums", "ready"]),
    (["ps"], "GET /api/v1/workers", WORKER, ["w-1", "default/sums", "warm", "1/4", "1m 01s", "4711"]),
    (["usage"], "GET /api/v1/usage", USAGE, ["default/sums", "1.5 s", "2.0 KiB"]),
    (["explain", "sums"], "GET /api/v1/functions/default/sums/explain", DECISION, ["start", "one call waits"]),
]


@pytest.mark.parametrize(("command", "what", "row", "shown"), LISTS, ids=lambda value: str(value)[:12])
def test_lists_are_tables_for_people_and_one_json_list_for_scripts(
    cli: Any, played: Any, command: list[str], what: str, row: dict[str, Any], shown: list[str]
) -> None:
    played.on(what, [row])
    ran = cli(*command)
    assert ran.code == 0
    assert all(word in ran.text for word in shown)
    assert cli(*command, "--json").value == [row]
    played.on(what, [])
    empty = cli(*command)
    assert (empty.code, empty.out) == (0, b"")
    assert empty.err
    assert cli(*command, "--json").value == []


def test_show_tells_revisions_newest_first_and_the_settings(cli: Any, played: Any) -> None:
    revisions = [
        {"number": 1, "state": "ready", "live": False, "shape": "event", "environment": "e" * 64, "error": "",
         "created_at": 1.0},
        {"number": 2, "state": "failed", "live": True, "shape": "asgi", "environment": "f" * 64,
         "error": "Traceback\nImportError: no", "created_at": 2.0},
    ]  # fmt: skip
    manifest = {"handler": "handler:main", "scale": {"idle_timeout_s": 2.0}, "variables": {}, "requirements": ["a>=1"]}
    played.on("GET /api/v1/functions/lab/sums", FUNCTION | {"revisions": revisions, "manifest": manifest})
    ran = cli("show", "lab/sums")
    assert ran.code == 0
    assert ran.text.index("\n       2  failed") < ran.text.index("\n       1  ready")
    assert "ImportError: no" in ran.text
    assert "idle_timeout_s" in ran.text
    assert "variables" not in ran.text
    assert cli("show", "lab/sums", "--json").value["revisions"] == revisions


def test_usage_sends_its_times_as_seconds_and_sums_up_several_functions(cli: Any, played: Any) -> None:
    played.on("GET /api/v1/usage", [USAGE, USAGE | {"function": "other", "calls": 39}])
    ran = cli("usage", "--since", "1970-01-02", "--until", "1970-01-03T00:00", "-n", "default")
    assert ran.text.splitlines()[-1].split()[:2] == ["total", "42"]
    assert played.calls[-1].target == "/api/v1/usage?namespace=default&since=86400.0&until=172800.0"


def test_logs_show_old_lines_and_with_json_a_list(cli: Any, played: Any) -> None:
    row = {"at": 1.0, "worker": "w-1", "revision": 2, "stream": "stderr", "line": "grüß \ud800 dich"}
    played.on("GET /api/v1/functions/default/sums/logs", (row, row | {"stream": "stdout", "line": "two"}))
    ran = cli("logs", "sums", "--tail", "7")
    assert played.calls[-1].target.endswith("/logs?tail=7&follow=0")
    first, second = ran.text.splitlines()
    assert first.endswith("w-1 @2 ! grüß \\ud800 dich")
    assert second.endswith("w-1 @2 | two")
    assert [r["line"] for r in cli("logs", "sums", "--json").value] == ["grüß \ud800 dich", "two"]
    followed = cli("logs", "sums", "-f", "--json")
    assert [json.loads(line)["line"] for line in followed.text.splitlines()][1] == "two"
    assert "follow=1" in played.calls[-1].target


def test_delete_and_rollback(cli: Any, played: Any) -> None:
    played.on("DELETE /api/v1/functions/default/sums", {"deleted": "default/sums"})
    assert "deleted" in cli("delete", "sums").text
    assert cli("delete", "sums", "--json").value == {"deleted": "default/sums"}
    answer = {"namespace": "default", "function": "sums", "revision": 1, "previous": 2}
    played.on("POST /api/v1/functions/default/sums/rollback", answer)
    assert "revision 1 serves now (before: 2)" in cli("rollback", "sums").text
    assert json.loads(played.calls[-1].body) == {}
    assert cli("rollback", "sums", "1", "--json").value == answer
    assert json.loads(played.calls[-1].body) == {"revision": 1}


def test_a_new_token_stands_alone_on_stdout(cli: Any, played: Any) -> None:
    made = {"id": "t1", "token": "smv_new", "namespace": "lab", "name": "x", "admin": False, "expires_at": None}
    played.on("POST /api/v1/tokens", made, 201)
    ran = cli("token", "create", "-n", "lab", "--name", "x", "--expires-in", "12h")
    assert ran.text == "smv_new\n"
    assert json.loads(played.calls[-1].body) == {"namespace": "lab", "name": "x", "expires_in_s": 43200.0}
    assert cli("token", "create", "--admin", "--json").value == made
    body = json.loads(played.calls[-1].body)
    assert (body["admin"], body["namespace"]) == (True, None)
    assert body["name"].startswith("made by ")
    rows = [{key: value for key, value in made.items() if key != "token"}]
    played.on("GET /api/v1/tokens", rows)
    assert "t1" in cli("token", "list").text
    assert cli("token", "list", "--json").value == rows
    played.on("DELETE /api/v1/tokens/t1", {"deleted": "t1"})
    assert cli("token", "delete", "t1").code == 0


def test_init_writes_a_folder_that_can_be_deployed_and_never_overwrites(cli: Any, played: Any) -> None:
    from gateway.deploy.manifest import parse_manifest

    ran = cli("init", "lab/my-sums")
    assert ran.code == 0
    folder = Path("my-sums")
    assert sorted(p.name for p in folder.iterdir()) == ["function.toml", "handler.py", "request.json"]
    manifest = parse_manifest((folder / "function.toml").read_bytes(), requirements_txt=None)
    assert (manifest.namespace, manifest.name) == ("lab", "my-sums")
    variables: dict[str, Any] = {}
    exec((folder / "handler.py").read_text(), variables)
    request = json.loads((folder / "request.json").read_bytes())
    assert variables["main"](request, None) == {"message": "Hello, Ada!"}
    (folder / "handler.py").write_text("mine")
    again = cli("init", "my-sums")
    assert again.code == 2
    assert (folder / "handler.py").read_text() == "mine"
    played.on("POST /api/v1/functions/lab", ({"event": "deployed", "revision": 1, "url": "/x", "elapsed_ms": 1},))
    assert cli("deploy", "my-sums").code == 0
    assert cli("init", "other", "--json").value["files"] == [
        "other/function.toml", "other/handler.py", "other/request.json",
    ]  # fmt: skip


def test_the_commented_defaults_of_init_are_valid_and_the_true_defaults(cli: Any) -> None:
    import re
    from dataclasses import replace

    from gateway.catalog import Manifest
    from gateway.deploy.manifest import parse_manifest

    cli("init", "plain")
    text = Path("plain/function.toml").read_text()
    text = re.sub(r"(?m)^# (?=\[|[a-z_]+ = )", "", text)
    text = text.replace('python = "3.12"', "")
    manifest = parse_manifest(text.encode(), requirements_txt=None)
    assert replace(manifest, name="", handler="") == Manifest(name="", namespace="default", handler="")


@pytest.mark.parametrize("name", ["UPPER", "a b", "../x", "-a", "a-", "é", "a" * 64, "x/y/z"])
def test_init_refuses_names_that_no_url_and_folder_takes(bare_cli: Any, name: str) -> None:
    assert bare_cli("init", "--", name).code == 2
    assert list(Path().iterdir()) == []


# --- how commands end ------------------------------------------------------------------------------------------


def test_no_gateway_ends_with_3_and_says_what_to_do(bare_cli: Any) -> None:
    ran = bare_cli("list")
    assert (ran.code, ran.out) == (3, b"")
    assert len(ran.err.splitlines()) == 2
    assert "samovar up" in ran.err
    error = json.loads(bare_cli("list", "--json").err)["error"]
    assert (error["code"], error["exit_code"]) == ("unreachable", 3)


def test_a_gateway_that_does_not_answer_ends_with_3(bare_cli: Any) -> None:
    ran = bare_cli("ps", "--url", "http://127.0.0.1:9", "--token", "x")
    assert ran.code == 3
    assert "http://127.0.0.1:9" in ran.err


def test_a_bad_token_ends_with_4_and_a_missing_one_says_so(bare_cli: Any, played: Any) -> None:
    assert bare_cli("list", "--url", played.url, "--token", "wrong").code == 4
    ran = bare_cli("list", "--url", played.url)
    assert ran.code == 4
    assert "SAMOVAR_TOKEN" in ran.err
    error = json.loads(bare_cli("list", "--url", played.url, "--json").err)["error"]
    assert error["code"] == "unauthorized"


def test_what_the_token_may_not_do_ends_with_4(cli: Any, played: Any) -> None:
    played.refuse("GET /api/v1/tokens", 403, "forbidden", "administrators only")
    ran = cli("token", "list")
    assert ran.code == 4
    assert "administrators only" in ran.err


def test_what_the_gateway_refuses_ends_with_1_in_its_words(cli: Any) -> None:
    ran = cli("show", "nothing")
    assert (ran.code, ran.out) == (1, b"")
    assert "there is no" in ran.err
    assert json.loads(cli("show", "nothing", "--json").err)["error"]["code"] == "not_found"


@pytest.mark.parametrize(
    "arguments",
    [["frobnicate"], ["list", "--nope"], ["show"], ["show", "a/b/c"], ["rollback", "x", "zero"], ["rollback", "x", "0"],
     ["logs", "x", "--tail", "-1"], ["usage", "--since", "yesterday"], ["list", "--url", "nowhere"],
     ["up", "--port", "99999"], ["deploy", "not-there"], ["up", "--samples", "not-there"]],
    ids=" ".join,
)  # fmt: skip
def test_wrong_usage_ends_with_2_in_two_lines_at_most(cli: Any, arguments: list[str]) -> None:
    ran = cli(*arguments)
    assert (ran.code, ran.out) == (2, b"")
    assert ran.err.startswith("error:")
    assert len(ran.err.splitlines()) <= 2
    assert json.loads(cli(*arguments, "--json").err)["error"]["exit_code"] == 2


def test_help_is_there_for_every_command(bare_cli: Any) -> None:
    ran = bare_cli("--help")
    assert ran.code == 0
    names = [line.split()[0] for line in ran.text.partition("Commands:")[2].splitlines() if line.startswith("  ")]
    wanted = {"init", "deploy", "invoke", "list", "show", "logs", "ps", "usage", "delete", "rollback", "explain"}
    assert wanted | {"token", "up"} <= set(names)
    for name in wanted | {"up"}:
        shown = bare_cli(name, "--help")
        assert shown.code == 0
        assert "--json" in shown.text


def test_a_gateway_of_this_directory_is_found_without_being_told(
    bare_cli: Any, played: Any, announce: Any, tmp_path: Path
) -> None:
    played.on("GET /api/v1/functions", [FUNCTION])
    announce(tmp_path / "work" / ".samovar" / "local.json", played.url)
    assert bare_cli("list", "--json").value == [FUNCTION]
    announce(tmp_path / "work" / ".samovar" / "local.json", played.url, mode=0o644)
    ran = bare_cli("list")
    assert ran.code == 3
    assert "warning: ignoring" in ran.err


def test_no_colours_where_there_is_no_terminal(cli: Any) -> None:
    assert "\x1b" not in cli("show", "nothing").err
