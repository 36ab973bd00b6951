"""A Python process of its own with a pipe to it, ended by closing the pipe and so never left behind."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 5.0

#: The child's end: `recv` raises EOFError when the parent is gone or has enough.
Pipe = Connection


class ProcessBroke(Exception):
    """The process ended or did not answer in time; the message says which."""


def _child(main: Callable[[Pipe], None], pipe: Pipe, parents_end: Pipe) -> None:
    parents_end.close()
    # Ctrl-C goes to the whole terminal; the parent decides when this one ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    main(pipe)


class OwnProcess:
    """Runs `main(pipe)` in a fresh interpreter."""

    def __init__(self, name: str, main: Callable[[Pipe], None]) -> None:
        self.name = name
        spawn = multiprocessing.get_context("spawn")
        self._pipe, childs_end = spawn.Pipe()
        self._process = spawn.Process(target=_child, args=(main, childs_end, self._pipe), name=name, daemon=True)
        self._process.start()
        childs_end.close()

    @property
    def pid(self) -> int:
        """The process."""
        assert self._process.pid is not None
        return self._process.pid

    @property
    def alive(self) -> bool:
        """It has not ended."""
        return self._process.is_alive()

    def tell(self, message: object) -> None:
        """Send it something. Raises ProcessBroke."""
        try:
            self._pipe.send(message)
        except OSError as error:
            raise ProcessBroke(f"{self.name} is gone: {error}") from error

    def hear(self, within_s: float) -> Any:
        """The next thing it says. Raises ProcessBroke, and what it says when that is an exception."""
        try:
            if not self._pipe.poll(within_s):
                raise ProcessBroke(f"{self.name} did not answer within {within_s:g} s")
            said = self._pipe.recv()
        except (EOFError, OSError) as error:
            raise ProcessBroke(f"{self.name} ended without an answer") from error
        if isinstance(said, Exception):
            raise said
        return said

    def close(self) -> None:
        """End it."""
        self._pipe.close()
        self._process.join(STOP_TIMEOUT_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
