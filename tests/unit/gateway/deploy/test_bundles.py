"""Uploads onto disk: what arrives, hostile archives one by one, and that a refusal leaves nothing."""

from __future__ import annotations

import asyncio
import gzip
import io
import os
import random
import stat
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.deploy.archive import ArchiveLimits, entries_of
from gateway.deploy.archive_names import NameLimits
from gateway.deploy.bundles import LEFTOVER_AGE_S, UNFINISHED, Bundle, BundleStore
from gateway.errors import BadRequest

FILES = {"function.toml": b'name = "f"\n', "handler.py": b"def main(e, c): ...\n", "data/a.bin": b"\0" * 3000}
LIMITS = ArchiveLimits(
    entries_max=20,
    file_bytes_max=100_000,
    total_bytes_max=150_000,
    header_bytes_max=4096,
    names=NameLimits(name_bytes_max=200, part_bytes_max=100, depth_max=8),
)


def info(name: str, size: int = 0, kind: bytes = tarfile.REGTYPE, mode: int = 0o644, link: str = "") -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size, entry.type, entry.mode, entry.linkname = size, kind, mode, link
    return entry


def archive(
    files: dict[str, bytes], *more: tarfile.TarInfo, tar_format: int = tarfile.PAX_FORMAT, mode: str = "w:gz"
) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode, format=tar_format) as tar:  # type: ignore[call-overload]
        for name, content in files.items():
            tar.addfile(info(name, len(content)), io.BytesIO(content))
        for entry in more:
            tar.addfile(entry, io.BytesIO(b"x" * entry.size))
    return buffer.getvalue()


class Store:
    """A bundle store and a way to put bytes into it."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "bundles"
        self.upload = folder / "upload"
        self.store = BundleStore(self.root, LIMITS)

    async def put(self, data: bytes, accept: Callable[[Path], object] = lambda _: None) -> Bundle:
        self.upload.write_bytes(data)
        return (await self.store.unpack(self.upload, accept))[0]

    def left(self) -> list[str]:
        return sorted(p.name for p in self.root.iterdir()) if self.root.exists() else []

    async def refused(self, data: bytes) -> str:
        with pytest.raises(BadRequest) as caught:
            await self.put(data)
        assert self.left() == []
        assert [p.name for p in self.root.parent.iterdir() if p.name not in ("bundles", "upload")] == []
        return caught.value.message


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("tar_format", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
@pytest.mark.parametrize("mode", ["w:gz", "w"])
async def test_what_was_packed_is_on_disk(store: Store, tar_format: int, mode: str) -> None:
    files = FILES | {"deep/" + "d" * 90 + "/" + "n" * 80 + ".py": b"long", "empty": b""}
    bundle = await store.put(archive(files, info("data", kind=tarfile.DIRTYPE), tar_format=tar_format, mode=mode))
    assert content(bundle.path) == files
    assert (bundle.files, bundle.bytes) == (len(files), sum(map(len, files.values())))
    assert store.left() == [bundle.digest]
    assert bundle.path == store.store.path(bundle.digest)


async def test_names_beyond_ascii_and_a_leading_dot_slash_are_taken(store: Store) -> None:
    data = archive({}, info(".", kind=tarfile.DIRTYPE), info("./function.toml"), info("./mødel/é ü.txt", 3))
    bundle = await store.put(data)
    assert content(bundle.path) == {"function.toml": b"", "mødel/é ü.txt": b"xxx"}


async def test_files_are_read_only_and_keep_their_executable_bit(store: Store) -> None:
    bundle = await store.put(archive(FILES, info("run.sh", 1, mode=0o4777)))
    assert stat.S_IMODE((bundle.path / "run.sh").stat().st_mode) == 0o555
    assert stat.S_IMODE((bundle.path / "handler.py").stat().st_mode) == 0o444


async def test_the_digest_is_of_the_content_not_of_the_archive(store: Store) -> None:
    one = await store.put(archive(FILES))
    turned = dict(reversed(FILES.items()))
    late = info("./empty-folder", kind=tarfile.DIRTYPE)
    late.mtime = 12345
    two = await store.put(archive(turned, late, tar_format=tarfile.GNU_FORMAT, mode="w"))
    assert one == two
    assert store.left() == [one.digest]
    executable = await store.put(archive({"function.toml": FILES["function.toml"]}, info("handler.py", 0, mode=0o755)))
    plain = await store.put(archive({"function.toml": FILES["function.toml"]}, info("handler.py", 0)))
    assert len({one.digest, executable.digest, plain.digest}) == 3


async def test_the_same_bundle_many_times_at_once_is_one_bundle(tmp_path: Path, store: Store) -> None:
    upload = tmp_path / "same"
    upload.write_bytes(archive(FILES))
    stores = [store.store, BundleStore(store.root, LIMITS)]
    done = await asyncio.gather(*(stores[n % 2].unpack(upload, lambda _: None) for n in range(12)))
    assert len({bundle.digest for bundle, _ in done}) == 1
    assert content(done[0][0].path) == FILES
    assert store.left() == [done[0][0].digest]


async def test_what_is_not_accepted_is_not_kept(store: Store) -> None:
    def refuse(folder: Path) -> None:
        assert (folder / "handler.py").exists()
        raise BadRequest("no")

    with pytest.raises(BadRequest, match="no"):
        await store.put(archive(FILES), refuse)
    assert store.left() == []


async def test_what_a_killed_gateway_left_is_swept_once_it_is_old(store: Store) -> None:
    store.root.mkdir()
    for name, age in (("old", LEFTOVER_AGE_S + 60), ("young", 60)):
        folder = store.root / (UNFINISHED + name)
        folder.mkdir()
        os.utime(folder, (time.time() - age,) * 2)
    bundle = await store.put(archive(FILES))
    assert store.left() == sorted([bundle.digest, UNFINISHED + "young"])


def test_a_path_is_given_for_digests_only(store: Store) -> None:
    with pytest.raises(ValueError, match="not a bundle's digest"):
        store.store.path("../x")


ROOT = {"function.toml": b""}
HOSTILE = {
    "absolute": (archive(ROOT, info("/etc/cron.d/x", 1)), "/etc/cron.d/x: an absolute name"),
    "parent": (archive(ROOT, info("../x", 1)), "'..'"),
    "parent inside": (archive(ROOT, info("a/../../x", 1)), "'..'"),
    "parent folder": (archive(ROOT, info("a/..", kind=tarfile.DIRTYPE)), "'..'"),
    "empty part": (archive(ROOT, info("a//x", 1)), "empty part"),
    "dot inside": (archive(ROOT, info("a/./x", 1)), "empty part or '.'"),
    "symlink": (archive(ROOT, info("l", kind=tarfile.SYMTYPE, link="/etc/passwd")), "l: is a symbolic link"),
    "symlink inside": (archive(ROOT, info("l", kind=tarfile.SYMTYPE, link="function.toml")), "symbolic link"),
    "hard link": (archive(ROOT, info("l", kind=tarfile.LNKTYPE, link="function.toml")), "l: is a hard link"),
    "character device": (archive(ROOT, info("d", kind=tarfile.CHRTYPE)), "d: is a character device"),
    "block device": (archive(ROOT, info("d", kind=tarfile.BLKTYPE)), "d: is a block device"),
    "pipe": (archive(ROOT, info("p", kind=tarfile.FIFOTYPE)), "p: is a named pipe"),
    "sparse": (archive(ROOT, info("s", kind=tarfile.GNUTYPE_SPARSE)), "sparse"),
    "unknown kind": (archive(ROOT, info("s", kind=b"V")), "kind b'V'"),
    "twice": (archive(ROOT, info("a", 1), info("a", 1)), "a: is there twice"),
    "twice with dot": (archive(ROOT, info("a", 1), info("./a", 1)), "./a: is there twice"),
    "case": (archive(ROOT, info("Read.py", 1), info("read.py", 1)), "only in case"),
    "case of folders": (archive(ROOT, info("A/x", 1), info("a/y", 1)), "only in case"),
    "two spellings": (archive(ROOT, info("\u00e9", 1), info("e\u0301", 1)), "only in case or spelling"),
    "file and folder": (archive(ROOT, info("a", 1), info("a/b", 1)), "both a file and a folder"),
    "folder and file": (archive(ROOT, info("a/b", 1), info("a", 1)), "both a file and a folder"),
    "backslash": (archive(ROOT, info("a\\b", 1)), "backslash"),
    "newline": (archive(ROOT, info("a\nb", 1)), "control character"),
    "escape": (archive(ROOT, info("a\x1b[2Jb", 1)), "control character"),
    "not utf-8": (archive(ROOT, info("a\udcff", 1), tar_format=tarfile.GNU_FORMAT), "not UTF-8"),
    "long name": (archive(ROOT, info("x/" * 5 + "a" * 300, 1)), "at most 200 bytes"),
    "very long name": (archive(ROOT, info("a" * 10_000, 1)), "extended header is at most 4096"),
    "long part": (archive(ROOT, info("a" * 150, 1)), "at most 100 bytes"),
    "deep": (archive(ROOT, info("a/" * 9 + "x", 1)), "at most 8 deep"),
    "too many": (archive(ROOT, *(info(f"f{n}") for n in range(20))), "more than 20 entries"),
    "too large": (archive(ROOT, info("big", 100_001)), "big: 100001 bytes; one file is at most 100000"),
    "too large in all": (archive(ROOT, info("a", 80_000), info("b", 80_000)), "b: the files together"),
    "bomb behind the end": (gzip.compress(archive(ROOT, mode="w") + b"\0" * 5_000_000), "when unpacked"),
    "not a tar": (b"PK\x03\x04" + b"zip" * 500, "not a tar"),
    "gzip of no tar": (gzip.compress(b"hello " * 1000), "not a tar"),
    "nothing": (b"", "is empty"),
    "short": (b"hello", "not a tar"),
    "gzip of nothing": (gzip.compress(b""), "is empty"),
    "cut off gzip": (archive(FILES)[:-30], "gzip data is broken or cut off"),
    "wrong checksum": (archive(FILES)[:-8] + b"\0" * 8, "gzip data is broken"),
    "cut off file": (archive({"function.toml": b"x" * 3000}, mode="w")[:1600], "cut off"),
    "no manifest": (archive({"handler.py": b""}), "no function.toml"),
    "folder around it": (archive({"f/function.toml": b"", "f/handler.py": b""}), "not at its root but in 'f'"),
    "manifest is a folder": (archive({"function.toml/x": b""}), "no function.toml"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_archive_is_refused_and_leaves_nothing(store: Store, name: str) -> None:
    data, words = HOSTILE[name]
    message = await store.refused(data)
    assert message.startswith("archive: ")
    assert words in message


def pax(records: dict[str, str]) -> bytes:
    entry = info("a", 1)
    entry.pax_headers = records
    return archive(ROOT, entry)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (pax({"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}), "sparse"),
        (pax({"size": "-5"}), "unreadable size"),
        (pax({"size": "9" * 30}), "unreadable size"),
        (pax({"size": "999999"}), "one file is at most"),
        (pax({"path": "../../x"}), "'..'"),
        (pax({"path": "a\0b"}), "control character"),
        (pax({"comment": "x" * 9000}), "extended header is at most"),
    ],
)
async def test_extended_headers_are_held_to_the_same_rules(store: Store, data: bytes, words: str) -> None:
    assert words in await store.refused(data)


async def test_a_bomb_is_stopped_by_what_comes_out_not_by_what_it_says(store: Store) -> None:
    honest = bytearray(archive({"function.toml": b"", "a": b"x"}, mode="w"))
    at = honest.index(b"a\0\0\0", 512)
    honest[at + 124 : at + 136] = b"\x80" + (2**60).to_bytes(11, "big")
    header = bytes(honest[at : at + 148]) + b" " * 8 + bytes(honest[at + 156 : at + 512])
    honest[at + 148 : at + 156] = b"%06o\0 " % sum(header)
    assert "one file is at most" in await store.refused(gzip.compress(bytes(honest)))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), changes=st.integers(1, 12))
def test_a_damaged_archive_gives_entries_or_a_refusal(seed: int, changes: int) -> None:
    chance = random.Random(seed)
    data = bytearray(archive(FILES | {"long/" + "n" * 90 + "/" + "m" * 90: b"y"}, mode="w"))
    for _ in range(changes):
        at = chance.choice([0, 512, 1024, 1536, chance.randrange(len(data))]) + chance.randrange(512)
        data[at % len(data)] = chance.randrange(256)
    for block in range(0, len(data), 512):
        if chance.random() < 0.7 and any(data[block : block + 512]):
            header = data[block : block + 148] + b" " * 8 + data[block + 156 : block + 512]
            data[block + 148 : block + 156] = b"%06o\0 " % sum(header)
    try:
        for entry in entries_of(io.BytesIO(bytes(data)), LIMITS):
            assert not entry.name.startswith("/")
            assert ".." not in entry.name.split("/")
            assert sum(map(len, entry.pieces)) == entry.size_bytes
    except BadRequest:
        pass
