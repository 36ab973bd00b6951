"""What is deployed: held in memory for the hot path, kept in PostgreSQL, changed here and nowhere else.

A change is committed first and then seen by readers and subscribers. Reads never wait: `lookup` is one look into a
dict. `load` may be called again at any time (another gateway changed something): the differences are published.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal

import orjson

from gateway.catalog import Function, Manifest, Revision
from gateway.database.database import Connection, Database, Row, rows_touched
from gateway.database.statements import load_statements
from gateway.errors import Conflict, NotFound
from gateway.names import checked_name

log = logging.getLogger("gateway.registry")

_SQL = load_statements("registry")
#: Characters of a failure that are kept with the revision.
ERROR_MAX = 16_000

Kind = Literal["created", "revision_ready", "revision_failed", "routed", "unrouted", "removed"]


@dataclass(frozen=True)
class Change:
    """What happened to a revision. A switch of traffic says `routed` for the new one before `unrouted` for the old."""

    kind: Kind
    revision: Revision


class Registry:
    """See the module. `clock`: seconds since the epoch, UTC."""

    def __init__(self, database: Database, clock: Callable[[], float]) -> None:
        self._database = database
        self._clock = clock
        self._functions: dict[tuple[str, str], Function] = {}
        self._revisions: dict[tuple[str, str], dict[int, Revision]] = {}
        self._live: dict[tuple[str, str], Revision] = {}
        self._accounts: dict[str, str] = {}
        self._subscribers: list[Callable[[Change], None]] = []
        #: One change at a time, so that memory sees them in the database's order (memory is changed right after the
        #: lock is let go, before anything else can run).
        self._changing = asyncio.Lock()
        #: The price list that records are stamped with.
        self.price_version = 1

    # -- reading, from memory ----------------------------------------------------------------------------

    def lookup(self, namespace: str, function: str) -> Revision | None:
        """The live revision of a function."""
        return self._live.get((namespace, function))

    def function(self, namespace: str, name: str) -> Function | None:
        """A function, deployed successfully or not."""
        return self._functions.get((namespace, name))

    def functions(self, namespace: str | None = None) -> list[Function]:
        """All functions, or one namespace's, by name."""
        return [f for key, f in sorted(self._functions.items()) if namespace in {None, key[0]}]

    def revision(self, namespace: str, function: str, number: int) -> Revision | None:
        """One revision."""
        return self._revisions.get((namespace, function), {}).get(number)

    def revisions(self, namespace: str, function: str) -> list[Revision]:
        """A function's revisions, oldest first."""
        return [revision for _, revision in sorted(self._revisions.get((namespace, function), {}).items())]

    def account(self, namespace: str) -> str:
        """Who pays for a namespace; its own name while nobody else does."""
        return self._accounts.get(namespace, namespace)

    def subscribe(self, callback: Callable[[Change], None]) -> None:
        """Be told of every change from now on, the first `load` included."""
        self._subscribers.append(callback)

    # -- changing ----------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Read everything from the database; publish how it differs from what was known. Raises Unavailable."""
        async with self._changing:
            before, before_live = self._revisions, self._live
            await self._read_all()
            self._publish_differences(before, before_live)

    async def _read_all(self) -> None:
        async with self._database.transaction("repeatable_read") as connection:
            accounts = {row["name"]: row["account"] for row in await connection.fetch(_SQL["load_namespaces"])}
            functions = {
                (f.namespace, f.name): f for f in map(_function, await connection.fetch(_SQL["load_functions"]))
            }
            found = [_revision(row) for row in await connection.fetch(_SQL["load_revisions"])]
            self.price_version = await connection.fetchval(_SQL["load_price_version"], self._now()) or 1
        revisions: dict[tuple[str, str], dict[int, Revision]] = {key: {} for key in functions}
        for revision in found:
            revisions.setdefault((revision.namespace, revision.function), {})[revision.number] = revision
        self._accounts, self._functions, self._revisions = accounts, functions, revisions
        self._live = {
            key: revisions[key][function.live]
            for key, function in functions.items()
            if function.live is not None and function.live in revisions[key]
        }

    async def create_revision(
        self, manifest: Manifest, bundle_digest: str, environment_digest: str, python: str
    ) -> Revision:
        """A new revision, `building`, with the next number of its function. Makes namespace and function as needed.

        Raises BadRequest for names that are none, Unavailable.
        """
        namespace = checked_name("namespace", manifest.namespace)
        name = checked_name("name", manifest.name)
        now = self._now()
        stored = orjson.dumps(manifest.as_dict()).decode()
        async with self._changing, self._database.transaction() as connection:
            account = await self._ensure_namespace(connection, namespace, now)
            requirements = orjson.dumps(list(manifest.requirements)).decode()
            await connection.execute(_SQL["touch_environment"], environment_digest, python, requirements, now)
            row = await connection.fetchrow(_SQL["next_revision"], namespace, name, now)
            assert row is not None
            number: int = row["last_number"]
            await connection.execute(
                _SQL["insert_revision"], namespace, name, number, stored, bundle_digest, environment_digest, python,
                manifest.shape, now,
            )  # fmt: skip
        revision = Revision(
            namespace, name, number, manifest, bundle_digest, environment_digest, python,
            shape=manifest.shape, created_at=now.timestamp(),
        )  # fmt: skip
        self._accounts[namespace] = account
        self._functions[namespace, name] = Function(
            namespace, name, row["live"], row["public"], row["created_at"].timestamp(), row["updated_at"].timestamp()
        )
        self._keep(revision)
        self._publish("created", revision)
        return revision

    async def mark_ready(self, revision: Revision, shape: str, preload: tuple[str, ...]) -> Revision:
        """The revision was proved. Raises NotFound when its function was deleted meanwhile, Unavailable."""
        values = (shape, orjson.dumps(list(preload)).decode())
        await self._mark("mark_ready", revision, *values)
        ready = replace(revision, state="ready", shape=shape, preload=tuple(preload), error="")
        self._keep(ready)
        self._publish("revision_ready", ready)
        return ready

    async def mark_failed(self, revision: Revision, error: str) -> Revision:
        """The revision cannot serve. Raises NotFound when its function was deleted meanwhile, Unavailable."""
        error = error.replace("\0", "").encode("utf-8", "replace").decode()[:ERROR_MAX]
        await self._mark("mark_failed", revision, error)
        failed = replace(revision, state="failed", error=error)
        self._keep(failed)
        self._publish("revision_failed", failed)
        return failed

    async def abandon_unfinished(self, reason: str) -> list[Revision]:
        """At a start: revisions that an earlier gateway was building when it ended have failed. Raises Unavailable."""
        unfinished = [r for of in self._revisions.values() for r in of.values() if r.state == "building"]
        return [await self.mark_failed(revision, reason) for revision in unfinished]

    async def route(self, namespace: str, function: str, number: int) -> Revision:
        """Send the traffic to a ready revision. Raises NotFound, Conflict when it is not ready, Unavailable."""
        revision = self._existing(namespace, function, number)
        if revision.state != "ready":
            raise Conflict(f"revision {number} of {namespace}/{function} is {revision.state}, not ready")
        now = self._now()
        public = revision.manifest.public
        async with self._changing, self._database.transaction() as connection:
            created_at = await connection.fetchval(_SQL["route"], namespace, function, number, public, now)
        if created_at is None:
            raise NotFound(f"no ready revision {number} of {namespace}/{function} any more")
        key = namespace, function
        before = self._live.get(key)
        self._functions[key] = Function(namespace, function, number, public, created_at.timestamp(), now.timestamp())
        self._live[key] = revision
        if before is None or before.number != number:
            self._publish("routed", revision)
            if before is not None:
                self._publish("unrouted", before)
        return revision

    async def delete_function(self, namespace: str, function: str) -> None:
        """Remove a function and its revisions; their numbers are not used again. Raises NotFound, Unavailable."""
        now = self._now()
        async with self._changing, self._database.transaction() as connection:
            tag = await connection.execute(_SQL["delete_function"], namespace, function, now)
            if rows_touched(tag) == 0:
                raise NotFound(f"no function {namespace}/{function}")
            await connection.execute(_SQL["remove_revisions"], namespace, function, now)
        key = namespace, function
        self._functions.pop(key, None)
        live = self._live.pop(key, None)
        removed = self._revisions.pop(key, {})
        if live is not None:
            self._publish("unrouted", live)
        for _, revision in sorted(removed.items()):
            self._publish("removed", revision)

    async def rollback_target(self, namespace: str, function: str, number: int | None = None) -> Revision:
        """The revision that a rollback goes to: the given one, or the last ready one before the live one.

        Raises NotFound when there is none, Conflict when it is live already or not ready.
        """
        found = self._functions.get((namespace, function))
        if found is None:
            raise NotFound(f"no function {namespace}/{function}")
        if number is not None:
            revision = self._existing(namespace, function, number)
            if number == found.live:
                raise Conflict(f"revision {number} of {namespace}/{function} is live already")
            if revision.state != "ready":
                raise Conflict(f"revision {number} of {namespace}/{function} is {revision.state}, not ready")
            return revision
        earlier = [
            revision
            for revision in self.revisions(namespace, function)
            if revision.state == "ready" and (found.live is None or revision.number < found.live)
        ]
        if not earlier:
            raise NotFound(f"{namespace}/{function} has no earlier ready revision to roll back to")
        return earlier[-1]

    async def ensure_namespace(self, name: str) -> str:
        """Make a namespace that may not be there yet; gives its account. Raises BadRequest, Unavailable."""
        checked_name("namespace", name)
        async with self._changing, self._database.transaction() as connection:
            account = await self._ensure_namespace(connection, name, self._now())
        self._accounts[name] = account
        return account

    # -- inside ------------------------------------------------------------------------------------------

    async def _ensure_namespace(self, connection: Connection, name: str, now: datetime) -> str:
        """Until tenants have accounts of their own, a namespace pays for itself."""
        await connection.execute(_SQL["insert_namespace"], name, name, now)
        account: str = await connection.fetchval(_SQL["select_account"], name)
        return account

    async def _mark(self, statement: str, revision: Revision, *values: Any) -> None:
        key = (revision.namespace, revision.function, revision.number)
        async with self._changing:
            touched = await self._database.execute(_SQL[statement], *key, *values)
        if touched == 0:
            raise NotFound(f"revision {revision.number} of {revision.namespace}/{revision.function} was removed")

    def _existing(self, namespace: str, function: str, number: int) -> Revision:
        revision = self.revision(namespace, function, number)
        if revision is None:
            if (namespace, function) not in self._functions:
                raise NotFound(f"no function {namespace}/{function}")
            raise NotFound(f"{namespace}/{function} has no revision {number}")
        return revision

    def _keep(self, revision: Revision) -> None:
        self._revisions.setdefault((revision.namespace, revision.function), {})[revision.number] = revision

    def _publish(self, kind: Kind, revision: Revision) -> None:
        change = Change(kind, revision)
        for callback in self._subscribers:
            try:
                callback(change)
            except Exception:
                # The change has happened and others must hear of it.
                log.exception("a subscriber failed on %s of %s", kind, revision.key)

    def _publish_differences(
        self, before: dict[tuple[str, str], dict[int, Revision]], before_live: dict[tuple[str, str], Revision]
    ) -> None:
        states: dict[str, Kind] = {"building": "created", "ready": "revision_ready", "failed": "revision_failed"}
        for key, revisions in self._revisions.items():
            for number, revision in sorted(revisions.items()):
                known = before.get(key, {}).get(number)
                if known is None or known.state != revision.state:
                    self._publish(states[revision.state], revision)
        for key, live in self._live.items():
            known = before_live.get(key)
            if known is None or known.number != live.number:
                self._publish("routed", live)
        for key, known in before_live.items():
            live_now = self._live.get(key)
            if live_now is None or live_now.number != known.number:
                self._publish("unrouted", known)
        for key, revisions in before.items():
            for number, revision in sorted(revisions.items()):
                if number not in self._revisions.get(key, {}):
                    self._publish("removed", revision)

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock(), UTC)


def _function(row: Row) -> Function:
    return Function(
        row["namespace"], row["name"], row["live"], row["public"], row["created_at"].timestamp(),
        row["updated_at"].timestamp(),
    )  # fmt: skip


def _revision(row: Row) -> Revision:
    return Revision(
        namespace=row["namespace"],
        function=row["function"],
        number=row["number"],
        manifest=Manifest.from_dict(orjson.loads(row["manifest"])),
        bundle_digest=row["bundle_digest"],
        environment_digest=row["environment_digest"],
        python=row["python"],
        state=row["state"],
        shape=row["shape"],
        preload=tuple(orjson.loads(row["preload"])),
        error=row["error"],
        created_at=row["created_at"].timestamp(),
    )
