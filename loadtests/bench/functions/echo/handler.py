"""An ASGI application that sends every piece of the request's body back as soon as it comes."""

from collections.abc import Awaitable, Callable
from typing import Any

Message = dict[str, Any]


async def app(scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]) -> None:
    """See the module."""
    if scope["type"] != "http":
        raise RuntimeError("only HTTP is spoken here")
    head = [(b"content-type", b"application/octet-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    more = True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            return
        more = message.get("more_body", False)
        await send({"type": "http.response.body", "body": message.get("body", b""), "more_body": more})
