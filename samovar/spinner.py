"""A sign of life on a terminal while a step takes long; nothing at all anywhere else."""

from __future__ import annotations

import itertools
import threading
import time
from typing import TextIO

_FRAMES = "|/-\\"
_EVERY_S = 0.12


class Spinner:
    """Turns beside a word until it is stopped. A context manager, so that it never outlives its step."""

    def __init__(self, stream: TextIO, wanted: bool) -> None:
        self._stream = stream
        self._wanted = wanted and stream.isatty()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Spinner:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def turn(self, word: str) -> None:
        """Begin to turn beside this word."""
        self.stop()
        if self._wanted:
            self._stop.clear()
            self._thread = threading.Thread(target=self._run, args=(word,), daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop and leave the line empty."""
        if self._thread is not None:
            self._stop.set()
            self._thread.join()
            self._thread = None

    def _run(self, word: str) -> None:
        began = time.monotonic()
        for frame in itertools.cycle(_FRAMES):
            self._stream.write(f"\r  {frame} {word} {time.monotonic() - began:.0f} s ")
            self._stream.flush()
            if self._stop.wait(_EVERY_S):
                break
        self._stream.write("\r\x1b[K")
        self._stream.flush()
