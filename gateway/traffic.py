"""From what is deployed to what is served: follows the registry's changes, keeps the routes and tells the pool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from gateway.catalog import Revision
from gateway.registry import Change
from gateway.routes import Route, route_of


class Pool(Protocol):
    """The controller, as seen from here."""

    def revision_changed(self, revision: Revision, reachable: bool) -> None:
        """A revision is there, or routed or not any more."""

    def revision_removed(self, revision: Revision) -> None:
        """A revision is gone for good."""


class Traffic:
    """See the module. `account_of` names who pays for a namespace."""

    def __init__(self, pool: Pool, account_of: Callable[[str], str], price_version: int) -> None:
        self._pool = pool
        self._account_of = account_of
        self._price_version = price_version
        self._routes: dict[tuple[str, str], Route] = {}

    def lookup(self, namespace: str, function: str) -> Route | None:
        """The live revision's route; the hot path's one look-up."""
        return self._routes.get((namespace, function))

    def routes(self) -> int:
        """How many functions are served."""
        return len(self._routes)

    def serve(self, revision: Revision) -> None:
        """All traffic of its function goes to this revision."""
        self._pool.revision_changed(revision, reachable=True)
        account = self._account_of(revision.namespace)
        self._routes[revision.namespace, revision.function] = route_of(revision, account, self._price_version)

    def on_change(self, change: Change) -> None:
        """One change of the registry."""
        revision = change.revision
        key = (revision.namespace, revision.function)
        match change.kind:
            case "routed":
                self.serve(revision)
            case "revision_ready":
                self._pool.revision_changed(revision, reachable=False)
            case "unrouted":
                self._pool.revision_changed(revision, reachable=False)
            case "removed":
                route = self._routes.get(key)
                if route is not None and route.number == revision.number:
                    del self._routes[key]
                self._pool.revision_removed(revision)
