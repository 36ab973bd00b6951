"""When a process may be forked, as far as that can be told without one that may not."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from runtime.forkable import cuda_library, cuda_trouble

PROJECT = Path(__file__).parents[3]


class Driver:
    """libcuda's two questions, with given answers."""

    def __init__(self, count: int, context: int) -> None:
        self.cuDeviceGetCount = lambda _: count
        self.cuCtxGetCurrent = lambda _: context


@pytest.mark.parametrize(("count", "context", "free"), [(3, 3, True), (0, 3, False), (3, 0, False), (100, 100, False)])
def test_only_a_driver_that_was_never_initialised_may_be_forked(count: int, context: int, free: bool) -> None:
    assert (cuda_trouble(Driver(count, context)) == "") is free


def test_the_driver_library_is_found_among_the_mapped_files() -> None:
    line = "7f00-7f01 r-xp 00000000 08:01 123   "
    assert cuda_library(f"{line} /usr/lib/libc.so.6\n{line} /usr/lib/libcuda.so.550.1\n") == "/usr/lib/libcuda.so.550.1"
    assert cuda_library(f"{line} /usr/lib/libcudart.so.12\n{line}\n") == ""


def reason(code: str) -> Any:
    program = "from runtime import forkable\n" + textwrap.dedent(code) + "\nprint(forkable.why_not())\n"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=PROJECT)
    return done.stdout.strip()


def test_a_quiet_process_may_be_forked_and_one_with_a_thread_may_not() -> None:
    assert reason("") == ""
    threads = "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
    assert reason(threads) == "2 threads are running"
