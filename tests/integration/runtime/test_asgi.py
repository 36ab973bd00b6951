"""ASGI applications on real workers: scope, bodies both ways, disconnects, lifespan."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from runtime import messages as wire

pytestmark = pytest.mark.asyncio(loop_scope="module")

APP = r"""
import asyncio, json, os, sys

async def main(scope, receive, send):
    if scope["type"] != "http":
        raise NotImplementedError(scope["type"])
    await globals()[scope["path"].rpartition("/")[2] or "seen"](scope, receive, send)

async def answer(send, body, status=200, headers=()):
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})
    await send({"type": "http.response.body", "body": body})

async def seen(scope, receive, send):
    text = {k: v.decode("latin-1") if isinstance(v, bytes) else v for k, v in scope.items() if k != "headers"}
    text["headers"] = [[k.decode(), v.decode()] for k, v in scope["headers"]]
    await answer(send, json.dumps(text).encode(), 201, [(b"set-cookie", b"a=1"), (b"set-cookie", b"b=2")])

async def echo(scope, receive, send):
    await send({"type": "http.response.start", "status": 200})
    while True:
        message = await receive()
        await send({"type": "http.response.body", "body": message["body"], "more_body": message["more_body"]})
        if not message["more_body"]:
            return

async def head_first(scope, receive, send):
    await send({"type": "http.response.start", "status": 200})
    await receive()
    await receive()
    await send({"type": "http.response.body", "body": b"late"})

async def until_disconnect(scope, receive, send):
    await send({"type": "http.response.start", "status": 200})
    await send({"type": "http.response.body", "body": b"first", "more_body": True})
    while (await receive())["type"] != "http.disconnect":
        pass
    print("saw the disconnect")

async def deaf(scope, receive, send):
    try:
        await asyncio.sleep(600)
    finally:
        print("was cancelled")

async def endless(scope, receive, send):
    await send({"type": "http.response.start", "status": 200})
    while True:
        await send({"type": "http.response.body", "body": b"x" * 70_000, "more_body": True})

async def background(scope, receive, send):
    await answer(send, b"done")
    assert (await receive())["type"] == "http.disconnect"
    await asyncio.sleep(0.2)
    print("afterwards")

async def late_error(scope, receive, send):
    await answer(send, b"done")
    raise ValueError("after the answer")

async def raises(scope, receive, send): raise ValueError("on purpose")
async def exits(scope, receive, send): sys.exit(3)
async def silent(scope, receive, send): pass
async def half(scope, receive, send):
    await send({"type": "http.response.start", "status": 200})
    await send({"type": "http.response.body", "body": b"half", "more_body": True})
async def broken(scope, receive, send):
    await half(scope, receive, send)
    raise RuntimeError("in the middle")
async def twice(scope, receive, send):
    await send({"type": "http.response.start", "status": 200})
    await send({"type": "http.response.start", "status": 200})
async def text_headers(scope, receive, send):
    await answer(send, b"", 200, [("a", "b")])
async def text_body(scope, receive, send):
    await answer(send, "text")
async def body_first(scope, receive, send):
    await send({"type": "http.response.body", "body": b""})
async def unknown(scope, receive, send):
    await send({"type": "websocket.accept"})
"""


async def test_the_scope_is_what_asgi_3_says(shared_gateway: Any) -> None:
    worker = await shared_gateway.worker(APP)
    assert worker.ready.shape == "asgi"
    answer = await worker.call(method="PATCH", target=b"/a%2Fb/%C3%A9/seen?x=1&y=%FF")
    assert answer.status == 201
    assert answer.headers == [[b"set-cookie", b"a=1"], [b"set-cookie", b"b=2"]]
    scope = json.loads(answer.body)
    assert scope["asgi"]["version"] == "3.0"
    assert scope["method"] == "PATCH"
    assert scope["root_path"] == "/fn/default/f"
    assert scope["path"] == "/fn/default/f/a/b/é/seen"
    assert scope["raw_path"] == "/fn/default/f/a%2Fb/%C3%A9/seen"
    assert scope["query_string"] == "x=1&y=%FF"
    assert scope["scheme"] == "http"
    assert scope["http_version"] == "1.1"
    assert scope["client"] == ["127.0.0.1", 0]
    assert scope["server"] == ["lab.example", 8080]
    assert ["content-type", "application/json"] in scope["headers"]
    assert scope["state"] == {}


async def test_a_call_of_the_mount_point_itself_is_one_of_its_root(shared_gateway: Any) -> None:
    worker = await shared_gateway.worker(APP)
    scope = json.loads((await worker.call(target=b"?a=b")).body)
    assert (scope["path"], scope["raw_path"], scope["query_string"]) == ("/fn/default/f/", "/fn/default/f/", "a=b")


async def test_a_body_streams_in_and_out_within_the_windows(shared_gateway: Any) -> None:
    worker = await shared_gateway.worker(APP)
    request = worker.request(b"", target=b"/echo", last=False)
    total, sent, window, received = 8 * 1024 * 1024, 0, wire.WINDOW_BYTES, 0
    done = False
    while not done:
        while window >= wire.CHUNK_BYTES and sent < total:
            sent += wire.CHUNK_BYTES
            window -= wire.CHUNK_BYTES
            worker.peer.send(wire.Body(request.call, b"e" * wire.CHUNK_BYTES, sent == total, []))
        message = await worker.peer.next()
        if isinstance(message, wire.Credit):
            window += message.amount
        else:
            data = message.body if isinstance(message, wire.Response) else message.data
            received += len(data)
            done = message.last
            worker.peer.send(wire.Credit(request.call, len(data)))
    assert received == total


async def test_a_stream_stops_at_the_window_and_goes_on_with_credit(shared_gateway: Any) -> None:
    worker = await shared_gateway.worker(APP)
    request = worker.request(target=b"/endless")
    received = 0
    while received + 70_000 <= wire.WINDOW_BYTES:
        message = await worker.peer.next()
        received += len(message.body if isinstance(message, wire.Response) else message.data)
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(worker.peer.messages.get(), 0.2)
    worker.peer.send(wire.Credit(request.call, 100_000))
    assert isinstance(await worker.peer.next(), wire.Body)
    worker.peer.send(wire.Cancel(request.call, "timeout"))
    assert (await worker.ending(request.call, credit=False)).failed.kind == "cancelled"
    assert (await worker.call()).status == 201


async def test_a_head_without_a_body_is_sent_at_once(shared_gateway: Any) -> None:
    worker = await shared_gateway.worker(APP)
    request = worker.request(target=b"/head_first", last=False)
    head = await worker.peer.next()
    assert isinstance(head, wire.Response)
    assert not head.last
    worker.peer.send(wire.Body(request.call, b"a", False, []))
    worker.peer.send(wire.Body(request.call, b"b", True, []))
    assert (await worker.ending(request.call)).body == b"late"


async def test_an_application_hears_that_its_caller_is_gone(shared_gateway: Any, wait_until: Any) -> None:
    worker = await shared_gateway.worker(APP)
    request = worker.request(target=b"/until_disconnect")
    assert (await worker.peer.next()).body == b"first"
    worker.peer.send(wire.Cancel(request.call, "client_gone"))
    assert (await worker.ending(request.call)).failed.kind == "cancelled"
    await wait_until(lambda: b"saw the disconnect" in worker.log_text(), "it says so")


@pytest.mark.parametrize("reason", ["timeout", "client_gone"])
@pytest.mark.parametrize("path", [b"/deaf", b"/endless"])
async def test_an_application_that_does_not_listen_is_cancelled(shared_gateway: Any, reason: str, path: bytes) -> None:
    worker = await shared_gateway.worker(APP)
    request = worker.request(target=path)
    worker.peer.send(wire.Cancel(request.call, reason))
    while not isinstance(message := await worker.peer.next(), wire.Failed):
        assert message is not None
    assert message.kind == "cancelled"
    assert (await worker.call()).status == 201


async def test_an_application_may_go_on_after_its_answer(shared_gateway: Any) -> None:
    worker = await shared_gateway.worker(APP)
    assert (await worker.call(target=b"/background")).body == b"done"
    worker.stop(30_000)
    assert (await worker.gone()).code == 0
    assert worker.log_text() == b"afterwards"


async def test_an_error_after_the_answer_is_in_the_log(shared_gateway: Any) -> None:
    worker = await shared_gateway.worker(APP)
    assert (await worker.call(target=b"/late_error")).body == b"done"
    assert (await worker.call()).status == 201
    worker.stop(5_000)
    await worker.gone()
    assert b"ValueError: after the answer" in worker.log_text()


@pytest.mark.parametrize(
    ("path", "kind", "error_type", "part"),
    [
        (b"/raises", "raised", "ValueError", "on purpose"),
        (b"/exits", "raised", "SystemExit", "status 3"),
        (b"/silent", "bad_result", "BadResult", "without a complete answer"),
        (b"/half", "broken", "BadResult", "without a complete answer"),
        (b"/broken", "broken", "RuntimeError", "in the middle"),
        (b"/twice", "", "RuntimeError", "sent twice"),
        (b"/text_headers", "raised", "TypeError", "pairs of bytes"),
        (b"/text_body", "", "TypeError", "a body is bytes"),
        (b"/body_first", "raised", "RuntimeError", "before http.response.start"),
        (b"/unknown", "raised", "RuntimeError", "websocket.accept"),
        (b"/not_there", "raised", "KeyError", "not_there"),
    ],
)
async def test_an_application_that_fails_is_told_once(
    shared_gateway: Any, path: bytes, kind: str, error_type: str, part: str
) -> None:
    worker = await shared_gateway.worker(APP, concurrency=10)
    answer = await worker.call(target=path)
    assert answer.failed.error_type == error_type
    assert answer.failed.kind == kind or not kind
    assert part in answer.failed.message
    assert (await worker.call()).status == 201


async def test_calls_overlap(shared_gateway: Any) -> None:
    worker = await shared_gateway.worker(APP, concurrency=10)
    slow = [worker.request(target=b"/until_disconnect") for _ in range(5)]
    for _ in slow:
        assert (await worker.peer.next()).body == b"first"
    assert (await worker.call()).status == 201
    for request in slow:
        worker.peer.send(wire.Cancel(request.call, "client_gone"))
    ended = [await worker.peer.next() for _ in slow]
    assert {m.call for m in ended} == {r.call for r in slow}
    assert all(isinstance(m, wire.Failed) for m in ended)


LIFESPAN = """
    async def main(scope, receive, send):
        if scope["type"] == "lifespan":
            while True:
                message = await receive()
                if message["type"] == "lifespan.startup":
                    {startup}
                else:
                    print("shut down")
                    await send({{"type": "lifespan.shutdown.complete"}})
                    return
        else:
            await send({{"type": "http.response.start", "status": 200}})
            await send({{"type": "http.response.body", "body": scope["state"]["text"]}})
"""


async def test_a_lifespan_is_run_and_its_state_handed_to_calls(shared_gateway: Any) -> None:
    startup = "scope['state']['text'] = b'made at startup'; await send({'type': 'lifespan.startup.complete'})"
    worker = await shared_gateway.worker(LIFESPAN.format(startup=startup))
    assert (await worker.call()).body == b"made at startup"
    worker.stop(5_000)
    assert (await worker.gone()).code == 0
    assert worker.log_text() == b"shut down"


async def test_a_failed_startup_fails_the_start(shared_gateway: Any) -> None:
    startup = "await send({'type': 'lifespan.startup.failed', 'message': 'no model there'}); return"
    worker = await shared_gateway.settled(shared_gateway.begin(LIFESPAN.format(startup=startup)))
    assert (worker.failed.kind, worker.failed.message) == ("lifespan_failed", "no model there")
    assert (await worker.gone()).code == 1


async def test_a_startup_that_fails_with_its_cause_tells_the_cause(shared_gateway: Any) -> None:
    startup = "await send({'type': 'lifespan.startup.failed'}); raise ValueError('no weights')"
    worker = await shared_gateway.settled(shared_gateway.begin(LIFESPAN.format(startup=startup)))
    assert worker.failed.kind == "lifespan_failed"
    assert (worker.failed.error_type, worker.failed.message) == ("ValueError", "no weights")
    assert 'File "handler.py"' in worker.failed.traceback
