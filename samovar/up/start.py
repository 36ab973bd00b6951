"""From a started gateway to a serving one: waits for it, brings the samples up, and stops waiting when it ends."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TypeVar

from samovar.client import Client
from samovar.discovery import Announced, Target, read_announcement
from samovar.problems import Problem, Unreachable
from samovar.up.child import GatewayProcess
from samovar.up.samples import (
    PARALLEL,
    Sample,
    bring_up,
    live_revisions,
    read_known,
    sample_folders,
    write_known,
)

#: How long a gateway may take until it serves; the first start makes a database.
READY_S = 180.0
_POLL_S = 0.05

Found = TypeVar("Found")


class Ended(Exception):
    """The gateway ended, or was told to, while something of it was waited for."""


def wait_ready(child: GatewayProcess, data: Path) -> Announced:
    """Wait until this child serves. Raises Ended, and Unreachable when it takes longer than READY_S."""
    end = time.monotonic() + READY_S
    announced: Announced | None = None
    while time.monotonic() < end:
        if child.ended() or child.stopping:
            raise Ended
        if announced is None:
            announced = _of_child(child, data)
        elif _is_ready(announced):
            return announced
        time.sleep(_POLL_S)
    raise Unreachable(f"the gateway did not get ready within {READY_S:g} s", hint="what it says above tells why")


def bring_samples_up(child: GatewayProcess, client: Client, parent: Path, data: Path) -> list[Sample]:
    """Deploy what has changed, a few at a time. Raises Ended; a sample that fails is among those returned."""
    known = read_known(data)
    live = live_revisions(client)
    executor = ThreadPoolExecutor(PARALLEL, thread_name_prefix="sample")
    try:
        folders = sample_folders(parent)
        futures = [executor.submit(bring_up, client, folder, known, live) for folder in folders]
        _await(child, futures)
        samples = [future.result() for future in futures]
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
    write_known(data, known | {str(s.name): s.digest for s in samples if s.outcome != "failed"})
    return samples


def client_of(announced: Announced) -> Client:
    """A client of the gateway that announced itself."""
    return Client(Target(announced.url, announced.token, str(announced.path)))


def _of_child(child: GatewayProcess, data: Path) -> Announced | None:
    announced = read_announcement(data / "local.json", _ignore)
    return announced if announced is not None and announced.pid == child.pid else None


def _ignore(warning: str) -> None:
    """An announcement that is not to be believed is not this child's."""


def _is_ready(announced: Announced) -> bool:
    try:
        with client_of(announced) as client:
            return client.ready()
    except Problem:
        return False


def _await(child: GatewayProcess, futures: list[Future[Found]]) -> None:
    left = set(futures)
    while left:
        _, left = wait(left, timeout=_POLL_S)
        if left and (child.ended() or child.stopping):
            raise Ended
