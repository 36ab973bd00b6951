"""What functions write, kept in files: a current one and the one before for each function, whole lines of JSON.

`append` only puts lines into memory; a thread writes them a moment later. Reading goes through the same lock as
writing, so a follower that asks for the last lines first sees every line once, none twice and none missing. What does
not fit (a flood, a slow reader, a full disk) is dropped, counted, and said in the log itself.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from gateway.log_follower import Follower, LogFollowerParams
from gateway.log_lines import last_lines

log = logging.getLogger("gateway.function_logs")

#: The `stream` of lines that tell about the log itself.
OWN_STREAM = "samovar"


@dataclass(frozen=True)
class FunctionLogParams:
    """Bounds of keeping."""

    #: At this size the file becomes the one before; so a function has at most twice this on disk.
    file_bytes_max: int = 8 * 1024 * 1024
    line_chars_max: int = 64 * 1024
    #: Lines not written to disk yet, of one function.
    pending_bytes_max: int = 4 * 1024 * 1024
    write_every_s: float = 0.1
    #: Read back from the end of the files for a tail.
    tail_bytes_max: int = 8 * 1024 * 1024
    followers_max: int = 256
    follower: LogFollowerParams = field(default_factory=LogFollowerParams)


class TooManyFollowers(Exception):
    """The bound on followers is reached."""


class _Log:
    """One function's lines on their way to disk, and who watches."""

    def __init__(self) -> None:
        self.pending: list[bytes] = []
        self.pending_bytes = 0
        self.dropped = 0
        self.followers: set[Follower] = set()
        self.lock = asyncio.Lock()


class FunctionLogs:
    """All functions' logs, below one directory. Belongs to the event loop's thread."""

    def __init__(self, root: Path, params: FunctionLogParams = FunctionLogParams()) -> None:
        self._root = root
        self._params = params
        self._logs: dict[tuple[str, str], _Log] = {}
        self._dirty: set[tuple[str, str]] = set()
        self._writer: asyncio.Task[None] | None = None
        self._followers = 0
        self._closing = asyncio.Event()
        #: Lines dropped since the start, whatever the reason; a metric.
        self.dropped = 0

    # -- lines in ----------------------------------------------------------------------------------------

    def append(
        self, namespace: str, function: str, revision: int, worker: str, stream: str, lines: list[bytes], at: float
    ) -> None:
        """Keep these lines of a worker. `at`: seconds since the epoch. Does not block and does not raise."""
        key = (namespace, function)
        entry = self._logs.setdefault(key, _Log())
        for line in lines:
            text = line[: self._params.line_chars_max].decode("utf-8", "replace")
            row = {"at": at, "worker": worker, "revision": revision, "stream": stream, "line": text}
            self._take(entry, orjson.dumps(row))
        self._dirty.add(key)
        if self._writer is None and not self._closing.is_set():
            self._writer = asyncio.get_running_loop().create_task(self._write_soon())

    def _take(self, entry: _Log, row: bytes) -> None:
        if entry.pending_bytes + len(row) > self._params.pending_bytes_max:
            entry.dropped += 1
            self.dropped += 1
        else:
            entry.pending.append(row)
            entry.pending_bytes += len(row)
        for follower in entry.followers:
            follower.offer(row)

    # -- to disk -----------------------------------------------------------------------------------------

    async def _write_soon(self) -> None:
        while self._dirty:
            try:
                async with asyncio.timeout(self._params.write_every_s):
                    await self._closing.wait()
            except TimeoutError:
                pass  # the usual case: lines of this moment go to disk together
            await self._write_dirty()
        self._writer = None

    async def _write_dirty(self) -> None:
        keys, self._dirty = self._dirty, set()
        for key in keys:
            entry = self._logs.get(key)
            if entry is None:
                continue
            async with entry.lock:
                await self._flush(key, entry)
            self._let_go(key, entry)

    def _let_go(self, key: tuple[str, str], entry: _Log) -> None:
        """A function that writes nothing and is watched by nobody takes no memory."""
        if not entry.pending and not entry.followers and not entry.lock.locked() and self._logs.get(key) is entry:
            del self._logs[key]

    async def _flush(self, key: tuple[str, str], entry: _Log) -> None:
        """Write what is pending; the lock is held."""
        if not entry.pending and not entry.dropped:
            return
        rows, entry.pending, entry.pending_bytes = entry.pending, [], 0
        dropped, entry.dropped = entry.dropped, 0
        if dropped:
            rows.append(_told(f"{dropped} lines were dropped here: they came faster than they can be kept"))
        try:
            await asyncio.to_thread(self._write, self._file(key), rows)
        except OSError as error:
            self.dropped += len(rows)
            log.warning("log lines of %s/%s are lost: %s", *key, error)

    def _write(self, file: Path, rows: list[bytes]) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("ab") as opened:
            opened.write(b"\n".join(rows) + b"\n")
            size = opened.tell()
        if size >= self._params.file_bytes_max:
            file.replace(_before(file))

    def _file(self, key: tuple[str, str]) -> Path:
        return self._root / key[0] / f"{key[1]}.log"

    # -- lines out ---------------------------------------------------------------------------------------

    async def tail(self, namespace: str, function: str, count: int) -> list[bytes]:
        """The last `count` lines, oldest first, each the JSON of docs/api.md."""
        key = (namespace, function)
        entry = self._logs.setdefault(key, _Log())
        async with entry.lock:
            await self._flush(key, entry)
            rows = await asyncio.to_thread(self._read, self._file(key), count)
        self._let_go(key, entry)
        return rows

    async def follow(self, namespace: str, function: str, count: int, beat_s: float) -> AsyncGenerator[bytes, None]:
        """The last `count` lines and then every new one, until `close` or `forget`; b"" when nothing came for
        `beat_s`. Raises TooManyFollowers.
        """
        if self._followers >= self._params.followers_max:
            raise TooManyFollowers(f"{self._followers} followers of logs")
        if self._closing.is_set():
            return
        self._followers += 1
        key = (namespace, function)
        entry = self._logs.setdefault(key, _Log())
        follower = Follower(self._params.follower)
        try:
            async with entry.lock:
                while entry.pending or entry.dropped:
                    await self._flush(key, entry)
                entry.followers.add(follower)  # no wait since the last look: all before is on disk, all after is told
                rows = await asyncio.to_thread(self._read, self._file(key), count)
            for row in rows:
                yield row
            while (fresh := await follower.next(beat_s)) is not None:
                yield fresh
                if missed := follower.take_missed():
                    yield _told(f"{missed} lines were left out here: this reader is too slow")
        finally:
            self._followers -= 1
            entry.followers.discard(follower)
            self._let_go(key, entry)

    def _read(self, file: Path, count: int) -> list[bytes]:
        rows = last_lines(file, count, self._params.tail_bytes_max)
        if len(rows) < count:
            rows = last_lines(_before(file), count - len(rows), self._params.tail_bytes_max) + rows
        return rows

    # -- ends --------------------------------------------------------------------------------------------

    async def forget(self, namespace: str, function: str) -> None:
        """The function was deleted: its lines go, its followers are let go."""
        key = (namespace, function)
        entry = self._logs.setdefault(key, _Log())
        async with entry.lock:
            entry.pending.clear()
            entry.pending_bytes = entry.dropped = 0
            for follower in entry.followers:
                follower.close()
            await asyncio.to_thread(_remove, self._file(key))
        self._let_go(key, entry)

    def let_followers_go(self) -> None:
        """End every `follow` that goes on; lines are kept as before."""
        for entry in self._logs.values():
            for follower in entry.followers:
                follower.close()

    async def close(self) -> None:
        """Let every follower go and write what is pending."""
        self._closing.set()
        self.let_followers_go()
        if self._writer is not None:
            await self._writer
        for key, entry in list(self._logs.items()):
            async with entry.lock:
                await self._flush(key, entry)


def _told(text: str) -> bytes:
    return orjson.dumps({"at": time.time(), "worker": "", "revision": 0, "stream": OWN_STREAM, "line": text})


def _before(file: Path) -> Path:
    return file.with_suffix(".log.1")


def _remove(file: Path) -> None:
    for old in (file, _before(file)):
        old.unlink(missing_ok=True)
