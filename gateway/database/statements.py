"""Named SQL from files: `-- name: something` opens a statement, which runs to the next one."""

from __future__ import annotations

import re
from pathlib import Path

SQL_DIRECTORY = Path(__file__).parent.parent / "sql"

_NAME = re.compile(r"^--\s*name:\s*(\S+)\s*$")


class BadStatements(Exception):
    """A file of statements that cannot be read; the message names file and line."""


def parse_statements(text: str, origin: str) -> dict[str, str]:
    """The statements of one file by name. Raises BadStatements."""
    found: dict[str, list[str]] = {}
    current: list[str] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if match := _NAME.match(line):
            name = match[1]
            if not name.isidentifier():
                raise BadStatements(f"{origin}:{number}: {name!r} is not a name")
            if name in found:
                raise BadStatements(f"{origin}:{number}: a second statement named {name!r}")
            current = found[name] = []
        elif current is not None:
            current.append(line)
        elif line.strip() and not line.lstrip().startswith("--"):
            raise BadStatements(f"{origin}:{number}: SQL before the first name")
    statements = {name: "\n".join(lines).strip() for name, lines in found.items()}
    for name, statement in statements.items():
        if not any(line.strip() and not line.lstrip().startswith("--") for line in statement.splitlines()):
            raise BadStatements(f"{origin}: statement {name!r} is empty")
    return statements


def load_statements(name: str, directory: Path = SQL_DIRECTORY) -> dict[str, str]:
    """The statements of `<name>.sql`. Raises BadStatements."""
    path = directory / f"{name}.sql"
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise BadStatements(f"{path} cannot be read: {error.strerror}") from error
    return parse_statements(text, path.name)
