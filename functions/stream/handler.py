"""Counts, one server-sent event a step, and stops when the client goes away."""

import asyncio
import json

MOST_EVENTS = 10_000
LONGEST_INTERVAL_MS = 10_000
LARGEST_REQUEST = 64 * 1024


async def app(scope, receive, send):
    """`{"count": 5, "interval_ms": 100}` gives five events, 100 ms apart, then one that says it is done."""
    if scope["type"] != "http":
        raise RuntimeError(f"only HTTP is served here, not {scope['type']}")
    try:
        count, interval_ms = asked(await _body(receive))
    except ValueError as error:
        await _refuse(send, str(error))
        return
    headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    # After the body, what comes next from the client is only that it has gone.
    gone = asyncio.ensure_future(receive())
    try:
        for number in range(1, count + 1):
            await _event(send, "count", {"number": number, "of": count})
            await asyncio.wait({gone}, timeout=interval_ms / 1000)
            if gone.done():
                return
        await _event(send, "done", {"counted": count})
        await send({"type": "http.response.body", "body": b""})
    finally:
        gone.cancel()


def asked(body):
    """How many events, and how far apart. Raises ValueError."""
    wanted = json.loads(body) if body else {}
    if not isinstance(wanted, dict):
        raise ValueError("send a JSON object such as {\"count\": 5, \"interval_ms\": 100}")
    values = []
    for key, default, largest in (("count", 5, MOST_EVENTS), ("interval_ms", 100, LONGEST_INTERVAL_MS)):
        value = wanted.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= largest:
            raise ValueError(f"{key}: a whole number from 0 to {largest}")
        values.append(value)
    return values


async def _event(send, kind, data):
    text = f"event: {kind}\ndata: {json.dumps(data)}\n\n"
    await send({"type": "http.response.body", "body": text.encode(), "more_body": True})


async def _refuse(send, rule):
    body = json.dumps({"error": rule}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 400, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _body(receive):
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > LARGEST_REQUEST:
            raise ValueError(f"the request is larger than {LARGEST_REQUEST} bytes")
        if not message.get("more_body"):
            return body
