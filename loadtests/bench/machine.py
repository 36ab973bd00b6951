"""The machine that a table was measured on, in one line."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

PROJECT = Path(__file__).parents[2]


def environment() -> dict[str, str]:
    """What a reader must know to read the numbers."""
    return {
        "cpu": _cpu_model(Path("/proc/cpuinfo")),
        "cores": str(len(os.sched_getaffinity(0))),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": _commit(),
    }


def line(environment: dict[str, str]) -> str:
    """The environment for people."""
    return (
        f"{environment['cpu']}, {environment['cores']} cores, {environment['kernel']}, "
        f"Python {environment['python']}, {environment['date']}, commit {environment['commit']}"
    )


def _cpu_model(cpuinfo: Path) -> str:
    try:
        for entry in cpuinfo.read_text().splitlines():
            name, _, value = entry.partition(":")
            if name.strip() == "model name":
                return " ".join(value.split())
    except OSError:
        pass
    return platform.machine()


def _commit() -> str:
    """The commit, with "+" when files that it holds were changed since."""
    try:
        commit = _git("rev-parse", "--short=12", "HEAD")
        return commit + ("+" if _git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments],
        cwd=PROJECT,
        check=True,
        capture_output=True,
        text=True,
        timeout=10,
        stdin=subprocess.DEVNULL,
    )
    return done.stdout.strip()
