"""Which names an archive's entries may have, and that no two of them meet in one place. Pure."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass


@dataclass(frozen=True)
class NameLimits:
    """Bounds of one entry's name."""

    name_bytes_max: int = 1024
    #: One part between slashes; what file systems take.
    part_bytes_max: int = 255
    depth_max: int = 64


def shown(raw: bytes) -> str:
    """A name as it can be put into a message."""
    text = raw.decode("utf-8", "backslashreplace")
    text = text if text.isprintable() and text else repr(text)
    return text if len(text) <= 200 else text[:199] + "…"


class Names:
    """The names of one archive so far."""

    def __init__(self, limits: NameLimits) -> None:
        self._limits = limits
        #: Folded path -> the path as spelled, and whether it is a file.
        self._taken: dict[str, tuple[str, bool]] = {}

    def add(self, raw: bytes, is_folder: bool) -> str:
        """The clean relative name of an entry. Raises ValueError with the rule that it breaks."""
        parts = self._parts(raw)
        name = "/".join(parts)
        for length in range(1, len(parts)):
            self._take("/".join(parts[:length]), is_file=False)
        self._take(name, is_file=not is_folder)
        return name

    def _parts(self, raw: bytes) -> list[str]:
        limits = self._limits
        if len(raw) > limits.name_bytes_max:
            raise ValueError(f"a name is at most {limits.name_bytes_max} bytes long")
        if raw.startswith(b"/"):
            raise ValueError("an absolute name; names are relative to the function's folder")
        try:
            name = raw.decode("utf-8")
        except UnicodeDecodeError:
            raise ValueError("a name that is not UTF-8") from None
        if "\\" in name or any(unicodedata.category(char) in ("Cc", "Zl", "Zp") for char in name):
            raise ValueError("a name with a backslash or control character")
        parts = name.removesuffix("/").split("/")
        if len(parts) > 1 and parts[0] == ".":
            del parts[0]
        if len(parts) > limits.depth_max:
            raise ValueError(f"folders are at most {limits.depth_max} deep")
        for part in parts:
            if part == "..":
                raise ValueError("a name with '..' in it")
            if part in ("", "."):
                raise ValueError("a name with an empty part or '.' in it")
            if len(part.encode()) > limits.part_bytes_max:
                raise ValueError(f"a part of a name is at most {limits.part_bytes_max} bytes long")
        return parts

    def _take(self, name: str, is_file: bool) -> None:
        folded = unicodedata.normalize("NFC", name).casefold()
        if folded not in self._taken:
            self._taken[folded] = (name, is_file)
            return
        spelled, was_file = self._taken[folded]
        if spelled != name:
            raise ValueError(f"differs from {spelled!r} only in case or spelling; some file systems cannot hold both")
        if was_file != is_file:
            raise ValueError(f"{name!r} is both a file and a folder")
        if is_file:
            raise ValueError("is there twice")
