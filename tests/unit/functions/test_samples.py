"""The sample functions: each folder is whole, and each handler that can run here answers as its folder says."""

from __future__ import annotations

import base64
import json
import re
import struct
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.deploy.manifest import parse_manifest

FUNCTIONS = Path(__file__).parents[3] / "functions"
FOLDERS = sorted(path.parent for path in FUNCTIONS.glob("*/function.toml"))


def manifest(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "function.toml").read_text("utf-8"))


def expected(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "expected.json").read_bytes()))


def can_run_here(folder: Path) -> bool:
    """Whether everything the sample requires is installed in this environment."""
    for requirement in manifest(folder).get("requirements", []):
        try:
            version(re.split(r"[^A-Za-z0-9._-]", requirement)[0])
        except PackageNotFoundError:
            return False
    return True


by_name = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)


def test_the_samples_are_those_that_the_documentation_names() -> None:
    names = {"hello", "echo", "primes", "thumbnail", "embed", "stream", "chat"}
    assert {folder.name for folder in FOLDERS} == names
    text = (FUNCTIONS / "README.md").read_text("utf-8")
    assert all(f"| `{name}` |" in text for name in names)


@by_name
def test_the_manifest_is_valid_and_named_as_its_folder(folder: Path) -> None:
    read = parse_manifest((folder / "function.toml").read_bytes(), requirements_txt=None)
    assert (read.namespace, read.name) == ("default", folder.name)
    module, _, attribute = read.handler.partition(":")
    source = (folder / f"{module}.py").read_text("utf-8")
    assert f"def {attribute}(" in source or f"{attribute} = " in source
    compile(source, "handler.py", "exec")


@by_name
def test_requirements_are_pinned_from_below_only(folder: Path) -> None:
    for requirement in manifest(folder).get("requirements", []):
        assert ">=" in requirement
        assert not any(sign in requirement.replace(">=", "") for sign in "<=~!@")


@by_name
def test_the_expected_answer_is_well_formed_and_its_request_is_there(folder: Path) -> None:
    rules = expected(folder)
    assert (folder / rules["request"]).is_file()
    assert sum(key in rules for key in ("json", "json_has", "text", "png")) == 1
    assert {"method", "path", "request", "status", "headers"} <= rules.keys()
    if rules["request"].endswith(".json"):
        json.loads((folder / rules["request"]).read_bytes())


@pytest.mark.parametrize("folder", [f for f in FOLDERS if can_run_here(f)], ids=lambda folder: folder.name)
async def test_the_handler_answers_as_its_folder_says(calls: SimpleNamespace, folder: Path) -> None:
    rules = expected(folder)
    body = (folder / rules["request"]).read_bytes()
    path, _, query = rules["path"].partition("?")
    with calls.module_of(folder) as module:
        handler = getattr(module, manifest(folder)["handler"].partition(":")[2])
        if hasattr(module, "main"):
            event = json.loads(body) if rules["request"].endswith(".json") else body
            answer = calls.event(handler, event)
        else:
            answer = await calls.asgi(
                handler, method=rules["method"], path=path.encode(), query=query.encode(), body=body
            )
    if "path" in rules.get("json_has", {}):
        rules["json_has"]["path"] = rules["json_has"]["path"].replace("/default/echo/", "/default/sample/")
    assert calls.differences(answer, rules) == []


def test_the_photo_is_a_photo_sized_jpeg_of_reasonable_weight() -> None:
    data = (FUNCTIONS / "thumbnail" / "request.jpg").read_bytes()
    assert data[:3] == b"\xff\xd8\xff"
    assert len(data) < 400 * 1024
    place = 2
    while data[place + 1] not in {0xC0, 0xC1, 0xC2}:
        place += 2 + struct.unpack(">H", data[place + 2 : place + 4])[0]
    height, width = struct.unpack(">HH", data[place + 5 : place + 9])
    assert (width, height) == (1600, 1200)


@pytest.mark.parametrize("event", [None, {}, [], "text", {"name": ""}, {"name": None}])
def test_hello_greets_the_world_when_nobody_is_named(calls: SimpleNamespace, event: object) -> None:
    with calls.module_of(FUNCTIONS / "hello") as module:
        assert module.main(event, None) == {"message": "Hello, world!"}


async def test_echo_gives_back_every_byte(calls: SimpleNamespace) -> None:
    body = [bytes(range(256)), b"", b"\r\n\0end"]
    headers = [(b"x-two", b"1"), (b"x-two", b"\xff"), (b"content-type", b"application/octet-stream")]
    with calls.module_of(FUNCTIONS / "echo") as module:
        answer = await calls.asgi(
            module.app, method="PATCH", path=b"/a%2Fb//c", query=b"x=%FF&y", body=body, headers=headers
        )
    seen = json.loads(answer.body)
    assert base64.b64decode(seen["body"]) == b"".join(body)
    assert (seen["method"], seen["path"], seen["query"]) == ("PATCH", "/fn/default/sample/a%2Fb//c", "x=%FF&y")
    assert seen["headers"] == [[k.decode("latin-1"), v.decode("latin-1")] for k, v in headers]


async def test_echo_streams_the_raw_body_with_its_type(calls: SimpleNamespace) -> None:
    headers = [(b"content-type", b"image/png"), (b"accept", b"*/*")]
    with calls.module_of(FUNCTIONS / "echo") as module:
        answer = await calls.asgi(module.app, query=b"a=b&raw=1", body=[b"\x89PNG", b"\xff\0"], headers=headers)
    assert answer.body == b"\x89PNG\xff\0"
    assert answer.headers == [("content-type", "image/png")]


@pytest.mark.parametrize(
    ("limit", "count"), [(0, 0), (1, 0), (2, 1), (3, 2), (4, 2), (9, 4), (100, 25), (10_000, 1229)]
)
def test_primes_counts_right_at_the_edges_too(calls: SimpleNamespace, limit: int, count: int) -> None:
    with calls.module_of(FUNCTIONS / "primes") as module:
        result = module.main({"limit": limit}, None)
    assert result["count"] == count
    assert len(result["last"]) == min(count, 5)
    assert result["last"] == sorted(result["last"])


@pytest.mark.parametrize("event", [None, {}, {"limit": -1}, {"limit": "9"}, {"limit": True}, {"limit": 10**9}, [5]])
def test_primes_refuses_bad_limits_as_the_callers_fault(calls: SimpleNamespace, event: object) -> None:
    with calls.module_of(FUNCTIONS / "primes") as module:
        result = module.main(event, None)
    assert result["statusCode"] == 400
    assert result["body"]["error"].startswith("limit:")


async def test_stream_stops_when_the_client_goes_away(calls: SimpleNamespace) -> None:
    with calls.module_of(FUNCTIONS / "stream") as module:
        answer = await calls.asgi(module.app, body=b'{"count": 10000, "interval_ms": 10000}', gone_after=1)
    assert answer.body.count(b"event: count") == 1
    assert b"event: done" not in answer.body


@pytest.mark.parametrize(
    "body", [b"[]", b'{"count": -1}', b'{"count": "5"}', b"{", b'{"interval_ms": 1e9}', b" " * 70_000]
)
async def test_stream_refuses_what_it_cannot_do(calls: SimpleNamespace, body: bytes) -> None:
    with calls.module_of(FUNCTIONS / "stream") as module:
        answer = await calls.asgi(module.app, body=body)
    assert answer.status == 400
    assert json.loads(answer.body)["error"]


def test_embeds_features_fall_in_the_same_place_each_time(calls: SimpleNamespace) -> None:
    with calls.module_of(FUNCTIONS / "embed", "hashing") as hashing:
        found = list(hashing.features("Tee, TEE!"))
        assert found == ["w tee", "3 <te", "3 tee", "3 ee>"] * 2
        places = [hashing.place(feature, 256) for feature in found]
        assert places[:4] == places[4:]
        assert all(0 <= index < 256 and sign in {1.0, -1.0} for index, sign in places)
        assert hashing.place("w tee", 256) == hashing.place("w tee", 256)


def test_chats_stand_in_says_what_it_is_and_is_the_same_each_time(calls: SimpleNamespace) -> None:
    with calls.module_of(FUNCTIONS / "chat", "stand_in") as stand_in:
        text = stand_in.reply([("user", "first"), ("assistant", "x"), ("user", "a longer one")])
        assert text == stand_in.reply([("user", "first"), ("assistant", "x"), ("user", "a longer one")])
        assert "stand-in" in text
        assert "2 times" in text
        assert "".join(stand_in.pieces(text)) == text
        assert "Nobody" in stand_in.reply([("system", "be kind")])
    said = json.loads((FUNCTIONS / "chat" / "request.json").read_bytes())["messages"]
    wanted = expected(FUNCTIONS / "chat")["json"]["choices"][0]["message"]["content"]
    with calls.module_of(FUNCTIONS / "chat", "stand_in") as stand_in:
        assert stand_in.reply([(m["role"], m["content"]) for m in said]) == wanted


def test_comparing_answers_sees_differences(calls: SimpleNamespace) -> None:
    assert calls.same({"a": [1, 0.30000001]}, {"a": [1, 0.3]})
    assert not calls.same({"a": 1, "b": 2}, {"a": 1})
    assert not calls.same([1], [1, 2])
