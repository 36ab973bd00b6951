"""Typed reading of a TOML table: every getter names key, rule and line when a value will not do."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any

from gateway.deploy.quantities import bytes_of, duration_text, seconds_of, size_text
from gateway.deploy.toml_lines import LineIndex
from gateway.errors import BadRequest

FILE_NAME = "function.toml"
#: Longest piece of a manifest that is quoted back.
QUOTED_CHARS_MAX = 80

_BARE = re.compile(r"[A-Za-z0-9_-]{1,80}")


def refusal(key: str, rule: str, line: int) -> BadRequest:
    """The error for one key of function.toml."""
    return BadRequest(
        f"{FILE_NAME} line {line}: {key}: {rule}", detail={"file": FILE_NAME, "key": key, "rule": rule, "line": line}
    )


def quoted(value: object) -> str:
    """A value as it can be shown in a message."""
    text = repr(value)
    return text if len(text) <= QUOTED_CHARS_MAX else text[: QUOTED_CHARS_MAX - 1] + "…"


def _shown(key: str) -> str:
    return key if _BARE.fullmatch(key) else quoted(key)


class Table:
    """One table of the manifest. Keys that the text does not have give the default."""

    def __init__(self, values: dict[str, Any], path: tuple[str, ...], lines: LineIndex) -> None:
        self.values = values
        self._path = path
        self.lines = lines

    def line(self, key: str) -> int:
        """Where the key stands."""
        return self.lines.line((*self._path, key))

    def refusal(self, key: str, rule: str) -> BadRequest:
        """The error for one of this table's keys."""
        return refusal(".".join(_shown(part) for part in (*self._path, key)), rule, self.line(key))

    def table(self, key: str, known: Iterable[str]) -> Table:
        """The table below `key`, its keys checked; empty when there is none."""
        values = self.values.get(key, {})
        if not isinstance(values, dict):
            raise self.refusal(key, f"is a table, written [{key}]")
        table = Table(values, (*self._path, key), self.lines)
        table.check_keys(known)
        return table

    def check_keys(self, known: Iterable[str]) -> None:
        """Refuse the first key that is not one of `known`."""
        names = sorted(known)
        for key in self.values:
            if key not in names:
                near = difflib.get_close_matches(key[:QUOTED_CHARS_MAX], names, 1, 0.6)
                meant = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names)}"
                raise self.refusal(key, f"unknown key; {meant}")

    def text(self, key: str, default: str | None, pattern: re.Pattern[str], rule: str) -> str:
        """Text that `pattern` fits in full; `default` None: the key must be there."""
        if key not in self.values:
            if default is None:
                raise self.refusal(key, "is missing")
            return default
        value = self.values[key]
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise self.refusal(key, f"{rule}, not {quoted(value)}")
        return value

    def choice(self, key: str, default: str, choices: tuple[str, ...]) -> str:
        """One of a few words."""
        value = self.values.get(key, default)
        if value not in choices:
            raise self.refusal(key, f"is one of {', '.join(map(repr, choices))}, not {quoted(value)}")
        return str(value)

    def flag(self, key: str, default: bool) -> bool:
        """true or false."""
        value = self.values.get(key, default)
        if not isinstance(value, bool):
            raise self.refusal(key, f"is true or false, not {quoted(value)}")
        return value

    def whole(self, key: str, default: int, low: int, high: int) -> int:
        """A whole number from `low` to `high`."""
        value = self.values.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.refusal(key, f"is a whole number from {low} to {high}, not {quoted(value)}")
        return value

    def number(self, key: str, default: float, low: float, high: float) -> float:
        """A number from `low` to `high`, or 0."""
        value = self.values.get(key, default)
        number = seconds_of(value) if not isinstance(value, str) else None
        if number is None or not (number == 0 or low <= number <= high):
            raise self.refusal(key, f"is 0 or a number from {low:g} to {high:g}, not {quoted(value)}")
        return number

    def duration(self, key: str, default: float, low: float, high: float, *, zero: bool = False) -> float:
        """Seconds of a duration from `low` to `high`; `zero`: 0 will do as well."""
        value = self.values.get(key, default)
        seconds = seconds_of(value)
        if seconds is None or not (low <= seconds <= high or (zero and seconds == 0)):
            bounds = f"from {duration_text(low)} to {duration_text(high)}" + (" (0: off)" if zero else "")
            raise self.refusal(key, f'is a duration {bounds} such as "30s", not {quoted(value)}')
        return seconds

    def size(self, key: str, default: int, low: int, high: int, *, zero: bool = False) -> int:
        """Bytes of a size from `low` to `high`; `zero`: 0 will do as well."""
        value = self.values.get(key, default)
        count = bytes_of(value)
        if count is None or not (low <= count <= high or (zero and count == 0)):
            bounds = f"from {size_text(low)} to {size_text(high)}"
            raise self.refusal(key, f'is a size {bounds} such as "512MiB", not {quoted(value)}')
        return count

    def texts(self, key: str) -> list[tuple[str, int]]:
        """A list of texts, each with its line."""
        value = self.values.get(key, [])
        if not isinstance(value, list):
            raise self.refusal(key, f"is a list of texts, not {quoted(value)}")
        found = []
        for item in value:
            if not isinstance(item, str):
                raise self.refusal(key, f"holds texts only, not {quoted(item)}")
            found.append((item, self.lines.line_with((*self._path, key), item)))
        return found
