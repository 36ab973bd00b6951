"""The control: a bare aiohttp server on uvloop that echoes JSON, and streams bytes back. What Samovar is set against.

It does what a researcher would write without Samovar: no worker, no pool, no record of the call.
"""

from __future__ import annotations

import asyncio
import socket

import uvloop
from aiohttp import web

from loadtests.bench.own_process import START_TIMEOUT_S, OwnProcess, Pipe
from loadtests.bench.requests import Address, Target

JSON_PATH = "/json"
BYTES_PATH = "/bytes"


async def echo_json(request: web.Request) -> web.Response:
    """Decode and encode again, as a handler's call does."""
    return web.json_response(await request.json())


async def echo_bytes(request: web.Request) -> web.StreamResponse:
    """Give back what comes, while it comes."""
    answer = web.StreamResponse(headers={"Content-Type": "application/octet-stream"})
    await answer.prepare(request)
    async for piece in request.content.iter_any():
        await answer.write(piece)
    await answer.write_eof()
    return answer


def application() -> web.Application:
    """The two echoes."""
    app = web.Application()
    app.add_routes([web.post(JSON_PATH, echo_json), web.post(BYTES_PATH, echo_bytes)])
    return app


async def _serve(pipe: Pipe) -> None:
    runner = web.AppRunner(application(), access_log=None)
    await runner.setup()
    listener = socket.create_server(("127.0.0.1", 0))
    await web.SockSite(runner, listener).start()
    ended = asyncio.Event()
    # Readable means closed: nobody sends anything to this process.
    asyncio.get_running_loop().add_reader(pipe.fileno(), ended.set)
    pipe.send(Address("127.0.0.1", listener.getsockname()[1]))
    await ended.wait()
    await runner.cleanup()


def main(pipe: Pipe) -> None:
    """The process: serves until the pipe closes."""
    uvloop.run(_serve(pipe))


class Control:
    """A running control server."""

    def __init__(self) -> None:
        self._process = OwnProcess("control", main)
        self.address: Address = self._process.hear(START_TIMEOUT_S)

    @property
    def alive(self) -> bool:
        """It serves."""
        return self._process.alive

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    @property
    def json(self) -> Target:
        """The JSON echo."""
        return Target(self.address, JSON_PATH)

    @property
    def bytes(self) -> Target:
        """The streaming echo."""
        return Target(self.address, BYTES_PATH)

    def close(self) -> None:
        """End it."""
        self._process.close()
