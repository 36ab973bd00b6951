from __future__ import annotations

import importlib.util
import json
import tarfile
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from gateway.deploy.manifest import parse_manifest
from loadtests.bench import machine
from loadtests.bench.__main__ import read_arguments, write_files
from loadtests.bench.gateway_process import FUNCTIONS, GatewayBroke, bundle, last_event, wait_for
from loadtests.bench.plan import MEASURES, measure
from loadtests.bench.stage import BenchParams, Stage
from loadtests.bench.table import Row

FOLDERS = sorted(folder.name for folder in FUNCTIONS.iterdir() if (folder / "function.toml").exists())


def test_a_row_that_fails_is_told_and_the_others_go_on(tmp_path: Path) -> None:
    def bad(stage: Stage) -> list[Row]:
        raise RuntimeError("no luck")

    def good(stage: Stage) -> list[Row]:
        return [Row("good", "1")]

    rows = measure(Stage(tmp_path, BenchParams()), ["bad", "good"], {"bad": bad, "good": good})
    assert [row.name for row in rows] == ["bad", "good"]
    assert rows[0].error == "RuntimeError: no luck"


def test_rows_are_chosen_by_name() -> None:
    given = read_arguments(["--only", "hot", "latency", "--only", "pool", "--seconds", "0.5"])
    assert given.only == ["hot", "latency", "pool"]
    assert given.seconds == 0.5


@pytest.mark.parametrize("arguments", [["--only", "nonsense"], ["--seconds", "0"], ["--seconds", "x"]])
def test_a_bad_command_line_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        read_arguments(arguments)
    assert ended.value.code == 2
    assert arguments[0] in capsys.readouterr().err


def test_files_are_written_where_asked_for(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    document.write_text("# Page\n<!-- bench:begin -->\n<!-- bench:end -->\nend\n")
    given = read_arguments(["--json", str(tmp_path / "out.json"), "--markdown", str(document)])
    write_files([Row("a row", "1/s")], machine.environment(), given)
    assert json.loads((tmp_path / "out.json").read_text())["rows"][0]["name"] == "a row"
    assert "| a row |" in document.read_text()
    assert document.read_text().endswith("<!-- bench:end -->\nend\n")


def test_the_environment_names_cpu_python_and_commit() -> None:
    environment = machine.environment()
    assert all(environment.values())
    assert environment["python"] in machine.line(environment)


def test_the_documented_page_has_the_marks() -> None:
    page = (machine.PROJECT / "docs" / "benchmarks.md").read_text()
    assert page.count("<!-- bench:begin -->") == page.count("<!-- bench:end -->") == 1
    assert all(f"`{name}`" in page for name in MEASURES)


@pytest.mark.parametrize(
    ("said", "quoted"),
    [
        ("", "deploy"),
        ('{"event": "failed", "phase": "proof", "error": {"message": "no numpy"}}\n', "no numpy"),
    ],
)
def test_a_deploy_that_did_not_end_well_is_told(said: str, quoted: str) -> None:
    with pytest.raises(GatewayBroke, match=quoted):
        last_event(said)


def test_a_deploy_that_ended_well() -> None:
    assert last_event('{"event": "progress"}\n{"event": "deployed", "revision": 1}\n')["revision"] == 1


def test_waiting_is_bounded() -> None:
    with pytest.raises(GatewayBroke, match="never"):
        wait_for(lambda: False, "never", 0.0)


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_functions_of_the_benchmark_have_manifests_that_a_gateway_takes(folder: str) -> None:
    manifest = parse_manifest((FUNCTIONS / folder / "function.toml").read_bytes(), requirements_txt=None)
    assert manifest.name == f"bench-{folder}"
    assert manifest.handler.startswith("handler:")


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_bundle_holds_the_functions_files(folder: str) -> None:
    with tarfile.open(fileobj=BytesIO(bundle(FUNCTIONS / folder)), mode="r:gz") as archive:
        assert sorted(archive.getnames()) == ["function.toml", "handler.py"]


def load(folder: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"bench_{folder}", FUNCTIONS / folder / "handler.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_null_handler_echoes() -> None:
    assert load("null").main({"a": 1}, None) == {"a": 1}


async def test_the_echo_application_sends_each_piece_as_it_comes() -> None:
    incoming = [
        {"type": "http.request", "body": b"one", "more_body": True},
        {"type": "http.request", "body": b"two"},
    ]
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return incoming.pop(0)

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await load("echo").app({"type": "http"}, receive, send)
    assert sent[0]["status"] == 200
    assert [(m["body"], m["more_body"]) for m in sent[1:]] == [(b"one", True), (b"two", False)]
