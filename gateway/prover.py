"""Proves a new revision: has the pool start one worker of it, beside the live ones, and waits for its word."""

from __future__ import annotations

import asyncio

from gateway.catalog import Revision
from gateway.controller import Controller
from gateway.deploy.pipeline import Proof, ProofFailed
from gateway.errors import SamovarError
from warmpool.events import WorkerRequested

#: Beyond the revision's own start timeout: for a free slice, and for loading its environment.
PATIENCE_S = 60.0


class PoolProver:
    """See the module. Implements `gateway.deploy.pipeline.Prover`."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    async def prove(self, revision: Revision) -> Proof:
        """Start a worker of this revision; it stays, ready for the first calls. Raises ProofFailed."""
        controller = self._controller
        controller.revision_changed(revision, reachable=False)
        ready = controller.proofs.expect(revision.key)
        controller.handle(WorkerRequested(revision.key, "the new revision proves that it starts"))
        try:
            worker = await asyncio.wait_for(ready, revision.manifest.timeouts.start_s + PATIENCE_S)
        except TimeoutError:
            controller.revision_removed(revision)
            waited = revision.manifest.timeouts.start_s + PATIENCE_S
            raise ProofFailed("no_capacity", "", f"no worker could be started within {waited:g} s", "") from None
        except SamovarError as error:
            controller.revision_removed(revision)
            detail = error.detail if isinstance(error.detail, dict) else {}
            kind, error_type = str(detail.get("kind", error.code)), str(detail.get("type", ""))
            raise ProofFailed(kind, error_type, error.message, str(detail.get("traceback", ""))) from error
        assert worker.ready is not None
        return Proof(shape=worker.ready.shape, imports=tuple(worker.ready.imports), init_us=worker.ready.init_us)
