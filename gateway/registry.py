"""What is deployed: functions and their revisions, in memory for the hot path, in PostgreSQL for good.

Every change is committed first and then told to whoever follows (`subscribe`); reading never waits.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Literal, NamedTuple

from gateway.catalog import NAME, Function, Manifest, Revision
from gateway.database.database import Database, Row, rows_touched
from gateway.database.statements import load_statements
from gateway.errors import BadRequest, Conflict, NotFound

_SQL = load_statements("registry")
Key = tuple[str, str]
#: Characters of an error kept with its revision.
ERROR_CHARS_MAX = 32_000


class Change(NamedTuple):
    """What happened to a revision. `routed` comes before the `unrouted` of the one it replaces."""

    kind: Literal["revision_ready", "revision_failed", "routed", "unrouted", "removed"]
    revision: Revision


class Registry:
    """See the module. `clock`: seconds since the epoch."""

    def __init__(self, database: Database, clock: Callable[[], float]) -> None:
        self._database = database
        self._clock = clock
        self._accounts: dict[str, str] = {}
        self._functions: dict[Key, Function] = {}
        self._revisions: dict[Key, dict[int, Revision]] = {}
        self._live: dict[Key, Revision] = {}
        self._followers: list[Callable[[Change], None]] = []
        #: Held from a change's first statement to its commit, and while everything is read: memory then follows the
        #: database's order, since nothing else runs between letting go and the change in memory.
        self._changing = asyncio.Lock()
        #: The price list in force when this process loaded it.
        self.price_version = 1

    async def load(self) -> dict[Key, Revision]:
        """Read everything; gives what was live before. Raises Unavailable."""
        async with self._changing, self._database.transaction("repeatable_read") as connection:
            namespaces = await connection.fetch(_SQL["load_namespaces"])
            functions = await connection.fetch(_SQL["load_functions"])
            revisions = await connection.fetch(_SQL["load_revisions"])
            price_version = await connection.fetchval(_SQL["load_price_version"], self._now())
        before = self._live
        self.price_version = price_version or 1
        self._accounts = {row["name"]: row["account"] for row in namespaces}
        self._functions = {(row["namespace"], row["name"]): _function(row) for row in functions}
        self._revisions = {key: {} for key in self._functions}
        for row in revisions:
            revision = _revision(row)
            self._revisions.setdefault((revision.namespace, revision.function), {})[revision.number] = revision
        self._live = {
            key: self._revisions[key][function.live]
            for key, function in self._functions.items()
            if function.live in self._revisions[key]
        }
        return before

    async def reload(self) -> None:
        """Read again, because another gateway changed something, and tell what is different. Raises Unavailable."""
        before = await self.load()
        for key, revision in self._live.items():
            if before.get(key) != revision:
                self._tell("routed", revision)
        for key, revision in before.items():
            now = self._live.get(key)
            if now is None:
                self._tell("removed", revision)
            elif now.number != revision.number:
                self._tell("unrouted", revision)

    def subscribe(self, follower: Callable[[Change], None]) -> None:
        """Have every change told, after it is committed."""
        self._followers.append(follower)

    # -- reading -----------------------------------------------------------------------------------------

    def lookup(self, namespace: str, function: str) -> Revision | None:
        """The live revision."""
        return self._live.get((namespace, function))

    def function(self, namespace: str, name: str) -> Function | None:
        """A function; None when there is none."""
        return self._functions.get((namespace, name))

    def functions(self, namespace: str | None) -> list[Function]:
        """All functions by name, of one namespace or of all."""
        return [f for key, f in sorted(self._functions.items()) if namespace is None or key[0] == namespace]

    def revision(self, namespace: str, function: str, number: int) -> Revision | None:
        """One revision."""
        return self._revisions.get((namespace, function), {}).get(number)

    def revisions(self, namespace: str, name: str) -> list[Revision]:
        """A function's revisions, oldest first."""
        return [revision for _, revision in sorted(self._revisions.get((namespace, name), {}).items())]

    def account(self, namespace: str) -> str:
        """Who pays for a namespace."""
        return self._accounts.get(namespace, namespace)

    # -- changing ----------------------------------------------------------------------------------------

    async def create_revision(
        self, manifest: Manifest, bundle_digest: str, environment_digest: str, python: str
    ) -> Revision:
        """The next revision, `building`; namespace and function come into being with it.

        Raises BadRequest for names that are none, Unavailable.
        """
        namespace, name = manifest.namespace, manifest.name
        for field, value in (("namespace", namespace), ("name", name)):
            if not NAME.fullmatch(value):
                raise BadRequest(f"{field}: {value!r} is not 1 to 63 of a-z, 0-9 and '-', with no '-' at either end")
        now = self._now()
        async with self._changing, self._database.transaction() as connection:
            await connection.execute(_SQL["insert_namespace"], namespace, namespace, now)
            account = await connection.fetchval(_SQL["select_account"], namespace)
            requirements = json.dumps(sorted(manifest.requirements))
            await connection.execute(_SQL["touch_environment"], environment_digest, python, requirements, now)
            row = await connection.fetchrow(_SQL["next_revision"], namespace, name, now)
            assert row is not None
            revision = Revision(
                namespace,
                name,
                row["last_number"],
                manifest,
                bundle_digest,
                environment_digest,
                python,
                shape=manifest.shape,
                created_at=now.timestamp(),
            )
            stored = json.dumps(manifest.as_dict())
            await connection.execute(
                _SQL["insert_revision"],
                namespace,
                name,
                revision.number,
                stored,
                bundle_digest,
                environment_digest,
                python,
                manifest.shape,
                now,
            )
        self._accounts[namespace] = account
        created, updated = row["created_at"].timestamp(), row["updated_at"].timestamp()
        self._functions[namespace, name] = Function(namespace, name, row["live"], row["public"], created, updated)
        self._revisions.setdefault((namespace, name), {})[revision.number] = revision
        return revision

    async def mark_ready(self, revision: Revision, shape: str, preload: tuple[str, ...]) -> Revision:
        """The revision was proved: it may be routed. Raises Conflict when its function was deleted meanwhile."""
        values = (revision.namespace, revision.function, revision.number, shape, json.dumps(preload))
        await self._touch("mark_ready", *values)
        return self._replace("revision_ready", replace(revision, state="ready", shape=shape, preload=preload, error=""))

    async def mark_failed(self, revision: Revision, error: str) -> Revision:
        """The revision does not start. Raises Conflict when its function was deleted meanwhile."""
        # A researcher's own words: what PostgreSQL's text does not hold is left out.
        error = error.replace("\0", "").encode("utf-8", "replace").decode()[:ERROR_CHARS_MAX]
        await self._touch("mark_failed", revision.namespace, revision.function, revision.number, error)
        return self._replace("revision_failed", replace(revision, state="failed", error=error))

    async def route(self, namespace: str, function: str, number: int) -> Revision:
        """Send all traffic to this revision. Raises NotFound, Conflict (it is not ready), Unavailable."""
        key = (namespace, function)
        revision = self._known(namespace, function, number)
        now = self._now()
        public = revision.manifest.public
        async with self._changing:
            created = await self._database.fetchval(_SQL["route"], namespace, function, number, public, now)
        if created is None:
            raise Conflict(f"revision {number} of {namespace}/{function} is not ready, it is {revision.state}")
        before = self._live.get(key)
        self._live[key] = revision
        self._functions[key] = Function(namespace, function, number, public, created.timestamp(), now.timestamp())
        self._tell("routed", revision)
        if before is not None and before.number != number:
            self._tell("unrouted", before)
        return revision

    async def delete_function(self, namespace: str, function: str) -> None:
        """Forget a function; its records stay, its name can be used again. Raises NotFound, Unavailable."""
        key = (namespace, function)
        now = self._now()
        async with self._changing, self._database.transaction() as connection:
            if not rows_touched(await connection.execute(_SQL["delete_function"], *key, now)):
                raise NotFound(f"no function {namespace}/{function}")
            await connection.execute(_SQL["remove_revisions"], *key, now)
        self._functions.pop(key, None)
        self._live.pop(key, None)
        for revision in self._revisions.pop(key, {}).values():
            self._tell("removed", revision)

    async def rollback_target(self, namespace: str, function: str, number: int | None) -> Revision:
        """Revision `number`, or the ready one before the live one. Raises NotFound, Conflict."""
        row = self._functions.get((namespace, function))
        if row is None:
            raise NotFound(f"no function {namespace}/{function}")
        if number is not None:
            revision = self._known(namespace, function, number)
            if revision.state != "ready":
                raise Conflict(f"revision {number} of {namespace}/{function} is not ready, it is {revision.state}")
            return revision
        ready = [r for r in self.revisions(namespace, function) if r.state == "ready" and r.number < (row.live or 0)]
        if not ready:
            raise Conflict(f"{namespace}/{function} has no ready revision before {row.live}")
        return ready[-1]

    # -- inside ------------------------------------------------------------------------------------------

    def _known(self, namespace: str, function: str, number: int) -> Revision:
        if (namespace, function) not in self._functions:
            raise NotFound(f"no function {namespace}/{function}")
        revision = self.revision(namespace, function, number)
        if revision is None:
            raise NotFound(f"{namespace}/{function} has no revision {number}")
        return revision

    async def _touch(self, statement: str, namespace: str, function: str, number: int, *values: str) -> None:
        async with self._changing:
            touched = await self._database.execute(_SQL[statement], namespace, function, number, *values)
        if not touched:
            raise Conflict(f"{namespace}/{function} was deleted while its revision {number} was being made")

    def _replace(self, kind: Literal["revision_ready", "revision_failed"], revision: Revision) -> Revision:
        self._revisions.setdefault((revision.namespace, revision.function), {})[revision.number] = revision
        self._tell(kind, revision)
        return revision

    def _tell(
        self, kind: Literal["revision_ready", "revision_failed", "routed", "unrouted", "removed"], revision: Revision
    ) -> None:
        change = Change(kind, revision)
        for follower in self._followers:
            follower(change)

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock(), UTC)


def _function(row: Row) -> Function:
    return Function(
        row["namespace"],
        row["name"],
        row["live"],
        row["public"],
        row["created_at"].timestamp(),
        row["updated_at"].timestamp(),
    )


def _revision(row: Row) -> Revision:
    return Revision(
        namespace=row["namespace"],
        function=row["function"],
        number=row["number"],
        manifest=Manifest.from_dict(json.loads(row["manifest"])),
        bundle_digest=row["bundle_digest"],
        environment_digest=row["environment_digest"],
        python=row["python"],
        state=row["state"],
        shape=row["shape"],
        preload=tuple(json.loads(row["preload"])),
        error=row["error"],
        created_at=row["created_at"].timestamp(),
    )
