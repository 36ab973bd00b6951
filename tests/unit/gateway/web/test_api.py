"""The control API over doubles: addresses, who may see what, checked input, deploys line by line, logs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest
from aiohttp.test_utils import TestClient, TestServer

from gateway.catalog import Function, Manifest, Revision
from gateway.deploy.pipeline import DeployFailed, OnProgress, Rollback
from gateway.errors import BadRequest, Conflict, NotFound, Unauthorized, Unavailable
from gateway.function_logs import FunctionLogs
from gateway.web.api import ApiParams, ApiServices, build_api
from gateway.web.metrics import Metrics


class Who(NamedTuple):
    token_id: str
    namespace: str | None
    admin: bool


KNOWN = {"root": Who("t0", None, True), "all": Who("t1", None, False), "lab": Who("t2", "lab", False)}


class Tokens:
    """Three known tokens."""

    def __init__(self) -> None:
        self.made: list[tuple[Any, ...]] = []

    def authenticate(self, header: bytes | str | None, now: float) -> Who:
        found = KNOWN.get(str(header).removeprefix("Bearer "))
        if found is None:
            raise Unauthorized("no such token")
        return found

    async def create(
        self, namespace: str | None, name: str, admin: bool, expires_in_s: float | None
    ) -> tuple[dict[str, Any], str]:
        self.made.append((namespace, name, admin, expires_in_s))
        row = {"id": "t9", "namespace": namespace, "name": name, "admin": admin, "expires_at": expires_in_s}
        return row, "smv_secret"

    def rows(self) -> list[dict[str, Any]]:
        return [{"id": "t9", "name": "x"}]

    async def revoke(self, token_id: str) -> None:
        if token_id != "t9":
            raise NotFound(f"no token {token_id}")


class Registry:
    """Two functions."""

    def __init__(self) -> None:
        self.rows = {("lab", "f"): 2, ("other", "g"): None}

    def functions(self, namespace: str | None) -> list[Function]:
        return [
            Function(ns, name, live, False, 1.0, 2.0)
            for (ns, name), live in self.rows.items()
            if namespace in (None, ns)
        ]

    def function(self, namespace: str, name: str) -> Function | None:
        return next((f for f in self.functions(namespace) if f.name == name), None)

    def revisions(self, namespace: str, name: str) -> list[Revision]:
        manifest = Manifest(name, namespace, "handler:main", variables={"A": "b"})
        states = ("ready", "ready", "failed") if name == "f" else ("failed",)
        return [
            Revision(namespace, name, number, manifest, "b", "e", "/python", state, created_at=number)
            for number, state in enumerate(states, 1)
        ]


class Deployer:
    """Does what the test says."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.early: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.uploads: list[bytes] = []
        self.places: list[Path] = []
        self.ended: list[str] = []
        self.calls: list[Any] = []

    async def deploy(self, namespace: str, upload: Path, on_progress: OnProgress) -> Revision:
        self.uploads.append(upload.read_bytes())
        self.places.append(upload)
        if self.early is not None:
            raise self.early
        try:
            on_progress("bundle", "2 files")
            on_progress("environment", "none")
            await self.gate.wait()
            if self.error is not None:
                raise self.error
            on_progress("traffic", "now")
        except asyncio.CancelledError:
            self.ended.append("cancelled")
            raise
        self.ended.append("done")
        return Revision(namespace, "f", 3, Manifest("f", namespace, "a:b"), "b", "e", "/p", "ready")

    async def rollback(self, namespace: str, function: str, number: int | None) -> Rollback:
        if number == 9:
            raise Conflict("revision 9 failed")
        self.calls.append((namespace, function, number))
        return Rollback(Revision(namespace, function, number or 1, Manifest("f", "lab", "a:b"), "b", "e", "/p"), 2)

    async def delete(self, namespace: str, function: str) -> None:
        if function != "f":
            raise NotFound(f"no function {namespace}/{function}")
        self.calls.append(("delete", namespace, function))


class Pool:
    """Two workers."""

    def workers(self) -> list[dict[str, Any]]:
        return [{"worker": "w1", "namespace": "lab"}, {"worker": "w2", "namespace": "other"}]

    def worker_counts(self) -> dict[str, int]:
        return {"lab/f": 4}


class Explanations:
    """One decision."""

    def recent(self, namespace: str, function: str, limit: int) -> list[dict[str, Any]]:
        return [{"decision": f"{namespace}/{function}", "limit": limit}]

    def forget(self, namespace: str, function: str) -> None:
        return None


class Usage:
    """Echoes what is asked."""

    async def rows(self, namespace: str | None, since: float | None, until: float | None) -> list[dict[str, Any]]:
        if until == 503:
            raise Unavailable("PostgreSQL is away", retry_after_s=2.5)
        if until == 500:
            raise RuntimeError("secret inside")
        return [{"namespace": namespace, "since": since, "until": until}]


class House:
    """The API on a free port, and ways to ask it."""

    def __init__(self, folder: Path) -> None:
        self.tokens, self.deployer = Tokens(), Deployer()
        self.logs = FunctionLogs(folder / "logs")
        self.waiting_for: list[str] = []
        services = ApiServices(
            tokens=self.tokens,
            registry=Registry(),
            deployer=self.deployer,
            pool=Pool(),
            explanations=Explanations(),
            logs=self.logs,
            usage=Usage(),
            waiting_for=lambda: self.waiting_for,
            metrics=Metrics(),
        )
        self.uploads = folder / "uploads"
        params = ApiParams(upload_bytes_max=5000, uploads_max=2, upload_directory=self.uploads, beat_s=0.01)
        self.client = TestClient(TestServer(build_api(services, params)))

    async def ask(self, method: str, path: str, token: str = "root", **more: Any) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with self.client.request(method, path, headers=headers, **more) as answer:
            text = await answer.text()
            assert answer.headers["Connection"] == "close"
            return answer.status, json.loads(text) if "json" in answer.content_type else text

    async def get(self, path: str, token: str = "root") -> tuple[int, Any]:
        return await self.ask("GET", path, token)

    async def refused(self, path: str, token: str = "root", method: str = "GET", **more: Any) -> tuple[int, str]:
        status, body = await self.ask(method, path, token, **more)
        assert set(body["error"]) >= {"code", "message", "fault"}
        return status, body["error"]["message"]

    async def deploy(self, body: Any = b"tar", namespace: str = "lab", token: str = "lab") -> tuple[int, list[Any]]:
        headers = {"Authorization": f"Bearer {token}"}
        async with self.client.post(f"/api/v1/functions/{namespace}", data=body, headers=headers) as answer:
            return answer.status, [json.loads(line) async for line in answer.content]


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    made = House(tmp_path)
    await made.client.start_server()
    yield made
    await made.client.close()
    await made.logs.close()


# -- health, metrics, who may see what -----------------------------------------------------------------------


async def test_health_and_readiness_need_no_token(house: House) -> None:
    assert await house.get("/healthz", "") == (200, {"status": "ok"})
    assert await house.get("/readyz", "") == (200, {"status": "ready", "waiting_for": []})
    house.waiting_for.append("agent")
    assert await house.get("/readyz", "") == (503, {"status": "waiting", "waiting_for": ["agent"]})


@pytest.mark.parametrize("path", ["/metrics", "/api/v1/functions", "/api/v1/workers", "/no/such", "/api/v1/tokens"])
async def test_everything_else_needs_one(house: House, path: str) -> None:
    assert (await house.refused(path, ""))[0] == 401
    assert (await house.refused(path, "guess"))[0] == 401


async def test_metrics_are_prometheus_text_and_not_for_one_namespaces_token(house: House) -> None:
    status, text = await house.get("/metrics", "all")
    assert status == 200
    assert "samovar_calls_total" in text
    assert (await house.refused("/metrics", "lab"))[0] == 403


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/v1/functions?namespace=other"),
        ("GET", "/api/v1/functions/other/g"),
        ("GET", "/api/v1/functions/other/none"),
        ("DELETE", "/api/v1/functions/other/g"),
        ("POST", "/api/v1/functions/other"),
        ("POST", "/api/v1/functions/other/g/rollback"),
        ("GET", "/api/v1/functions/other/g/logs"),
        ("GET", "/api/v1/functions/other/g/explain"),
        ("GET", "/api/v1/workers?namespace=other"),
        ("GET", "/api/v1/usage?namespace=other"),
        ("GET", "/api/v1/tokens"),
        ("POST", "/api/v1/tokens"),
        ("DELETE", "/api/v1/tokens/t9"),
    ],
)
async def test_a_namespaces_token_touches_nothing_else(house: House, method: str, path: str) -> None:
    assert (await house.refused(path, "lab", method))[0] == 403
    assert house.deployer.uploads == []
    assert house.deployer.calls == []


async def test_lists_show_a_namespaces_token_its_own(house: House) -> None:
    for path, key in (("functions", "name"), ("workers", "worker"), ("usage", "namespace")):
        _, mine = await house.get(f"/api/v1/{path}", "lab")
        _, everything = await house.get(f"/api/v1/{path}", "all")
        assert [row["namespace"] for row in mine] == ["lab"]
        assert len({row[key] for row in everything}) == len(everything) >= 1


@pytest.mark.parametrize("path", ["/no/such", "/api/v1/functions/lab/none", "/api/v1/functions/lab/..%2f..%2fetc/logs"])
async def test_what_is_not_there_is_404(house: House, path: str) -> None:
    assert (await house.refused(path))[0] == 404


async def test_a_wrong_method_is_405_and_says_which_will_do(house: House) -> None:
    async with house.client.put("/api/v1/functions", headers={"Authorization": "Bearer root"}) as answer:
        assert answer.status == 405
        assert "GET" in answer.headers["Allow"]
        assert (await answer.json())["error"]["code"] == "method_not_allowed"


# -- functions -----------------------------------------------------------------------------------------------


async def test_a_function_is_listed_and_shown_with_its_revisions(house: House) -> None:
    _, rows = await house.get("/api/v1/functions")
    assert rows[0] == {
        "namespace": "lab", "name": "f", "live": 2, "public": False, "url": "/fn/lab/f", "state": "ready",
        "workers": 4, "updated_at": 2.0,
    }  # fmt: skip
    assert rows[1]["state"] == "failed"
    _, shown = await house.get("/api/v1/functions/lab/f")
    assert shown["manifest"]["variables"] == {"A": "b"}
    assert [(r["number"], r["state"], r["live"]) for r in shown["revisions"]] == [
        (1, "ready", False),
        (2, "ready", True),
        (3, "failed", False),
    ]
    assert set(shown["revisions"][0]) == {"number", "state", "live", "shape", "environment", "error", "created_at"}


async def test_a_function_is_deleted_with_its_log(house: House) -> None:
    house.logs.append("lab", "f", 1, "w", "stdout", [b"old"], 1.0)
    assert await house.ask("DELETE", "/api/v1/functions/lab/f") == (200, {"deleted": "lab/f"})
    assert await house.logs.tail("lab", "f", 5) == []
    assert (await house.refused("/api/v1/functions/lab/none", method="DELETE"))[0] == 404


async def test_rollback_takes_a_number_or_nothing(house: House) -> None:
    path = "/api/v1/functions/lab/f/rollback"
    done = {"namespace": "lab", "function": "f", "revision": 1, "previous": 2}
    assert await house.ask("POST", path) == (200, done)
    assert await house.ask("POST", path, json={"revision": 1}) == (200, done)
    assert house.deployer.calls == [("lab", "f", None), ("lab", "f", 1)]
    assert (await house.refused(path, method="POST", json={"revision": 9}))[0] == 409
    for body in (b"{", b"[]", b'{"revision": 0}', b'{"revision": true}', b'{"revision": "1"}', b'{"rev": 1}', b"\xff"):
        assert (await house.refused(path, method="POST", data=body))[0] == 400
    assert (await house.refused(path, method="POST", data=b" " * 70_000))[0] == 413


async def test_explain_has_a_limit(house: House) -> None:
    _, rows = await house.get("/api/v1/functions/lab/f/explain")
    assert rows == [{"decision": "lab/f", "limit": 50}]
    assert (await house.get("/api/v1/functions/lab/f/explain?limit=7"))[1][0]["limit"] == 7


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/api/v1/functions?namespace=UP", "namespace: is made of"),
        ("/api/v1/functions?limit=1", "unknown parameter; there are namespace"),
        ("/api/v1/functions?namespace=a&namespace=b", "twice"),
        ("/api/v1/functions/lab/f?x=1", "there is none here"),
        ("/api/v1/functions/lab/f/explain?limit=0", "limit: is a whole number from 1 to 1000, not '0'"),
        ("/api/v1/functions/lab/f/explain?limit=1e2", "limit: is a whole number"),
        ("/api/v1/functions/lab/f/explain?limit=%D9%A3", "limit: is a whole number"),
        ("/api/v1/functions/lab/f/logs?tail=-1", "tail: is a whole number from 0"),
        ("/api/v1/functions/lab/f/logs?follow=yes", "follow: is a whole number from 0 to 1"),
        ("/api/v1/usage?since=yesterday", "since: is a time in seconds"),
        ("/api/v1/usage?until=nan", "until: is a time"),
        ("/api/v1/usage?until=1e300", "until: is a time"),
        ("/api/v1/usage?since=5&until=4", "since: 5 is after until (4)"),
    ],
)
async def test_a_bad_parameter_is_refused_with_its_name_and_rule(house: House, path: str, words: str) -> None:
    status, message = await house.refused(path)
    assert status == 400
    assert words in message


# -- usage and failures --------------------------------------------------------------------------------------


async def test_usage_passes_times_on(house: House) -> None:
    _, rows = await house.get("/api/v1/usage?namespace=lab&since=1.5&until=9")
    assert rows == [{"namespace": "lab", "since": 1.5, "until": 9}]


async def test_a_platform_failure_says_so_and_when_to_come_back(house: House) -> None:
    async with house.client.get("/api/v1/usage?until=503", headers={"Authorization": "Bearer root"}) as answer:
        assert (answer.status, answer.headers["Retry-After"]) == (503, "3")
        assert answer.headers["X-Samovar-Fault"] == "platform"


async def test_a_surprise_is_500_with_an_id_and_nothing_of_the_inside(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    status, body = await house.get("/api/v1/usage?until=500")
    assert (status, body["error"]["fault"]) == (500, "platform")
    assert "secret" not in json.dumps(body)
    assert body["error"]["detail"]["id"] in caplog.text
    assert "secret inside" in caplog.text


# -- deploys -------------------------------------------------------------------------------------------------


async def test_a_deploy_is_told_line_by_line(house: House) -> None:
    status, lines = await house.deploy(b"x" * 4000)
    assert status == 200
    assert [(line["event"], line.get("phase")) for line in lines] == [
        ("progress", "bundle"),
        ("progress", "environment"),
        ("progress", "traffic"),
        ("deployed", None),
    ]
    assert all(line["elapsed_ms"] >= 0 for line in lines)
    last = lines[-1]
    assert (last["namespace"], last["function"], last["revision"], last["url"]) == ("lab", "f", 3, "/fn/lab/f")
    assert house.deployer.uploads == [b"x" * 4000]
    assert list(house.uploads.iterdir()) == []


async def test_a_failed_deploy_ends_in_one_line_that_says_why(house: House) -> None:
    detail = {"traceback": "Traceback"}
    house.deployer.error = DeployFailed("proof", "import_error", "function", "no module x", detail)
    status, lines = await house.deploy()
    assert status == 200
    error = {"code": "import_error", "message": "no module x", "detail": detail}
    assert lines[-1] == {"event": "failed", "phase": "proof", "error": error}


async def test_a_surprise_during_a_deploy_is_a_failed_line_too(house: House) -> None:
    house.deployer.error = RuntimeError("secret")
    _, lines = await house.deploy()
    assert (lines[-1]["event"], lines[-1]["phase"], lines[-1]["error"]["code"]) == ("failed", "environment", "internal")
    assert "secret" not in json.dumps(lines)


async def test_a_bad_upload_is_refused_before_any_line(house: House) -> None:
    house.deployer.early = BadRequest("function.toml line 3: x", detail={"line": 3})
    status, message = await house.refused("/api/v1/functions/lab", "lab", "POST", data=b"x")
    assert (status, message) == (400, "function.toml line 3: x")
    assert list(house.uploads.iterdir()) == []
    house.deployer.early = RuntimeError("secret")
    assert (await house.refused("/api/v1/functions/lab", "lab", "POST", data=b"x"))[0] == 500
    status, message = await house.refused("/api/v1/functions/Lab", method="POST", data=b"x")
    assert (status, message[:9]) == (400, "namespace")


async def test_an_upload_over_the_bound_is_413_whether_its_length_is_told_or_not(house: House) -> None:
    async def in_pieces() -> AsyncGenerator[bytes, None]:
        for _ in range(20):
            yield b"x" * 500

    for body in (b"x" * 5001, in_pieces()):
        status, message = await house.refused("/api/v1/functions/lab", "lab", "POST", data=body)
        assert status == 413
        assert "5000" in message
    assert house.deployer.uploads == []
    assert list(house.uploads.iterdir()) == []


async def test_uploads_at_once_are_bounded(house: House) -> None:
    house.deployer.gate.clear()
    started = [asyncio.Event(), asyncio.Event()]
    let_go = asyncio.Event()

    async def slowly(number: int) -> AsyncGenerator[bytes, None]:
        yield b"x"
        started[number].set()
        await let_go.wait()

    tasks = [asyncio.create_task(house.deploy(slowly(number))) for number in range(2)]
    for event in started:
        await event.wait()
    for _ in range(2000):
        if len(list(house.uploads.glob("*"))) == 2:
            break
        await asyncio.sleep(0.002)
    status, _ = await house.refused("/api/v1/functions/lab", "lab", "POST", data=b"x")
    assert status == 429
    let_go.set()
    house.deployer.gate.set()
    assert [(await task)[0] for task in tasks] == [200, 200]


async def test_a_client_that_goes_away_does_not_stop_its_deploy(house: House) -> None:
    house.deployer.gate.clear()
    headers = {"Authorization": "Bearer lab"}
    answer = await house.client.post("/api/v1/functions/lab", data=b"x", headers=headers)
    assert json.loads(await answer.content.readline())["phase"] == "bundle"
    answer.close()
    house.deployer.gate.set()
    for _ in range(2000):
        if house.deployer.ended:
            break
        await asyncio.sleep(0.002)
    assert house.deployer.ended == ["done"]


async def test_shutting_down_ends_deploys_and_says_so(house: House) -> None:
    house.deployer.gate.clear()
    headers = {"Authorization": "Bearer lab"}
    answer = await house.client.post("/api/v1/functions/lab", data=b"x", headers=headers)
    await answer.content.readline()
    closing = asyncio.create_task(house.client.server.close())
    lines = [json.loads(line) async for line in answer.content]
    assert (lines[-1]["event"], lines[-1]["error"]["code"]) == ("failed", "unavailable")
    assert house.deployer.ended == ["cancelled"]
    await closing


# -- logs ----------------------------------------------------------------------------------------------------


async def test_the_last_lines_of_a_log_are_ndjson(house: House) -> None:
    house.logs.append("lab", "f", 2, "w1", "stderr", [b"one", b"two"], 5.0)
    status, text = await house.get("/api/v1/functions/lab/f/logs?tail=1", "lab")
    assert status == 200
    row = {"at": 5.0, "worker": "w1", "revision": 2, "stream": "stderr", "line": "two"}
    assert json.loads(text if isinstance(text, str) else json.dumps(text)) == row
    async with house.client.get("/api/v1/functions/lab/f/logs", headers={"Authorization": "Bearer lab"}) as answer:
        assert answer.content_type == "application/x-ndjson"
        assert len((await answer.text()).splitlines()) == 2


async def following(answer: aiohttp.ClientResponse) -> str:
    while True:
        line = await answer.content.readline()
        if line.strip():
            return str(json.loads(line)["line"])
        assert line, "the log ended"


async def test_following_gives_old_lines_and_new_ones_until_the_end(house: House) -> None:
    house.logs.append("lab", "f", 2, "w1", "stdout", [b"old"], 5.0)
    path = "/api/v1/functions/lab/f/logs?follow=1&tail=5"
    answer = await house.client.get(path, headers={"Authorization": "Bearer lab"})
    assert await following(answer) == "old"
    house.logs.append("lab", "f", 2, "w1", "stdout", [b"new"], 6.0)
    assert await following(answer) == "new"
    await house.client.server.close()
    assert (await answer.content.read()).strip() == b""


# -- tokens --------------------------------------------------------------------------------------------------


async def test_administrators_make_list_and_delete_tokens(house: House) -> None:
    body = {"namespace": "lab", "name": "for the lab", "expires_in_s": 60, "admin": False}
    status, made = await house.ask("POST", "/api/v1/tokens", json=body)
    assert (status, made["token"], made["id"], made["namespace"]) == (201, "smv_secret", "t9", "lab")
    assert (await house.ask("POST", "/api/v1/tokens", json={"namespace": None, "name": "x"}))[0] == 201
    assert house.tokens.made == [("lab", "for the lab", False, 60), (None, "x", False, None)]
    assert await house.get("/api/v1/tokens") == (200, [{"id": "t9", "name": "x"}])
    assert await house.ask("DELETE", "/api/v1/tokens/t9") == (200, {"deleted": "t9"})
    assert (await house.refused("/api/v1/tokens/t8", method="DELETE"))[0] == 404
    assert (await house.refused("/api/v1/tokens", "all", "POST"))[0] == 403


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"namespace": "Lab"}, "namespace"),
        ({"namespace": 3}, "namespace"),
        ({"name": ""}, "name"),
        ({"name": "x" * 101}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"expires_in_s": 0}, "expires_in_s"),
        ({"expires_in_s": True}, "expires_in_s"),
        ({"expires_in_s": 1e12}, "expires_in_s"),
        ({"expires_in_s": "60"}, "expires_in_s"),
        ({"admin": 1}, "admin"),
        ({"admn": True}, "'admn'"),
    ],
)
async def test_a_bad_token_request_is_refused_with_its_field(house: House, change: dict[str, Any], field: str) -> None:
    body = {"namespace": "lab", "name": "x"} | change
    status, message = await house.refused("/api/v1/tokens", method="POST", json=body)
    assert (status, message.split(":")[0]) == (400, field)
    assert house.tokens.made == []


async def test_a_token_request_names_what_is_missing(house: House) -> None:
    assert "namespace: is missing" in (await house.refused("/api/v1/tokens", method="POST", json={"name": "x"}))[1]
