"""Which gateway a command speaks to, and with which token.

What is said (options, then SAMOVAR_URL and SAMOVAR_TOKEN) comes first. Otherwise it is the `samovar up` of the same
user: the one of this directory or a directory above, else the one started last. Gateways tell about themselves in
small files that hold a token, so a file that belongs to somebody else or that others can read is not believed.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from samovar.problems import Unreachable, WrongUsage

#: An announcement is a few hundred bytes; more is none of ours.
MAX_FILE_BYTES = 64 * 1024
#: The default data directory of `samovar up`, below the directory it is started in.
DATA_NAME = ".samovar"
_LOCAL_NAME = "local.json"
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}

Warn = Callable[[str], None]


@dataclass(frozen=True)
class Target:
    """A gateway: where it is and the token to show it; `source` says in words how it was found."""

    url: str
    token: str
    source: str


@dataclass(frozen=True)
class Announced:
    """What a running gateway wrote about itself."""

    url: str
    token: str
    pid: int
    data: str
    #: Seconds since the epoch.
    started_at: float
    path: Path


def find_target(url: str | None, token: str | None, cwd: Path, environment: Mapping[str, str], warn: Warn) -> Target:
    """The gateway to speak to. Raises Unreachable when there is none, WrongUsage for a bad URL."""
    if url:
        url = checked_url(url)
        if token:
            return Target(url, token, "the given URL")
        for local in local_gateways(cwd, environment, warn):
            if _same_gateway(local.url, url):
                return Target(url, local.token, f"the given URL, token from {local.path}")
        return Target(url, "", "the given URL")
    for local in local_gateways(cwd, environment, warn):
        return Target(local.url.rstrip("/"), token or local.token, str(local.path))
    raise Unreachable(
        "no gateway: none is given and no `samovar up` of yours is running",
        hint="start one with `samovar up`, or set SAMOVAR_URL and SAMOVAR_TOKEN",
    )


def checked_url(url: str) -> str:
    """The gateway's URL without a slash at the end. Raises WrongUsage."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise WrongUsage(f"--url: {url!r} is not a gateway's address", hint="it looks like http://host:8080")
    return url.rstrip("/")


def is_loopback(url: str) -> bool:
    """Whether the address is this machine's own, which no proxy can reach."""
    return urlsplit(url).hostname in _LOOPBACK


def local_gateways(cwd: Path, environment: Mapping[str, str], warn: Warn) -> Iterator[Announced]:
    """Running gateways of this user: this directory's, those of directories above, then the newest first."""
    for directory in (cwd, *cwd.parents):
        yield from _alive([directory / DATA_NAME / _LOCAL_NAME], warn)
    listed = _alive(_listed(environment), warn)
    yield from sorted(listed, key=lambda announced: announced.started_at, reverse=True)


def read_announcement(path: Path, warn: Warn) -> Announced | None:
    """What the file says; None when it is not there, or (with a warning) when it is not to be believed."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor, so that what was checked is what is read
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            return None
        if status.st_uid != os.geteuid():
            warn(f"ignoring {path}: it belongs to another user")
            return None
        if status.st_mode & 0o077:
            warn(f"ignoring {path}: others may read or change it (chmod 600 it if you trust it)")
            return None
        content = file.read(MAX_FILE_BYTES)
    try:
        values = json.loads(content)
        return Announced(
            url=checked_url(str(values["url"])),
            token=str(values["token"]),
            pid=int(values["pid"]),
            data=str(values["data"]),
            started_at=float(values["started_at"]),
            path=path,
        )
    except (ValueError, KeyError, TypeError, WrongUsage):
        warn(f"ignoring {path}: it is not a gateway's announcement")
        return None


def _alive(paths: Iterable[Path], warn: Warn) -> Iterator[Announced]:
    for path in paths:
        announced = read_announcement(path, warn)
        # A gateway ended by kill -9 leaves its file behind.
        if announced is not None and _lives(announced.pid):
            yield announced


def _listed(environment: Mapping[str, str]) -> list[Path]:
    base = environment.get("XDG_STATE_HOME") or ""
    home = environment.get("HOME") or ""
    if not base.startswith("/"):
        if not home.startswith("/"):
            return []
        base = f"{home}/.local/state"
    try:
        return sorted((Path(base) / "samovar" / "gateways").glob("*.json"))
    except OSError:
        return []


def _lives(pid: int) -> bool:
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except OSError:  # gone, or a number that now belongs to another user's process
        return False
    return True


def _same_gateway(one: str, other: str) -> bool:
    return _address(one) == _address(other)


def _address(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url)
    host = "loopback" if parts.hostname in _LOOPBACK else parts.hostname or ""
    try:
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        port = None
    return parts.scheme, host, port
