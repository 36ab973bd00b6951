"""Which line of a TOML text a key stands on: `tomllib` does not tell, and a refusal has to.

A scan by line, not a parser: it runs only on text that `tomllib` has accepted, and a miss costs no more than a line
number of the table around the key.
"""

from __future__ import annotations

import re

Path = tuple[str, ...]

_PART = r"""(?:"(?:[^"\\]|\\.)*"|'[^']*'|[A-Za-z0-9_-]+)"""
_DOTTED = rf"({_PART}(?:[ \t]*\.[ \t]*{_PART})*)"
_KEY = re.compile(rf"[ \t]*{_DOTTED}[ \t]*=")
_TABLE = re.compile(rf"[ \t]*\[\[?[ \t]*{_DOTTED}[ \t]*\]")
_PARTS = re.compile(_PART)
_LONG_QUOTES = ('"""', "'''")


class LineIndex:
    """Lines of one text, counted from 1."""

    def __init__(self, text: str) -> None:
        self._lines = text.split("\n")
        self._first: dict[Path, int] = {}
        table: Path = ()
        inside = ""
        for number, line in enumerate(self._lines, 1):
            if inside:
                if line.count(inside) % 2:
                    inside = ""
                continue
            header = _TABLE.match(line)
            if header:
                table = _split(header.group(1))
                self._first.setdefault(table, number)
                continue
            key = _KEY.match(line)
            if key:
                path = table + _split(key.group(1))
                for length in range(len(table) + 1, len(path) + 1):
                    self._first.setdefault(path[:length], number)
            inside = next((quotes for quotes in _LONG_QUOTES if line.count(quotes) % 2), "")

    def line(self, path: Path) -> int:
        """The line of this key, or of the closest table around it; 1 when there is none."""
        for length in range(len(path), 0, -1):
            if path[:length] in self._first:
                return self._first[path[:length]]
        return 1

    def line_with(self, path: Path, text: str) -> int:
        """The first line from this key on that holds `text`: an element of the key's list."""
        start = self.line(path)
        for number in range(start, len(self._lines) + 1):
            if text in self._lines[number - 1]:
                return number
        return start


def _split(dotted: str) -> Path:
    return tuple(part[1:-1] if part[0] in "\"'" else part for part in _PARTS.findall(dotted))
