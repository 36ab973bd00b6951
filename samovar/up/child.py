"""The gateway as a child process that can not outlive this one.

It is started with this very interpreter, in a process group of its own, so that Ctrl-C on the terminal reaches it
once: passed on from here. Should this process be killed -9, the kernel tells the child (PR_SET_PDEATHSIG), and the
child watches its parent itself (`--die-with-parent`).
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

_PR_SET_PDEATHSIG = 1

#: Signals that end the child in good order when this process gets them.
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class GatewayOptions:
    """Command line of the gateway; None: left to its configuration and defaults."""

    data: Path
    port: int | None = None
    host: str | None = None
    config: Path | None = None

    def arguments(self) -> list[str]:
        """As the gateway takes them."""
        arguments = ["--data", str(self.data), "--die-with-parent"]
        for name, value in (("--port", self.port), ("--host", self.host), ("--config", self.config)):
            if value is not None:
                arguments += [name, str(value)]
        return arguments


class GatewayProcess:
    """The running child. `stopping` is true once it was told to end."""

    def __init__(self, options: GatewayOptions) -> None:
        self.stopping = False
        # -P: a gateway.py in the current directory must not be mistaken for ours.
        command = [sys.executable, "-P", "-m", "gateway", *options.arguments()]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            process_group=0,
            preexec_fn=_dies_with(os.getpid()),  # noqa: PLW1509 - there are no threads yet
        )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def ended(self) -> bool:
        """Whether it is gone."""
        return self._process.poll() is not None

    def pass_signals_on(self) -> None:
        """From now on the first signal to end goes on to the child; a second Ctrl-C kills it."""
        for number in _PASSED_ON:
            signal.signal(number, self._on_signal)

    def stop(self) -> None:
        """Tell it to end, once."""
        if not self.stopping:
            self.stopping = True
            self._process.terminate()

    def wait(self) -> int:
        """Wait for its end; gives its exit code, 128 and the number of a signal that ended it."""
        code = self._process.wait()
        return 128 - code if code < 0 else code

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if not self.stopping:
            self.stopping = True
            self._process.send_signal(signal.SIGINT if number == signal.SIGINT else signal.SIGTERM)
        elif number == signal.SIGINT:
            self._process.kill()


def _dies_with(parent: int) -> Callable[[], None]:
    # Looked up here: after the fork nothing may be imported or allocated that need not be.
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def between_fork_and_exec() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:  # it died before the kernel was asked
            os._exit(1)

    return between_fork_and_exec
