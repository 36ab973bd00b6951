"""The load generator's process, and the benchmark's hold on it: jobs go in, results come out, one at a time."""

from __future__ import annotations

import gc

import uvloop

from loadtests.bench.burst import Burst, Reply, run_burst
from loadtests.bench.connect import CONNECT_TIMEOUT_S
from loadtests.bench.loadgen import GRACE_S, Load, LoadResult, run_load
from loadtests.bench.own_process import START_TIMEOUT_S, OwnProcess, Pipe


class CallsFailed(Exception):
    """Some answers were wrong or missing, so what was measured is not what was meant. The message quotes them."""


def main(pipe: Pipe) -> None:
    """The process: works off jobs until the pipe closes."""
    # A collection in the middle of a slice would be seen as a server's slow answer.
    gc.disable()
    pipe.send("ready")
    while True:
        try:
            job: Load | Burst = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            result: object = uvloop.run(run_burst(job) if isinstance(job, Burst) else run_load(job))
        except Exception as error:
            result = error
        try:
            pipe.send(result)
        except OSError:
            return
        gc.collect()


class Generator:
    """A running load generator."""

    def __init__(self) -> None:
        self._process = OwnProcess("load generator", main)
        self._process.hear(START_TIMEOUT_S)

    @property
    def alive(self) -> bool:
        """It can take a job."""
        return self._process.alive

    def load(self, load: Load) -> LoadResult:
        """Run a closed loop in which every answer must be right. Raises CallsFailed, ProcessBroke, OSError."""
        self._process.tell(load)
        connecting_s = CONNECT_TIMEOUT_S + load.connections * 0.1
        result: LoadResult = self._process.hear(load.warmup_s + load.seconds + GRACE_S + connecting_s)
        if result.errors or not result.calls:
            quoted = "; ".join(result.error_samples) or "no call was answered"
            raise CallsFailed(f"{result.errors} errors beside {result.calls} right answers: {quoted}")
        return result

    def burst(self, burst: Burst) -> list[Reply]:
        """Run a burst; the replies are the caller's to judge. Raises ProcessBroke, OSError."""
        self._process.tell(burst)
        replies: list[Reply] = self._process.hear(burst.timeout_s + CONNECT_TIMEOUT_S + len(burst.requests) * 0.1)
        return replies

    def close(self) -> None:
        """End it."""
        self._process.close()
