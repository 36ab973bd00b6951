"""Waiting for the first worker of a new revision: how a deploy learns that its code starts, or why not."""

from __future__ import annotations

import asyncio

from gateway.errors import SamovarError
from gateway.live_workers import LiveWorker


class Proofs:
    """Who waits for which revision to have a ready worker."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[asyncio.Future[LiveWorker]]] = {}

    def expect(self, revision: str) -> asyncio.Future[LiveWorker]:
        """A future that ends with the next ready worker of this revision, or with the error of its start."""
        future: asyncio.Future[LiveWorker] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(revision, [])
        waiting.append(future)
        future.add_done_callback(lambda done: self._forget(revision, done))
        return future

    def _forget(self, revision: str, future: asyncio.Future[LiveWorker]) -> None:
        waiting = self._waiting.get(revision, [])
        if future in waiting:
            waiting.remove(future)
        if not waiting:
            self._waiting.pop(revision, None)

    def ready(self, revision: str, worker: LiveWorker) -> None:
        """A worker of this revision serves."""
        for future in self._waiting.get(revision, ()):
            if not future.done():
                future.set_result(worker)

    def failed(self, revision: str, error: SamovarError) -> None:
        """A start of this revision failed."""
        for future in self._waiting.get(revision, ()):
            if not future.done():
                future.set_exception(error)
