"""What idleness costs: one more idle worker of an environment, and the whole system when nothing runs."""

from __future__ import annotations

from collections.abc import Mapping

from loadtests.bench.burst import Burst
from loadtests.bench.gateway_process import GatewayBroke, GatewayProcess, wait_for
from loadtests.bench.processes import MIB, family, pss_by_role
from loadtests.bench.requests import post_json
from loadtests.bench.stage import Stage, progress
from loadtests.bench.table import Row

FURTHER_WORKER_MAX_MIB = 8.0
#: Long enough for all the calls of a burst to be running at the same time.
BUSY_S = 3.0
SCALE_TIMEOUT_S = 60.0


def memory(stage: Stage) -> list[Row]:
    """PSS of the node agent with all below it, with one worker and with ten more."""
    gateway = stage.gateway()
    target = gateway.deploy("held")
    progress("memory of idle workers")
    _busy(stage, gateway, 1)
    before, few = _agent_pss(gateway), _idle_workers(gateway)
    _busy(stage, gateway, 1 + stage.params.further_workers)
    after, many = _agent_pss(gateway), _idle_workers(gateway)
    if many <= few:
        raise GatewayBroke(f"{target.path} has {many} workers after {stage.params.further_workers + 1} calls at once")
    return [worker_row(before, few, after, many)]


def _busy(stage: Stage, gateway: GatewayProcess, calls: int) -> None:
    """Have this many calls run at the same time, and wait until all are over."""
    target = gateway.deploy("held")
    request = post_json(target, {"sleep_s": BUSY_S})
    for reply in stage.generator.burst(Burst(target.address, (request,) * calls)):
        if reply.status != 200:
            raise GatewayBroke(f"a call was answered {reply.status}: {reply.error or reply.body[:500]!r}")
    wait_for(lambda: _idle_workers(gateway) > 0, "the workers become idle", SCALE_TIMEOUT_S)


def _idle_workers(gateway: GatewayProcess) -> int:
    """How many there are when none is starting, busy or ending; else 0."""
    rows = gateway.workers("held")
    return len(rows) if all(row["state"] == "ready" and not row["in_flight"] for row in rows) else 0


def _agent_pss(gateway: GatewayProcess) -> int:
    """Bytes of the zygotes and of all workers; the other functions' are there before and after."""
    by_role = pss_by_role(family(gateway.pid, str(gateway.data)))
    return sum(size for role, size in by_role.items() if role in {"node agent", "zygotes and workers"})


def worker_row(before: int, few: int, after: int, many: int) -> Row:
    """The row of bytes with few and with many workers."""
    each = (after - before) / (many - few) / MIB
    return Row(
        name="one more idle worker, numpy + scipy (PSS)",
        measured=f"{each:.1f} MiB",
        bound=f"<= {FURTHER_WORKER_MAX_MIB:.0f} MiB",
        met=each <= FURTHER_WORKER_MAX_MIB,
        note=f"{few} idle: {before / MIB:.0f} MiB with zygotes and node agent; {many} idle: {after / MIB:.0f} MiB",
        values={"mib": each, "workers_before": few, "workers_after": many},
    )


def idle(stage: Stage) -> list[Row]:
    """PSS of everything that a fresh gateway started, with no function deployed."""
    gateway = stage.gateway()
    progress("memory of the idle system")
    return [idle_row(pss_by_role(family(gateway.pid, str(gateway.data))))]


def idle_row(by_role: Mapping[str, int]) -> Row:
    """The row of bytes by what the processes are."""
    total = sum(by_role.values()) / MIB
    parts = sorted(by_role.items(), key=lambda part: -part[1])
    return Row(
        name="idle system, no function (PSS)",
        measured=f"{total:.0f} MiB",
        note=", ".join(f"{role} {size / MIB:.0f} MiB" for role, size in parts),
        values={"mib": total, **{f"{role.replace(' ', '_')}_mib": size / MIB for role, size in by_role.items()}},
    )
