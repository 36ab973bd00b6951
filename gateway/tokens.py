"""Who may call: bearer tokens, of which only the SHA-256 is kept; checked in memory, kept in PostgreSQL.

A token is `smv_` and 32 random bytes, so its digest needs no salt and no slow hash. One is made for the user who runs
the gateway, in a file that only this user can read.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gateway.announcement import write_private
from gateway.database.database import Database
from gateway.database.statements import load_statements
from gateway.errors import BadRequest, NotFound, Unauthorized
from gateway.identifiers import Uuid7

_SQL = load_statements("tokens")

PREFIX = "smv_"
_SECRET_BYTES = 32
#: Longer headers are not looked at.
HEADER_BYTES_MAX = 512
NAME_CHARS_MAX = 200
LOCAL_NAME = "local"


@dataclass(frozen=True)
class Principal:
    """Whoever holds a token."""

    token_id: str
    #: The only namespace it may see and touch; None: every one.
    namespace: str | None
    name: str
    #: May handle tokens.
    admin: bool
    #: Seconds since the epoch; None: never.
    expires_at: float | None
    created_at: float = 0.0


class Tokens:
    """See the module. `clock`: seconds since the epoch."""

    def __init__(self, database: Database, clock: Callable[[], float]) -> None:
        self._database = database
        self._clock = clock
        self._new_id = Uuid7()
        self._principals: dict[bytes, Principal] = {}

    async def load(self) -> None:
        """Read every token that was not revoked. Raises Unavailable."""
        rows = await self._database.fetch(_SQL["load_tokens"])
        self._principals = {
            bytes(row["digest"]): Principal(
                row["id"],
                row["namespace"],
                row["name"],
                row["admin"],
                row["expires_at"].timestamp() if row["expires_at"] is not None else None,
                row["created_at"].timestamp(),
            )
            for row in rows
        }

    def authenticate(self, header: bytes | str | None, now: float) -> Principal:
        """The principal of an Authorization header. Raises Unauthorized."""
        if not header:
            raise Unauthorized("a token is needed: Authorization: Bearer smv_...")
        raw = header.encode("utf-8", "replace") if isinstance(header, str) else header
        scheme, _, token = raw[:HEADER_BYTES_MAX].partition(b" ")
        if scheme.lower() != b"bearer":
            raise Unauthorized("Authorization: the scheme is Bearer")
        principal = self._principals.get(hashlib.sha256(token.strip()).digest())
        if principal is None:
            raise Unauthorized("this token is not known")
        if principal.expires_at is not None and principal.expires_at <= now:
            raise Unauthorized("this token has expired")
        return principal

    async def create(
        self, namespace: str | None, name: str, admin: bool, expires_in_s: float | None
    ) -> tuple[dict[str, Any], str]:
        """A new token: its row and, this once, the secret. Raises BadRequest, Unavailable."""
        if not 0 < len(name) <= NAME_CHARS_MAX:
            raise BadRequest(f"name: has {len(name)} characters; 1 to {NAME_CHARS_MAX} are allowed")
        secret = PREFIX + secrets.token_urlsafe(_SECRET_BYTES)
        now = self._clock()
        expires_at = now + expires_in_s if expires_in_s is not None else None
        principal = Principal(self._new_id(), namespace, name, admin, expires_at, now)
        digest = hashlib.sha256(secret.encode()).digest()
        async with self._database.transaction() as connection:
            if namespace is not None:
                await connection.execute(_SQL["ensure_namespace"], namespace, namespace, _moment(now))
            await connection.execute(
                _SQL["insert_token"],
                principal.token_id,
                namespace,
                digest,
                name,
                admin,
                _moment(now),
                _moment(expires_at) if expires_at is not None else None,
            )
        self._principals[digest] = principal
        return _row(principal), secret

    def rows(self) -> list[dict[str, Any]]:
        """A row for each token that was not revoked, oldest first, without secrets."""
        return [_row(p) for p in sorted(self._principals.values(), key=lambda p: (p.created_at, p.token_id))]

    async def revoke(self, token_id: str) -> None:
        """It is not accepted from now on. Raises NotFound, Unavailable."""
        if not await self._database.execute(_SQL["revoke_token"], token_id, _moment(self._clock())):
            raise NotFound(f"no token {token_id}")
        self._principals = {d: p for d, p in self._principals.items() if p.token_id != token_id}

    async def ensure_local_token(self, path: Path) -> str:
        """The token of the user who runs this gateway, from its file, made new when that holds no valid one."""
        try:
            secret = path.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError):
            secret = ""
        known = self._principals.get(hashlib.sha256(secret.encode()).digest())
        if known is not None and known.admin and known.namespace is None:
            path.chmod(0o600)
            return secret
        _, secret = await self.create(None, LOCAL_NAME, True, None)
        write_private(path, secret.encode() + b"\n")
        return secret


def _row(principal: Principal) -> dict[str, Any]:
    return {
        "id": principal.token_id,
        "namespace": principal.namespace,
        "name": principal.name,
        "admin": principal.admin,
        "created_at": principal.created_at,
        "expires_at": principal.expires_at,
    }


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
