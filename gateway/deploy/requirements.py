"""Requirements as text: which lines are allowed, and the one spelling that names an environment. Pure.

Allowed is `name[extra] version ; marker` and `name @ https://...`. Options (`-r`, `--index-url`), local paths and
`file:` addresses are refused: they would reach into the gateway's own files and settings.
"""

from __future__ import annotations

import re

from gateway.errors import BadRequest

FILE_NAME = "requirements.txt"
FILE_BYTES_MAX = 256 * 1024
REQUIREMENTS_MAX = 512
REQUIREMENT_CHARS_MAX = 1024

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_REQUIREMENT = re.compile(rf"({_NAME})\s*(?:\[([A-Za-z0-9._,\s-]*)\])?\s*(.*)", re.DOTALL)
_VERSION = re.compile(r"(?:===|~=|==|!=|<=|>=|<|>)\s*[A-Za-z0-9.*+!_-]+")
_ADDRESS = re.compile(r"@\s*(https://[^\s;]+)")
_COMMENT = re.compile(r"(?:^|\s)#.*$")


def normalised(text: str) -> str:
    """One requirement in its one spelling ("NumPy >= 2" -> "numpy>=2"). Raises ValueError with the rule."""
    if len(text) > REQUIREMENT_CHARS_MAX:
        raise ValueError(f"a requirement is at most {REQUIREMENT_CHARS_MAX} characters long")
    if not text.isprintable():
        raise ValueError(f"{text!r} holds characters that cannot be printed")
    text = text.strip()
    if text.startswith("-"):
        raise ValueError(f"{text!r}: options are not taken here, only requirements such as 'numpy>=2.0'")
    match = _REQUIREMENT.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a requirement such as 'numpy>=2.0'")
    name, extras, rest = match.groups()
    wanted, _, marker = rest.partition(";")
    extra_names = sorted({_project(part) for part in (extras or "").split(",") if part.strip()})
    spelled = _project(name) + (f"[{','.join(extra_names)}]" if extra_names else "") + _wanted(text, wanted.strip())
    marker = " ".join(marker.split())
    return f"{spelled} ; {marker}" if marker else spelled


def _project(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


def _wanted(text: str, wanted: str) -> str:
    if not wanted:
        return ""
    if wanted.startswith("@"):
        address = _ADDRESS.fullmatch(wanted)
        if address is None:
            raise ValueError(f"{text!r}: only https addresses are taken after '@'")
        return f" @ {address.group(1)}"
    if wanted.startswith("(") and wanted.endswith(")"):
        wanted = wanted[1:-1]
    parts = [part.strip() for part in wanted.split(",")]
    if not all(_VERSION.fullmatch(part) for part in parts):
        raise ValueError(f"{text!r} is not a requirement such as 'numpy>=2.0'")
    return ",".join(sorted("".join(part.split()) for part in parts))


def requirements_of_file(content: bytes) -> tuple[str, ...]:
    """The requirements of a requirements.txt, as written. Raises BadRequest naming line and rule."""
    if len(content) > FILE_BYTES_MAX:
        raise BadRequest(f"{FILE_NAME}: larger than {FILE_BYTES_MAX} bytes")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _refusal("not UTF-8 text", content.count(b"\n", 0, error.start) + 1) from None
    found: list[str] = []
    held, held_line = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        joined, first = held + line, held_line if held else number
        if joined.endswith("\\"):
            held, held_line = joined[:-1], first
            continue
        held = ""
        _take(found, joined, first)
    if held:
        _take(found, held, held_line)
    return tuple(found)


def _take(found: list[str], line: str, number: int) -> None:
    requirement = _COMMENT.sub("", line).strip()
    if not requirement:
        return
    try:
        normalised(requirement)
    except ValueError as error:
        raise _refusal(str(error), number) from None
    found.append(requirement)
    if len(found) > REQUIREMENTS_MAX:
        raise _refusal(f"more than {REQUIREMENTS_MAX} requirements", number)


def _refusal(rule: str, line: int) -> BadRequest:
    return BadRequest(
        f"{FILE_NAME} line {line}: {rule}",
        detail={"file": FILE_NAME, "key": "requirements", "rule": rule, "line": line},
    )
