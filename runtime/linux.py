"""The few kernel calls that Python has no name for: who dies with whom, who inherits orphans, who is below us."""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, value: int | ctypes.Array[ctypes.c_char]) -> None:
    argument = ctypes.c_ulong(value) if isinstance(value, int) else value
    if _libc.prctl(option, argument, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}): {os.strerror(number)}")


def die_with_parent(signum: signal.Signals, parent: int) -> None:
    """Be sent `signum` when the parent, process `parent`, ends; at once when it has ended already."""
    _prctl(_PR_SET_PDEATHSIG, int(signum))
    if os.getppid() != parent:
        os.kill(os.getpid(), signum)


def inherit_orphans() -> None:
    """Become the parent of every descendant whose own parent ends."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def name_process(name: str) -> None:
    """What `ps` and `top` show for this process; the kernel keeps 15 bytes."""
    _prctl(_PR_SET_NAME, ctypes.create_string_buffer(name.encode()[:15]))


def thread_count() -> int:
    """Threads of this process, those that Python knows nothing of included."""
    return len(os.listdir("/proc/self/task"))  # noqa: PTH208 - called once per preloaded module


def own_children() -> list[int]:
    """Direct children of this process, zombies included. Threads' children count as its own."""
    found: list[int] = []
    try:
        for thread in os.listdir("/proc/self/task"):  # noqa: PTH208
            found += map(int, Path(f"/proc/self/task/{thread}/children").read_bytes().split())
    except FileNotFoundError:  # the kernel was built without this list
        return _children_by_scan(os.getpid())
    return found


def _children_by_scan(parent: int) -> list[int]:
    found = []
    for entry in os.listdir("/proc"):  # noqa: PTH208 - names are all we need, thousands of them
        if entry.isdigit():
            try:
                stat = Path("/proc", entry, "stat").read_bytes()
            except OSError:
                continue  # gone between the two calls
            # "pid (name) state ppid ...", where the name may hold anything
            if int(stat[stat.rindex(b")") + 2 :].split(None, 2)[1]) == parent:
                found.append(int(entry))
    return found


def environment_of(pid: int) -> dict[bytes, bytes]:
    """The environment that a process was started with; empty when it is gone or not ours."""
    try:
        text = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    return dict(item.split(b"=", 1) for item in text.split(b"\0") if b"=" in item)
