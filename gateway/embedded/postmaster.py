"""What a PostgreSQL left behind: reading postmaster.pid, and ending a server that outlived its gateway."""

from __future__ import annotations

import logging
import os
import signal
from dataclasses import dataclass
from pathlib import Path

from gateway.embedded.processes import KeepParams, ServerFailed, poll_until

log = logging.getLogger("gateway.embedded")

_STATUS_LINE = 7


@dataclass(frozen=True)
class Postmaster:
    """The server that a cluster's lock file names. `ready`: it accepts connections."""

    pid: int
    ready: bool


def read_postmaster(cluster: Path) -> Postmaster | None:
    """None when there is no lock file, or no readable one."""
    try:
        lines = (cluster / "postmaster.pid").read_text().splitlines()
        pid = int(lines[0])
    except (OSError, ValueError, IndexError):
        return None
    ready = len(lines) > _STATUS_LINE and lines[_STATUS_LINE].strip() == "ready"
    return Postmaster(pid, ready)


def runs_cluster(pid: int, cluster: Path) -> bool:
    """Whether that process is the PostgreSQL of this cluster, and not a stranger who got its number."""
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z" and arguments[0].endswith(b"/postgres") and os.fsencode(cluster) in arguments


async def stop_orphan(cluster: Path, params: KeepParams) -> None:
    """End a living server of this cluster; remove the lock file of a dead one. Raises ServerFailed.

    Only for whoever holds the data directory's lock: then any server found was left by a gateway that is gone.
    """
    found = read_postmaster(cluster)
    if found is None:
        return
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
        if not runs_cluster(found.pid, cluster):
            break
        log.warning("PostgreSQL %s of an earlier gateway still runs: %s", found.pid, number.name)
        try:
            os.kill(found.pid, number)
        except ProcessLookupError:
            break
        except PermissionError as error:
            raise ServerFailed(
                f"a PostgreSQL (process {found.pid}) of another user runs on {cluster}; stop it"
            ) from error
        await poll_until(lambda: not runs_cluster(found.pid, cluster), params.stop_grace_s, params.poll_s)
    else:
        if runs_cluster(found.pid, cluster):
            raise ServerFailed(f"a PostgreSQL (process {found.pid}) on {cluster} does not end")
    # PostgreSQL trusts its lock file over a number that someone else has now; it is known to be stale here.
    if read_postmaster(cluster) == found or read_postmaster(cluster) == Postmaster(found.pid, not found.ready):
        (cluster / "postmaster.pid").unlink(missing_ok=True)
