"""Memory of running processes: who belongs to a gateway, what each is, and how much it holds.

PSS (proportional set size) shares a page's cost among the processes that map it, so sums over processes are true
totals; RSS counts shared pages again in every process, but is cheap enough to watch while something runs.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence

import psutil

MIB = 1024 * 1024


def family(pid: int, directory: str) -> list[psutil.Process]:
    """The process, all below it, and whatever else was started on `directory` (servers that became daemons)."""
    found: dict[int, psutil.Process] = {}
    for process in psutil.process_iter():
        try:
            if process.pid == pid or any(directory in argument for argument in process.cmdline()):
                found[process.pid] = process
                found.update((child.pid, child) for child in process.children(recursive=True))
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return list(found.values())


def role(command: Sequence[str], name: str) -> str:
    """What a process of a gateway's family is, from its command line."""
    said = " ".join(command) or name
    for mark, meaning in (
        ("runtime.agent", "node agent"),
        ("bootstrap.py zygote", "zygotes and workers"),
        ("bootstrap.py worker", "zygotes and workers"),
        ("postgres", "postgres"),
        ("valkey", "valkey"),
        ("redis", "valkey"),
        ("-m gateway", "gateway"),
    ):
        if mark in said:
            return meaning
    return name


def pss_by_role(processes: Sequence[psutil.Process]) -> dict[str, int]:
    """Bytes of PSS by role; processes that have ended meanwhile count nothing."""
    total: Counter[str] = Counter()
    for process in processes:
        try:
            total[role(process.cmdline(), process.name())] += process.memory_full_info().pss
        except psutil.NoSuchProcess:
            continue
    return dict(total)


def rss_bytes(pids: Sequence[int]) -> int:
    """Sum of the RSS of these processes. Raises psutil.NoSuchProcess when one has ended."""
    return sum(psutil.Process(pid).memory_info().rss for pid in pids)


def cpu_seconds(pids: Sequence[int]) -> float:
    """Processor time that these processes have used. Raises psutil.NoSuchProcess when one has ended."""
    times = [psutil.Process(pid).cpu_times() for pid in pids]
    return sum(each.user + each.system for each in times)


class RssWatch:
    """Samples the summed RSS of some processes while a block runs; `peak_bytes` is the highest seen."""

    INTERVAL_S = 0.02

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = pids
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="rss watch", daemon=True)
        self.peak_bytes = 0

    def _watch(self) -> None:
        while not self._enough.wait(self.INTERVAL_S):
            self._look()

    def _look(self) -> None:
        try:
            self.peak_bytes = max(self.peak_bytes, rss_bytes(self._pids))
        except psutil.NoSuchProcess:
            self._enough.set()

    def __enter__(self) -> RssWatch:
        self._look()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._enough.set()
        self._thread.join()
        self._look()
