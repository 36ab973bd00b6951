"""Answers with what it received: method, path, query, headers and body, nothing decoded and nothing lost.

With `raw=1` in the query the body itself comes back, as it arrives and with its content type.
"""

import base64
import json


async def app(scope, receive, send):
    """The ASGI application."""
    if scope["type"] != "http":
        raise RuntimeError(f"only HTTP is served here, not {scope['type']}")
    if b"raw=1" in scope["query_string"].split(b"&"):
        await _pass_through(scope, receive, send)
    else:
        await _describe(scope, receive, send)


async def _describe(scope, receive, send):
    body = b"".join([piece async for piece in _pieces(receive)])
    # Latin-1 gives each byte one character, so that nothing is lost on the way into JSON.
    seen = {
        "method": scope["method"],
        "path": scope["raw_path"].decode("latin-1"),
        "query": scope["query_string"].decode("latin-1"),
        "headers": [[name.decode("latin-1"), value.decode("latin-1")] for name, value in scope["headers"]],
        "body": base64.b64encode(body).decode("ascii"),
    }
    answer = json.dumps(seen).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(answer)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


async def _pass_through(scope, receive, send):
    # A body that is sent back has the type and, where it is known, the length that it came with.
    kept = (b"content-type", b"content-length")
    headers = [(name, value) for name, value in scope["headers"] if name in kept]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    async for piece in _pieces(receive):
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _pieces(receive):
    """The request's body as it arrives; ends early when the client goes away."""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        if message.get("body"):
            yield message["body"]
        if not message.get("more_body"):
            return
