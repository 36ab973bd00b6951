"""A revision's settings as the pool and the runtime want to hear them: pure translations."""

from __future__ import annotations

from gateway.catalog import Revision
from gateway.routes import slice_kind_of
from runtime.spec import WorkerSpec
from warmpool.values import Need, RevisionSpec, ScaleParams


def revision_spec(revision: Revision, reachable: bool) -> RevisionSpec:
    """What the pool knows of a revision; `reachable`: traffic is routed to it."""
    manifest = revision.manifest
    scale = manifest.scale
    return RevisionSpec(
        revision=revision.key,
        environment=revision.environment_digest,
        concurrency=manifest.concurrency,
        need=Need(
            cpu_millis=manifest.resources.cpu_millis,
            memory_bytes=manifest.resources.memory_bytes,
            slice_kind=slice_kind_of(manifest.resources),
        ),
        scale=ScaleParams(
            min_workers=scale.min,
            max_workers=scale.max,
            target=scale.target,
            idle_timeout_s=scale.idle_timeout_s,
            keep_alive=scale.keep_alive,
        ),
        reachable=reachable,
        preload=revision.preload,
    )


def worker_spec(
    revision: Revision, worker: str, token: str, *, connect: str, bundle_dir: str, scratch_root: str
) -> WorkerSpec:
    """What one worker of a revision is told."""
    manifest = revision.manifest
    return WorkerSpec(
        worker=worker,
        connect=connect,
        token=token,
        namespace=revision.namespace,
        function=revision.function,
        revision=revision.number,
        environment=revision.environment_digest,
        python=revision.python,
        bundle_dir=bundle_dir,
        handler=manifest.handler,
        shape=revision.shape,
        concurrency=manifest.concurrency,
        variables=manifest.variables,
        memory_bytes=manifest.resources.memory_bytes,
        cpu_millis=manifest.resources.cpu_millis,
        scratch_dir=f"{scratch_root}/{worker}" if scratch_root else "",
        max_body_bytes=manifest.max_body_bytes,
    )
