"""Under whose name a server runs. PostgreSQL refuses to run as root, so root lends it another name.

The first choice for root is a user namespace in which another number is mapped onto root's own: files stay root's,
nothing else changes, and the server holds no privileges. Where the kernel or a container forbids that, the server
runs as an unprivileged user who then owns its directory.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import stat
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_CLONE_NEWUSER = 0x10000000
#: The number shown to the server inside the namespace: Linux's overflow user.
_MAPPED_ID = 65534
#: Who runs the server where user namespaces are forbidden; the first that exists.
_UNPRIVILEGED_USERS = ("postgres", "nobody")
_PROBE_TIMEOUT_S = 10.0

_libc = ctypes.CDLL(None, use_errno=True)


class NoIdentity(Exception):
    """The server cannot be run here as root; the message says what to do."""


@dataclass(frozen=True)
class Identity:
    """A name to run under. `owner`: the user and group that own its files; `enter` runs in the child before exec."""

    description: str
    owner: tuple[int, int]
    enter: Callable[[], None]


def own_identity() -> Identity:
    """This process's own."""
    return Identity("this user", (os.geteuid(), os.getegid()), lambda: None)


def mapped_identity() -> Identity:
    """A user namespace of its own, whose user 65534 is this process's user outside."""
    return Identity("a user namespace", (os.geteuid(), os.getegid()), _enter_namespace)


def other_identity(user: pwd.struct_passwd) -> Identity:
    """Another user of this machine; only root can."""

    def enter() -> None:
        os.setgroups([])
        os.setgid(user.pw_gid)
        os.setuid(user.pw_uid)

    return Identity(f"user {user.pw_name}", (user.pw_uid, user.pw_gid), enter)


def choose_identity(probe: list[str], directory: Path) -> Identity:
    """How to run a server that refuses root. `probe`: a command of its that just ends; `directory`: must be reachable.

    Raises NoIdentity.
    """
    if os.geteuid() != 0:
        return own_identity()
    mapped = mapped_identity()
    if _works(probe, mapped, Path("/")) is None:
        return mapped
    for name in _UNPRIVILEGED_USERS:
        try:
            other = other_identity(pwd.getpwnam(name))
        except KeyError:
            continue
        problem = _works(probe, other, directory)
        if problem is None:
            return other
        raise NoIdentity(
            f"PostgreSQL does not run as root, user namespaces are forbidden here, and user {name!r} cannot reach "
            f"what it needs ({problem}). Run Samovar as an ordinary user, or let others search the directories "
            f"above {probe[0]}, and {directory} with those above it (chmod o+x)"
        )
    raise NoIdentity(
        "PostgreSQL does not run as root, user namespaces are forbidden here, and there is no user "
        f"{' or '.join(_UNPRIVILEGED_USERS)}. Run Samovar as an ordinary user"
    )


def hand_over(directory: Path, identity: Identity) -> None:
    """Make a directory and all in it the identity's own, where it is not. Raises OSError."""
    uid, gid = identity.owner
    if os.geteuid() != 0 or not directory.exists() or directory.stat().st_uid == uid:
        return
    for root, directories, files in os.walk(directory):
        for name in (*directories, *files):
            os.chown(Path(root) / name, uid, gid, follow_symlinks=False)
    # The top goes last: a hand-over that was cut off is seen and done again.
    os.chown(directory, uid, gid)


def let_through(directory: Path, identity: Identity) -> None:
    """Let an identity that is not ours pass a directory of ours: pass, not look. Raises OSError."""
    status = directory.stat()
    if identity.owner[0] != os.geteuid() and status.st_uid == os.geteuid():
        directory.chmod(stat.S_IMODE(status.st_mode) | 0o011)


def _works(probe: list[str], identity: Identity, directory: Path) -> str | None:
    """None when the probe runs under that identity, else what stood in the way."""
    try:
        done = subprocess.run(
            probe,
            preexec_fn=identity.enter,
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PROBE_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            return f"{probe[0]} ended with {done.returncode}"
        reach = ["/bin/sh", "-c", 'cd -- "$1"', "sh", str(directory)]
        done = subprocess.run(
            reach, preexec_fn=identity.enter, cwd="/", capture_output=True, timeout=_PROBE_TIMEOUT_S, check=False
        )
        return None if done.returncode == 0 else f"{directory} is closed to it"
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)


def _enter_namespace() -> None:
    uid, gid = os.geteuid(), os.getegid()
    if _libc.unshare(_CLONE_NEWUSER) != 0:
        raise OSError(ctypes.get_errno(), "unshare(CLONE_NEWUSER)")
    for file, content in (
        ("uid_map", f"{_MAPPED_ID} {uid} 1"),
        ("setgroups", "deny"),
        ("gid_map", f"{_MAPPED_ID} {gid} 1"),
    ):
        descriptor = os.open(f"/proc/self/{file}", os.O_WRONLY)
        os.write(descriptor, content.encode())
        os.close(descriptor)
