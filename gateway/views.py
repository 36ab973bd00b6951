"""The pool as people see it: rows for `samovar ps` and `samovar list`, read from the one owner of the numbers."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from gateway.controller import Controller


class PoolView:
    """Rows about workers."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def workers(self) -> list[dict[str, Any]]:
        """One row a worker; see docs/api.md."""
        now = time.monotonic()
        rows = []
        for view in self._controller.pool().workers():
            live = self._controller.live(view.worker)
            namespace, _, rest = view.revision.partition("/")
            function, _, number = rest.partition("@")
            rows.append(
                {
                    "worker": view.worker,
                    "namespace": namespace,
                    "function": function,
                    "revision": int(number or 0),
                    "state": str(view.state),
                    "start_kind": str(view.start_kind),
                    "agent": view.agent,
                    "slice": view.slice_id,
                    "pid": live.pid if live is not None else 0,
                    "in_flight": view.in_flight,
                    "concurrency": view.concurrency,
                    "age_s": round(now - view.since, 3),
                    "idle_s": round(now - view.idle_since, 3) if not view.in_flight else 0.0,
                }
            )
        return rows

    def worker_counts(self) -> dict[str, int]:
        """Workers by "namespace/function"."""
        return Counter(view.revision.partition("@")[0] for view in self._controller.pool().workers())

    def states(self) -> dict[str, int]:
        """Workers by state."""
        return Counter(str(view.state) for view in self._controller.pool().workers())
