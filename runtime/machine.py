"""What this machine, or the part of it that we were given, has: memory and processors."""

from __future__ import annotations

import os
from pathlib import Path

MIB = 1024 * 1024

#: Kept back for agent, gateway and page cache: this share, but at least so much.
RESERVE_SHARE = 0.1
RESERVE_BYTES_MIN = 512 * MIB


def memory_bytes(proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Memory that workers may use together: the machine's or the control group's limit, less a reserve."""
    total = next(
        int(line.split()[1]) * 1024
        for line in (proc / "meminfo").read_text().splitlines()
        if line.startswith("MemTotal:")
    )
    for group in _groups(proc, cgroup, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            text = _text(group / name)
            if text.isdigit():
                total = min(total, int(text))
    reserve = max(RESERVE_BYTES_MIN, int(total * RESERVE_SHARE))
    return max(total // 2, total - reserve)


def cpu_millis(proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Thousandths of a processor that workers may use together: affinity and control group considered."""
    millis = len(os.sched_getaffinity(0)) * 1000
    for group in _groups(proc, cgroup, "cpu"):
        quota, _, period = _text(group / "cpu.max").partition(" ")
        if quota.isdigit() and period.isdigit() and int(period):
            millis = min(millis, int(quota) * 1000 // int(period))
        old_quota, old_period = _text(group / "cpu.cfs_quota_us"), _text(group / "cpu.cfs_period_us")
        if old_quota.isdigit() and old_period.isdigit() and int(old_period):
            millis = min(millis, int(old_quota) * 1000 // int(old_period))
    return max(1, millis)


def _groups(proc: Path, cgroup: Path, controller: str) -> list[Path]:
    """Our control group's directories for this controller, in version 2 and 1, and all above them."""
    found: list[Path] = []
    for line in _text(proc / "self" / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        names = controllers.split(",")
        root = cgroup if controllers == "" else cgroup / controller
        if controllers == "" or controller in names:
            place = root / path.lstrip("/")
            found += [place, *(parent for parent in place.parents if parent.is_relative_to(root))]
    return found


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
