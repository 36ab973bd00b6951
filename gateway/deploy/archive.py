"""Reads an uploaded tar, trusting nothing in it: only plain files and folders inside the root come out.

A strict reader of its own rather than `tarfile`: it takes the few kinds of entry a function's folder needs, in one
pass over a bounded stream, so no header can make it read, keep or skip more than the limits say. Everything that is
refused names the entry and the rule. Nothing is written here.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO

from gateway.deploy.archive_names import NameLimits, Names, shown
from gateway.errors import BadRequest

MIB = 1024 * 1024
BLOCK = 512
PIECE_BYTES = 1 * MIB


@dataclass(frozen=True)
class ArchiveLimits:
    """Bounds of one uploaded archive."""

    entries_max: int = 10_000
    file_bytes_max: int = 256 * MIB
    #: All files together, unpacked.
    total_bytes_max: int = 512 * MIB
    #: One extended header (a long name).
    header_bytes_max: int = 64 * 1024
    names: NameLimits = field(default_factory=NameLimits)

    @property
    def stream_bytes_max(self) -> int:
        """The whole tar, headers and padding included: what a decompression bomb runs into."""
        return self.total_bytes_max + self.entries_max * 8 * BLOCK + MIB


@dataclass
class Entry:
    """One file (or folder) of the archive. `pieces` must be read before the next entry is asked for."""

    name: str
    is_folder: bool
    executable: bool
    size_bytes: int
    pieces: Iterator[bytes]


def refusal(name: str, rule: str) -> BadRequest:
    """The error for one entry."""
    return BadRequest(f"archive: {name}: {rule}", detail={"entry": name, "rule": rule})


def entries_of(file: IO[bytes], limits: ArchiveLimits) -> Iterator[Entry]:
    """The entries of a tar or gzip tar, each name checked. Raises BadRequest."""
    start = file.read(2)
    file.seek(0)
    source: IO[bytes] | gzip.GzipFile = gzip.GzipFile(fileobj=file) if start == b"\x1f\x8b" else file
    stream = _Stream(source, limits.stream_bytes_max)
    names = Names(limits.names)
    count = total = 0
    first = True
    for header in _headers(stream, limits):
        count += 1
        if count > limits.entries_max:
            raise refusal(shown(header.name), f"the archive has more than {limits.entries_max} entries")
        if header.kind in _REFUSED_KINDS:
            raise refusal(shown(header.name), f"is {_REFUSED_KINDS[header.kind]}; only files and folders are taken")
        if header.kind not in _FILE_KINDS and header.kind != b"5":
            raise refusal(shown(header.name), f"is an entry of kind {header.kind!r}; only files and folders are taken")
        # Old archives mark folders by a slash at the end only.
        is_folder = header.kind == b"5" or header.name.endswith(b"/")
        if first and is_folder and header.name in _ROOTS:
            continue
        first = False
        size = 0 if is_folder else header.size
        if is_folder and header.size:
            raise refusal(shown(header.name), "is a folder with content")
        if size > limits.file_bytes_max:
            raise refusal(shown(header.name), f"{size} bytes; one file is at most {limits.file_bytes_max}")
        total += size
        if total > limits.total_bytes_max:
            raise refusal(shown(header.name), f"the files together are more than {limits.total_bytes_max} bytes")
        try:
            name = names.add(header.name, is_folder)
        except ValueError as error:
            raise refusal(shown(header.name), str(error)) from None
        entry = Entry(name, is_folder, bool(header.mode & 0o111), size, stream.pieces(size))
        yield entry
        for _ in entry.pieces:
            pass


_ROOTS = (b".", b"./")
_FILE_KINDS = (b"0", b"\0", b"7")
_REFUSED_KINDS = {
    b"1": "a hard link", b"2": "a symbolic link", b"3": "a character device", b"4": "a block device",
    b"6": "a named pipe", b"S": "a sparse file",
}  # fmt: skip


@dataclass(frozen=True)
class _Header:
    name: bytes
    kind: bytes
    mode: int
    size: int


def _headers(stream: _Stream, limits: ArchiveLimits) -> Iterator[_Header]:
    """Headers with extended ones (pax and GNU long names) folded in. The reader of each takes its content."""
    long_name: bytes | None = None
    size: int | None = None
    number = extended = 0
    while True:
        block = stream.block()
        if block is None or not any(block):
            if number == 0 and block is None:
                raise BadRequest("archive: is empty; expected a gzip tar of the function's folder")
            if long_name is not None or size is not None:
                raise BadRequest("archive: ends after an extended header")
            stream.drain()
            return
        header = _parse(block, number == 0)
        number += 1
        if header.kind in (b"x", b"g", b"L", b"K"):
            extended += 1
            if extended > 2 * limits.entries_max:
                raise BadRequest(f"archive: more than {2 * limits.entries_max} extended headers")
            if header.size > limits.header_bytes_max:
                raise refusal(shown(header.name), f"an extended header is at most {limits.header_bytes_max} bytes")
            content = b"".join(stream.pieces(header.size))
            if header.kind == b"L":
                long_name = content.rstrip(b"\0")
            elif header.kind == b"x":
                long_name, size = _from_pax(_pax(content), long_name, size)
            elif header.kind == b"g" and {b"path", b"size"} & _pax(content).keys():
                raise BadRequest("archive: a global header gives every entry one name or size")
            continue
        yield _Header(
            header.name if long_name is None else long_name,
            header.kind,
            header.mode,
            header.size if size is None else size,
        )
        long_name = size = None


def _from_pax(records: dict[bytes, bytes], name: bytes | None, size: int | None) -> tuple[bytes | None, int | None]:
    if any(key.startswith(b"GNU.sparse.") for key in records):
        raise BadRequest("archive: holds a sparse file; only files and folders are taken")
    if b"size" in records:
        if not records[b"size"].isdigit() or len(records[b"size"]) > 18:
            raise BadRequest("archive: an extended header has an unreadable size")
        size = int(records[b"size"])
    return records.get(b"path", name), size


def _pax(content: bytes) -> dict[bytes, bytes]:
    """Records "<length> <key>=<value>\\n" of a pax header."""
    records: dict[bytes, bytes] = {}
    at = 0
    while at < len(content) and content[at] != 0:
        space = content.find(b" ", at, at + 20)
        digits = content[at:space] if space > at else b""
        length = int(digits) if digits.isdigit() else 0
        record = content[space + 1 : at + length]
        key, equals, value = record.partition(b"=")
        if length <= len(digits) + 3 or at + length > len(content) or not equals or not value.endswith(b"\n"):
            raise BadRequest("archive: an extended header cannot be read")
        records[key] = value[:-1]
        at += length
    return records


def _parse(block: bytes, first: bool) -> _Header:
    not_tar = "is not a tar or gzip tar of a function's folder" if first else "a header is broken"
    try:
        checksum = _octal(block[148:156])
        unsigned = sum(block[:148]) + 8 * 32 + sum(block[156:])
        if checksum != unsigned:
            raise ValueError("checksum")
        size = _octal(block[124:136])
        mode = _octal(block[100:108])
    except ValueError:
        raise BadRequest(f"archive: {not_tar}") from None
    name = block[:100].split(b"\0", 1)[0]
    if block[257:263] == b"ustar\0":
        prefix = block[345:500].split(b"\0", 1)[0]
        name = prefix + b"/" + name if prefix else name
    return _Header(name, block[156:157], mode, size)


def _octal(field_bytes: bytes) -> int:
    """A number field; the base-256 form is taken where it is not negative. Raises ValueError."""
    if field_bytes[0] == 0x80:
        return int.from_bytes(field_bytes[1:], "big")
    text = field_bytes.split(b"\0", 1)[0].strip(b" ")
    if not text:
        return 0
    if text.strip(b"01234567"):
        raise ValueError("not octal")
    return int(text, 8)


class _Stream:
    """The decompressed bytes, each read bounded, with an end."""

    def __init__(self, source: IO[bytes] | gzip.GzipFile, bytes_max: int) -> None:
        self._source = source
        self._left = bytes_max
        self._bytes_max = bytes_max

    def _read(self, size: int) -> bytes:
        try:
            data = self._source.read(size)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise BadRequest(f"archive: the gzip data is broken or cut off: {error}") from None
        self._left -= len(data)
        if self._left < 0:
            raise BadRequest(f"archive: more than {self._bytes_max} bytes when unpacked")
        return data

    def block(self) -> bytes | None:
        """The next header; None at the end."""
        data = self._read(BLOCK)
        if not data:
            return None
        while len(data) < BLOCK:
            more = self._read(BLOCK - len(data))
            if not more:
                raise BadRequest("archive: is not a tar or gzip tar of a function's folder, or is cut off")
            data += more
        return data

    def pieces(self, size: int) -> Iterator[bytes]:
        """The content of an entry, and the padding behind it passed over."""
        left = size + -size % BLOCK
        content = size
        while left:
            data = self._read(min(left, PIECE_BYTES))
            if not data:
                raise BadRequest("archive: is cut off in the middle of a file")
            left -= len(data)
            if content:
                yield data[:content]
                content -= min(content, len(data))

    def drain(self) -> None:
        """Read what follows the end, so that the gzip checksum is verified."""
        while self._read(PIECE_BYTES):
            pass
