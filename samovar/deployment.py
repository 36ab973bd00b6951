"""One deploy as the gateway tells it: packs the folder, uploads it, passes each step on, ends in a result or a Problem.

Used by `samovar deploy`, which shows the steps, and by `samovar up --samples`, which shows only the end.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from samovar.archive import Packed, pack
from samovar.client import Client
from samovar.folder import address, read_manifest
from samovar.names import FunctionName
from samovar.problems import Problem, Unreachable

#: An archive up to this size is kept in memory while it is uploaded.
SPOOL_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True)
class Deployed:
    """The end of a deploy that went well; `event` is the gateway's last line."""

    name: FunctionName
    packed: Packed
    event: dict[str, Any]


class DeployFailed(Problem):
    """The revision was refused while it was built or proved; `detail` may hold the traceback or the output."""

    code = "deploy_failed"


@dataclass(frozen=True)
class Watcher:
    """Who is told on the way: when the folder is packed, and for each progress event."""

    packed: Callable[[FunctionName, Packed], None] = lambda name, packed: None
    progress: Callable[[dict[str, Any]], None] = lambda event: None


def deploy_folder(client: Client, folder: Path, namespace: str | None, watcher: Watcher = Watcher()) -> Deployed:
    """Deploy one folder and wait for its end. Raises DeployFailed, and the Problems of packing and of the client."""
    name = address(read_manifest(folder), namespace)
    with tempfile.SpooledTemporaryFile(max_size=SPOOL_BYTES) as archive:
        packed = pack(folder, archive)
        watcher.packed(name, packed)
        archive.seek(0)
        for event in client.lines(
            "POST",
            f"functions/{quote(name.namespace, safe='')}",
            read_s=client.waits.deploy_step_s,
            content=archive,
            headers={"content-type": "application/gzip", "content-length": str(packed.archive_bytes)},
        ):
            kind = event.get("event")
            if kind == "progress":
                watcher.progress(event)
            elif kind == "deployed":
                return Deployed(name, packed, event)
            elif kind == "failed":
                raise _failure(client, name, event)
    raise Unreachable(
        f"the gateway broke off while it deployed {name}", hint=f"see `samovar show {name.short}` for how it ended"
    )


def _failure(client: Client, name: FunctionName, event: dict[str, Any]) -> DeployFailed:
    error = event.get("error") or {}
    message = str(error.get("message") or "the gateway does not say why")
    detail = error.get("detail") if isinstance(error.get("detail"), dict) else None
    return DeployFailed(
        f"{name} was not deployed, {event.get('phase', 'some')} failed: {message}",
        hint=_what_serves(client, name),
        code=str(error.get("code") or "deploy_failed"),
        detail=detail,
    )


def _what_serves(client: Client, name: FunctionName) -> str:
    try:
        live = client.get(f"functions/{name.path}").get("live")
    except Problem:
        live = None
    if live is None:
        return "nothing serves it yet: correct the folder and deploy again"
    return f"revision {live} keeps serving: correct the folder and deploy again"
