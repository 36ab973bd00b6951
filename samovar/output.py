"""Where words go: answers to stdout, remarks to stderr, colours only for eyes that want them."""

from __future__ import annotations

import json
import os
import shutil
import sys
from typing import Any, TextIO

import click

#: Width used to lay out tables when a terminal does not tell its own.
FALLBACK_COLUMNS = 100


def wants_colour(stream: TextIO) -> bool:
    """Colours are for terminals, and not where NO_COLOR or a dumb terminal says otherwise."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, colour: str, stream: TextIO) -> str:
    """`text` in a colour where the stream wants it, else as it is."""
    return click.style(text, fg=colour) if wants_colour(stream) else text


def table_width() -> int | None:
    """Columns of the terminal on stdout; None when it is a file or a pipe, which nothing is cut for."""
    return shutil.get_terminal_size((FALLBACK_COLUMNS, 24)).columns if sys.stdout.isatty() else None


def printable(text: str) -> str:
    """Text with control characters made visible: what a function logged must not drive the terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\t" else repr(c)[1:-1] for c in text)


def say(text: str = "") -> None:
    """One line of the answer, on stdout, at once."""
    _write(sys.stdout, text)


def note(text: str) -> None:
    """One line beside the answer, on stderr, at once."""
    _write(sys.stderr, text)


def say_json(value: Any) -> None:
    """The one JSON value of `--json`; indented for a person who looks at it."""
    say(json_text(value, indent=2 if sys.stdout.isatty() else None))


def json_text(value: Any, indent: int | None = None) -> str:
    """JSON with letters of all scripts readable."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _write(stream: TextIO, text: str) -> None:
    # What the stream's encoding cannot carry (lone surrogates too) becomes an escape, which JSON reads back.
    encoding = stream.encoding or "utf-8"
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
    stream.flush()
