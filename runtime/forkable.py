"""May this process be forked? Only with one thread and an untouched CUDA driver; otherwise, why not.

A fork copies only the calling thread: locks held by others stay locked for ever. A fork after cuInit leaves the
child with a driver that fails on every call.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

from runtime.linux import thread_count

_CUDA_ERROR_NOT_INITIALIZED = 3


def threads_left() -> int:
    """Threads that would survive until a fork.

    OpenBLAS (numpy, scipy) has a pool of threads from its import on, but ends it before every fork and starts it
    again when it is next used. So a trial fork tells apart what ends by itself and what does not.
    """
    threads = thread_count()
    if threads > 1:
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        threads = thread_count()
    return threads


def cuda_library(maps: str) -> str:
    """Path of the CUDA driver library if it is loaded, from the text of /proc/self/maps; else empty."""
    for line in maps.splitlines():
        path = line.rpartition(" ")[2]
        if path.rpartition("/")[2].startswith("libcuda.so"):
            return path
    return ""


def cuda_trouble(library: Any) -> str:
    """Why this loaded CUDA driver library forbids forking; empty when it was never initialised."""
    count = ctypes.c_int(0)
    context = ctypes.c_void_p(0)
    for name, argument in (("cuDeviceGetCount", count), ("cuCtxGetCurrent", context)):
        code = getattr(library, name)(ctypes.byref(argument))
        if code != _CUDA_ERROR_NOT_INITIALIZED:
            return f"CUDA was initialised ({name} answers {code})"
    return ""


def why_not() -> str:
    """The reason not to fork this process; empty when it may be forked."""
    threads = threads_left()
    if threads > 1:
        return f"{threads} threads are running"
    path = cuda_library(Path("/proc/self/maps").read_text(errors="replace"))
    return cuda_trouble(ctypes.CDLL(path)) if path else ""
