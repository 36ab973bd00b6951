"""Memory and processors of a machine, from files as the kernel shows them."""

from __future__ import annotations

import os
from pathlib import Path

from runtime import machine

MIB = 1024 * 1024


def laid_out(root: Path, cgroup_line: str, files: dict[str, str]) -> tuple[Path, Path]:
    proc, cgroup = root / "proc", root / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal:       16777216 kB\nMemFree: 1 kB\n")
    (proc / "self" / "cgroup").write_text(cgroup_line + "\n")
    for name, text in files.items():
        (cgroup / name).parent.mkdir(parents=True, exist_ok=True)
        (cgroup / name).write_text(text + "\n")
    return proc, cgroup


def test_without_limits_it_is_the_machine_less_a_reserve(tmp_path: Path) -> None:
    proc, cgroup = laid_out(tmp_path, "0::/job", {"job/memory.max": "max", "job/cpu.max": "max 100000"})
    assert machine.memory_bytes(proc, cgroup) == 16384 * MIB - int(16384 * MIB * 0.1)
    assert machine.cpu_millis(proc, cgroup) == len(os.sched_getaffinity(0)) * 1000


def test_a_control_groups_limits_count_also_from_above(tmp_path: Path) -> None:
    files = {"job/memory.max": str(2048 * MIB), "job/step/memory.max": "max", "job/cpu.max": "50000 100000"}
    proc, cgroup = laid_out(tmp_path, "0::/job/step", files)
    assert machine.memory_bytes(proc, cgroup) == (2048 - 512) * MIB
    assert machine.cpu_millis(proc, cgroup) == 500


def test_the_old_control_groups_are_read_too(tmp_path: Path) -> None:
    files = {
        "memory/job/memory.limit_in_bytes": str(1024 * MIB),
        "cpu/job/cpu.cfs_quota_us": "25000",
        "cpu/job/cpu.cfs_period_us": "100000",
    }
    proc, cgroup = laid_out(tmp_path, "4:memory:/job\n3:cpu,cpuacct:/job", files)
    assert machine.memory_bytes(proc, cgroup) == 512 * MIB
    assert machine.cpu_millis(proc, cgroup) == 250


def test_this_machine_has_something_to_offer() -> None:
    assert machine.memory_bytes() > 0
    assert machine.cpu_millis() >= 1
