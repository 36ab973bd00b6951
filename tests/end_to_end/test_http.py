"""HTTP through the whole house: what a client sends arrives byte for byte, and what a handler says comes back."""

from __future__ import annotations

import base64
import socket
from urllib.parse import urlsplit

import httpx
import pytest
from house import PATIENCE_S, PROJECT, Samovar, wait_until

APP = r"""
import asyncio, json

async def app(scope, receive, send):
    if scope["type"] != "http":
        raise NotImplementedError(scope["type"])
    path = scope["raw_path"]
    if path.endswith(b"/cookies"):
        headers = [(b"set-cookie", b"a=1"), (b"set-cookie", b"b=2"), (b"connection", b"x-secret"), (b"X-CaSe", b"v")]
        await answer(send, 200, headers, b"ok")
    elif path.endswith(b"/status"):
        status = int(scope["query_string"])
        await answer(send, status, [], b"" if status in (204, 304) else b"body")
    elif path.endswith(b"/count"):
        total = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            total += len(message["body"])
            if not message.get("more_body"):
                break
        await answer(send, 200, [(b"content-type", b"application/json")], json.dumps(total).encode())
    elif path.endswith(b"/big"):
        size = int(scope["query_string"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while size > 0:
            piece = min(size, 65536)
            await send({"type": "http.response.body", "body": b"z" * piece, "more_body": True})
            size -= piece
        await send({"type": "http.response.body", "body": b""})
    elif path.endswith(b"/gzip"):
        await answer(send, 200, [(b"content-encoding", b"gzip")], b"\x1f\x8b not really")
    elif path.endswith(b"/broken"):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise RuntimeError("in the middle")
    elif path.endswith(b"/split"):
        await answer(send, 200, [(b"x-bad", b"a\r\nset-cookie: stolen=1")], b"")
    elif path.endswith(b"/slow"):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        await asyncio.sleep(600)
    elif path.endswith(b"/never"):
        await asyncio.sleep(600)
    else:
        headers = [[k.decode("latin-1"), v.decode("latin-1")] for k, v in scope["headers"]]
        seen = {"method": scope["method"], "raw_path": path.decode("latin-1"), "root_path": scope["root_path"],
                "query": scope["query_string"].decode("latin-1"), "headers": headers}
        await answer(send, 200, [(b"content-type", b"application/json")], json.dumps(seen).encode())

async def answer(send, status, headers, body):
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
"""


@pytest.fixture(scope="module")
def house(samovar: Samovar) -> Samovar:
    limits = {"total": "20s", "first_byte": "2s", "idle": "2s"}
    samovar.deployed("web", APP, "handler:app", concurrency=10, max_body="1MiB", timeouts=limits)
    return samovar


def raw(house: Samovar, request: bytes, until_close: bool = True) -> bytes:
    """Send bytes as they are and read the answer."""
    address = urlsplit(house.url)
    with socket.create_connection((address.hostname or "", address.port or 0), timeout=PATIENCE_S) as sock:
        sock.sendall(request)
        received = b""
        while piece := sock.recv(65536):
            received += piece
            if not until_close and b"\r\n\r\n" in received:
                break
        return received


def head(house: Samovar, line: str, *more: str) -> bytes:
    """A request head that closes the connection after it."""
    lines = [line, "Host: lab.example", f"Authorization: Bearer {house.token}", "Connection: close", *more]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"


def test_method_path_query_and_repeated_headers_arrive_as_sent(house: Samovar) -> None:
    request = head(house, "PATCH /fn/default/web/a%2Fb//c%20d?x=1&x=%FF&y HTTP/1.1", "X-Two: 1", "X-Two: 2")
    answer = raw(house, request)
    seen = httpx.Response(200, content=answer.split(b"\r\n\r\n", 1)[1]).json()
    assert seen["method"] == "PATCH"
    assert seen["raw_path"] == "/fn/default/web/a%2Fb//c%20d"
    assert seen["root_path"] == "/fn/default/web"
    assert seen["query"] == "x=1&x=%FF&y"
    assert [v for k, v in seen["headers"] if k == "x-two"] == ["1", "2"]
    names = [k for k, _ in seen["headers"]]
    assert "authorization" not in names, "our token must not reach the function"
    assert "connection" not in names
    assert dict(seen["headers"])["host"] == "lab.example"
    assert "for=127.0.0.1" in dict(seen["headers"])["forwarded"]


def test_repeated_answer_headers_come_back_and_hop_by_hop_ones_do_not(house: Samovar) -> None:
    answer = house.call("web", "/cookies", method="GET")
    assert answer.headers.get_list("set-cookie") == ["a=1", "b=2"]
    assert answer.headers["x-case"] == "v"
    assert answer.headers.get("connection") != "x-secret"


@pytest.mark.parametrize("status", [204, 304])
def test_answers_without_a_body_have_none(house: Samovar, status: int) -> None:
    answer = raw(house, head(house, f"GET /fn/default/web/status?{status} HTTP/1.1"))
    top, _, body = answer.partition(b"\r\n\r\n")
    assert top.startswith(b"HTTP/1.1 %d" % status)
    assert body == b""
    assert b"transfer-encoding" not in top.lower()


def test_head_has_the_length_and_no_body(house: Samovar) -> None:
    answer = raw(house, head(house, "HEAD /fn/default/web/status?200 HTTP/1.1"))
    top, _, body = answer.partition(b"\r\n\r\n")
    assert b"content-length: 4" in top.lower()
    assert body == b""


def test_options_reaches_the_function(house: Samovar) -> None:
    assert house.call("web", method="OPTIONS").json()["method"] == "OPTIONS"


def test_a_client_that_expects_100_continue_is_told_to_go_on(house: Samovar) -> None:
    request = head(house, "POST /fn/default/web/count HTTP/1.1", "Content-Length: 5", "Expect: 100-continue")
    address = urlsplit(house.url)
    with socket.create_connection((address.hostname or "", address.port or 0), timeout=PATIENCE_S) as sock:
        sock.sendall(request)
        assert sock.recv(1000).startswith(b"HTTP/1.1 100 Continue\r\n\r\n")
        sock.sendall(b"12345")
        received = b""
        while piece := sock.recv(65536):
            received += piece
        assert received.endswith(b"\r\n\r\n5")


def test_a_refused_client_that_expects_100_continue_gets_the_refusal_alone(house: Samovar) -> None:
    request = head(house, "POST /fn/default/web/count HTTP/1.1", "Content-Length: 99999999", "Expect: 100-continue")
    assert raw(house, request).startswith(b"HTTP/1.1 413 ")


def test_compressed_answers_are_untouched(house: Samovar) -> None:
    answer = raw(house, head(house, "GET /fn/default/web/gzip HTTP/1.1"))
    assert answer.endswith(b"\x1f\x8b not really")


@pytest.mark.parametrize("size", [0, 1, 65_536, 1_048_576])
def test_bodies_up_to_the_limit_stream_in(house: Samovar, size: int) -> None:
    def pieces() -> object:
        left = size
        while left:
            piece = min(left, 100_000)
            yield b"a" * piece
            left -= piece

    assert house.call("web", "/count", content=b"a" * size).json() == size
    assert house.call("web", "/count", content=pieces()).json() == size


def test_a_body_over_the_limit_is_refused_early(house: Samovar) -> None:
    assert house.call("web", "/count", content=b"a" * 1_048_577).status_code == 413

    def endless() -> object:
        for _ in range(10_000):
            yield b"a" * 65_536

    with _either(httpx.HTTPError):
        answer = house.call("web", "/count", content=endless())
        assert answer.status_code == 413
    assert house.call("web", "/count", content=b"abc").json() == 3


class _either:
    """The client may see 413 or a cut connection while it is still sending."""

    def __init__(self, kind: type[BaseException]) -> None:
        self.kind = kind

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        return kind is not None and issubclass(kind, self.kind)


def test_large_answers_stream_out_whole(house: Samovar) -> None:
    answer = house.call("web", "/big?20000000", method="GET")
    assert len(answer.content) == 20_000_000


def test_a_broken_stream_is_visible_as_broken(house: Samovar) -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        house.call("web", "/broken", method="GET")


def test_a_handler_cannot_split_the_answer(house: Samovar) -> None:
    answer = house.call("web", "/split", method="GET")
    assert answer.status_code == 502
    assert "set-cookie" not in answer.headers


def test_first_byte_and_idle_timeouts_say_which(house: Samovar) -> None:
    answer = house.call("web", "/never", method="GET")
    assert answer.status_code == 504
    assert "first-byte timeout of 2 s" in answer.json()["error"]["message"]
    with pytest.raises(httpx.RemoteProtocolError):
        house.call("web", "/slow", method="GET")
    assert house.call("web", "/count", content=b"ok").json() == 2


def test_clients_that_leave_never_leak_a_slot(samovar: Samovar) -> None:
    code = "import time\ndef main(event, context):\n    time.sleep((event or {}).get('s', 0))\n    return 'done'\n"
    samovar.deployed("leave", code, scale={"max": 1}, timeouts={"total": "20s"})
    address = urlsplit(samovar.url)
    body = b'{"s": 0.3}'
    request = (
        b"POST /fn/default/leave HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer "
        + samovar.token.encode()
        + b"\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    )
    sockets = [socket.create_connection((address.hostname or "", address.port or 0)) for _ in range(8)]
    for sock in sockets:
        sock.sendall(request)
    wait_until(lambda: any(w["in_flight"] for w in samovar.workers("leave")), "one of them runs")
    for sock in sockets:
        sock.close()
    assert samovar.call("leave", json={}).json() == "done"
    wait_until(lambda: samovar.usage("leave")["calls"] == 9, "every accepted call has its record")
    assert samovar.usage("leave")["client_gone"] == 8
    assert all(w["in_flight"] == 0 for w in samovar.workers("leave"))


@pytest.mark.parametrize(
    ("target", "token", "status"),
    [
        ("/fn/default/nothing", "good", 404),
        ("/fn/nowhere/hello", "good", 404),
        ("/fn/default/web", "", 401),
        ("/fn/default/web", "smv_wrong", 401),
        ("/fn/default/nothing", "", 401),
        ("/fn/", "good", 404),
        ("/api/v1/functions", "", 401),
        ("/metrics", "", 401),
        ("/healthz", "", 200),
        ("/no/such/page", "good", 404),
    ],
)
def test_who_may_see_what(house: Samovar, target: str, token: str, status: int) -> None:
    bearer = house.token if token == "good" else token
    headers = {"authorization": f"Bearer {bearer}"} if bearer else {}
    assert httpx.get(house.url + target, headers=headers, trust_env=False).status_code == status


def test_a_namespaces_token_serves_its_namespace_only(house: Samovar) -> None:
    made = house.client.post("/api/v1/tokens", json={"namespace": "lab", "name": "for the lab"})
    assert made.status_code == 201, made.text
    headers = {"authorization": f"Bearer {made.json()['token']}"}
    assert httpx.get(f"{house.url}/fn/default/web", headers=headers, trust_env=False).status_code == 403
    assert httpx.get(f"{house.url}/api/v1/functions", headers=headers, trust_env=False).json() == []
    assert httpx.get(f"{house.url}/api/v1/tokens", headers=headers, trust_env=False).status_code == 403


def test_a_public_function_needs_no_token(samovar: Samovar) -> None:
    samovar.deployed("public", "def main(event, context):\n    return 'come in'\n", public=True)
    assert httpx.post(f"{samovar.url}/fn/default/public", trust_env=False).json() == "come in"


def test_the_echo_sample_returns_what_it_received(samovar: Samovar) -> None:
    assert samovar.deploy_folder(PROJECT / "functions" / "echo")["event"] == "deployed"
    body = bytes(range(256)) * 3
    seen = samovar.call("echo", "/x?y=1", content=body, headers={"content-type": "application/octet-stream"}).json()
    assert base64.b64decode(seen["body"]) == body
