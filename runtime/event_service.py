"""Event handlers on the loop: `async def` ones as coroutines, others in threads when several calls run at once."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from runtime.call_stream import CallStream
from runtime.messages import Request
from runtime.shapes.event import EventHandler
from runtime.shapes.event_result import Answer


class EventService:
    """Implements `runtime.loop_driver.Service`."""

    def __init__(self, handler: EventHandler, concurrency: int, max_body_bytes: int) -> None:
        self._handler = handler
        self._max_body_bytes = max_body_bytes
        self.cancellable = handler.is_async
        self._threads = None if handler.is_async else ThreadPoolExecutor(concurrency, "call")

    async def start(self) -> None:
        """Nothing to start."""

    async def serve(self, stream: CallStream) -> None:
        """One call."""
        body = await stream.read_all(self._max_body_bytes)
        if self._threads is None:
            answer = await self._handler.run_async(stream.request, body)
        else:
            loop = asyncio.get_running_loop()
            answer = await loop.run_in_executor(self._threads, self._run, stream.request, body)
        stream.head(answer.status, answer.headers)
        await stream.write(answer.body, True)

    def _run(self, request: Request, body: bytes) -> Answer:
        return self._handler.run(request, body)

    async def stop(self) -> None:
        """Threads that still run end with the process."""
