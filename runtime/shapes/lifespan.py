"""An ASGI application's startup and shutdown; applications without a lifespan are fine."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from runtime.faults import describe, printable, shortened, traceback_of
from runtime.loading import LoadError

#: How long an application may take to shut down; its node agent may cut that short.
SHUTDOWN_S = 5.0

#: A failed startup's own words that are kept.
_MESSAGE_CHARS_MAX = 4 * 1024


class Lifespan:
    """One application's lifespan: a task that lives from startup to shutdown."""

    def __init__(self, application: Callable[..., Awaitable[None]], bundle_dir: str, version: dict[str, str]) -> None:
        self._application = application
        self._bundle_dir = bundle_dir
        self._version = version
        #: What the application put there at startup; each call gets a copy.
        self.state: dict[str, Any] = {}
        self._messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._started = asyncio.Event()
        self._stopped = asyncio.Event()
        self._failure: str | None = None
        self._task: asyncio.Task[None] | None = None

    async def startup(self) -> None:
        """Raises LoadError when the application says that it failed."""
        self._messages.put_nowait({"type": "lifespan.startup"})
        self._task = asyncio.get_running_loop().create_task(self._run())
        await self._started.wait()
        if self._failure is not None:
            await asyncio.wait([self._task], timeout=1.0)  # frameworks raise the cause next
            raise self._load_error(self._failure)

    def _load_error(self, told: str) -> LoadError:
        task = self._task
        error = task.exception() if task is not None and task.done() and not task.cancelled() else None
        if error is not None:
            return LoadError("lifespan_failed", *describe(error, self._bundle_dir))
        return LoadError("lifespan_failed", "LifespanFailed", told.strip().rpartition("\n")[2], told)

    async def _run(self) -> None:
        scope = {"type": "lifespan", "asgi": dict(self._version), "state": self.state}
        try:
            await self._application(scope, self._messages.get, self._send)
        except (SystemExit, KeyboardInterrupt) as error:
            self._failure = describe(error, self._bundle_dir).message
        except Exception as error:
            # Before its first answer it says so that it knows no lifespan. After its last nothing depends on it.
            if self._started.is_set() and not self._stopped.is_set():
                print(traceback_of(error, self._bundle_dir), end="", file=sys.stderr, flush=True)
            raise
        finally:
            self._started.set()
            self._stopped.set()

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        kind = message["type"]
        if kind == "lifespan.startup.complete":
            self._started.set()
        elif kind == "lifespan.startup.failed":
            text = str(message.get("message", "")) or "the application's startup failed"
            self._failure = printable(shortened(text, _MESSAGE_CHARS_MAX))
            self._started.set()
        elif kind in ("lifespan.shutdown.complete", "lifespan.shutdown.failed"):
            self._stopped.set()
            if kind.endswith("failed"):
                print(message.get("message", "shutdown failed"), file=sys.stderr, flush=True)
        else:
            raise RuntimeError(f"a message of type {kind!r} has no place in a lifespan")

    async def shutdown(self) -> None:
        """Let the application shut down, within its time."""
        if self._task is None or self._task.done():
            return
        self._messages.put_nowait({"type": "lifespan.shutdown"})
        await asyncio.wait([self._task], timeout=SHUTDOWN_S)
