"""Whether the wanted port is free, and if not, who has it: a clear word before anything is started."""

from __future__ import annotations

import errno
import socket
from pathlib import Path

from samovar.problems import Problem, WrongUsage

DEFAULT_PORT = 8080
DEFAULT_HOST = "127.0.0.1"
_LISTENING = "0A"


def check_free(host: str, port: int) -> None:
    """Raises Problem when the port is taken, WrongUsage when it or the host cannot be used at all."""
    if port == 0:
        return
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, OverflowError) as error:
        raise WrongUsage(f"--host: {host!r} is not an address of this machine ({error})") from error
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            raise _problem(host, port, error) from error


def _problem(host: str, port: int, error: OSError) -> Problem:
    if error.errno == errno.EADDRINUSE:
        holder = holder_of(port)
        by = f" by {holder}" if holder else " by another program"
        return Problem(
            f"port {port} is in use{by}", hint=f"take another: --port {port + 1}, or --port 0 for any free one"
        )
    if error.errno == errno.EACCES:
        return Problem(f"port {port} is not yours to use", hint="ports below 1024 are for root: take --port 8080")
    return WrongUsage(f"--host: {host!r} cannot be listened on ({error.strerror})")


def holder_of(port: int) -> str:
    """The process that listens on this port, in words; empty when this user may not see it."""
    inodes = _listening(port)
    if not inodes:
        return ""
    wanted = {f"socket:[{inode}]" for inode in inodes}
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            if any(str(entry.readlink()) in wanted for entry in (process / "fd").iterdir()):
                words = (process / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
                return f"process {process.name} ({' '.join(words).strip()[:80]})"
        except OSError:  # another user's, or gone meanwhile
            continue
    return ""


def _listening(port: int) -> set[str]:
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text("ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.add(fields[9])
    return inodes
