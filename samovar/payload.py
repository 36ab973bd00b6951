"""What `samovar invoke` sends: a body from the command line, a file or stdin, and its headers.

Raises WrongUsage for what cannot be sent. Files and stdin are streamed, never read whole.
"""

from __future__ import annotations

import json
import mimetypes
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from samovar.problems import WrongUsage

JSON_TYPE = "application/json"
BYTES_TYPE = "application/octet-stream"
#: Standard input is looked at this far to see whether all of it is JSON.
PEEK_BYTES = 1024 * 1024
CHUNK_BYTES = 64 * 1024

Headers = list[tuple[str, str]]


@dataclass(frozen=True)
class Payload:
    """A body (None: none at all) and the content type that was guessed for it (empty: none)."""

    content: bytes | IO[bytes] | Iterator[bytes] | None
    content_type: str = ""
    #: Known length, bytes; None: sent in chunks.
    length: int | None = None


def parse_headers(given: tuple[str, ...]) -> Headers:
    """`Name: value` each, repeats kept."""
    headers = []
    for text in given:
        name, colon, value = text.partition(":")
        good = colon and name and name.isascii() and all(c.isalnum() or c in "!#$%&'*+-.^_`|~" for c in name)
        if not good or any(c in value for c in "\r\n\0"):
            raise WrongUsage(f"-H: {text!r} is not a header", hint="write it as 'Name: value'")
        headers.append((name, value.strip()))
    return headers


def read_payload(data: str | None, stdin: IO[bytes], has_content_type: bool) -> Payload:
    """The body that `-d` means: JSON text, `@FILE`, or `-` for stdin."""
    if data is None:
        return Payload(None)
    if data == "-":
        return _from_stdin(stdin)
    if data.startswith("@"):
        return _from_file(Path(data[1:]))
    content = data.encode("utf-8", "surrogateescape")
    if has_content_type:
        return Payload(content, length=len(content))
    try:
        json.loads(content)
    except (ValueError, RecursionError) as error:
        raise WrongUsage(
            f"-d: {_shortened(data)} is not JSON ({error})",
            hint="text in JSON has quotes: -d '\"text\"'; for a file write -d @FILE; else add -H 'Content-Type: ...'",
        ) from error
    return Payload(content, JSON_TYPE, len(content))


def guess_type(path: Path) -> str:
    """A file's content type from its name."""
    if path.suffix == ".json":
        return JSON_TYPE
    guessed, coding = mimetypes.guess_type(path.name)
    return guessed if guessed and not coding else BYTES_TYPE


def _from_file(path: Path) -> Payload:
    try:
        file = path.open("rb")
        length = path.stat().st_size if path.is_file() else None
    except OSError as error:
        raise WrongUsage(f"-d: {path} cannot be read: {error.strerror}") from error
    return Payload(file, guess_type(path), length)


def _from_stdin(stdin: IO[bytes]) -> Payload:
    start = b""
    while len(start) < PEEK_BYTES and (piece := stdin.read(min(CHUNK_BYTES, PEEK_BYTES - len(start)))):
        start += piece
    if len(start) < PEEK_BYTES:
        return Payload(start, JSON_TYPE if _is_json(start) else BYTES_TYPE, len(start))

    def pieces() -> Iterator[bytes]:
        yield start
        while piece := stdin.read(CHUNK_BYTES):
            yield piece

    return Payload(pieces(), BYTES_TYPE)


def _is_json(content: bytes) -> bool:
    try:
        json.loads(content)
    except (ValueError, RecursionError):
        return False
    return True


def _shortened(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "…")
