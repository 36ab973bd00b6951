"""Who may call: tokens, of which only the SHA-256 is kept, held in memory so that checking one costs a hash.

A token is `smv_` and 32 random bytes in URL-safe Base64. It is for one namespace or, without one, for all; an admin's
may manage tokens.
"""

from __future__ import annotations

import base64
import hashlib
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from gateway.database.database import Database, Row
from gateway.database.statements import load_statements
from gateway.errors import BadRequest, NotFound, Unauthorized
from gateway.names import checked_name

_SQL = load_statements("tokens")
_NAMESPACES = load_statements("registry")

PREFIX = "smv_"
_SECRET_BYTES = 32
_TOKEN_CHARACTERS = len(PREFIX) + 43
_NAME_MAX = 100
#: The longest life that can be asked for: a century.
_LIFE_MAX_S = 100 * 366 * 24 * 3600.0
LOCAL_NAME = "local"


@dataclass(frozen=True, slots=True)
class Principal:
    """Who calls. `namespace` None: every one. Times are seconds since the epoch; `expires_at` None: never."""

    token_id: str
    namespace: str | None
    name: str
    admin: bool
    expires_at: float | None
    #: Of the namespace; empty for a token of every one.
    account: str
    created_at: float = 0.0


@dataclass(frozen=True)
class NewToken:
    """A token at the only moment it can be read."""

    token: str
    principal: Principal


def allows(principal: Principal, namespace: str) -> bool:
    """Whether this caller may do things in a namespace."""
    return principal.namespace is None or principal.namespace == namespace


class Tokens:
    """See the module. `clock`: seconds since the epoch, UTC."""

    def __init__(self, database: Database, new_id: Callable[[], str], clock: Callable[[], float]) -> None:
        self._database = database
        self._new_id = new_id
        self._clock = clock
        self._principals: dict[bytes, Principal] = {}

    async def load(self) -> None:
        """Read the tokens that were not revoked. Raises Unavailable."""
        rows = await self._database.fetch(_SQL["load_tokens"])
        self._principals = {bytes(row["digest"]): _principal(row) for row in rows}

    def authenticate(self, header: bytes | str | None, now: float) -> Principal:
        """The caller of an `Authorization` header. `now`: seconds since the epoch. Raises Unauthorized."""
        if not header:
            raise Unauthorized("a token is needed: Authorization: Bearer smv_...")
        raw = header.encode("utf-8", "replace") if isinstance(header, str) else header
        scheme, _, token = raw.partition(b" ")
        if scheme.lower() != b"bearer":
            raise Unauthorized("the Authorization header must be: Bearer smv_...")
        principal = self._principals.get(hashlib.sha256(token.strip()).digest())
        if principal is None:
            raise Unauthorized("unknown or revoked token")
        if principal.expires_at is not None and now >= principal.expires_at:
            raise Unauthorized("the token has expired")
        return principal

    async def create(
        self, namespace: str | None, name: str, *, admin: bool = False, expires_in_s: float | None = None
    ) -> NewToken:
        """A new token; makes its namespace if need be. Raises BadRequest, Unavailable."""
        if namespace is not None:
            checked_name("namespace", namespace)
        if not name or len(name) > _NAME_MAX or not name.isprintable():
            raise BadRequest(f"name: 1 to {_NAME_MAX} printable characters")
        if admin and namespace is not None:
            raise BadRequest("admin: an admin's token is for every namespace; leave the namespace out")
        if expires_in_s is not None and not 0 < expires_in_s <= _LIFE_MAX_S:
            raise BadRequest(f"expires_in_s: more than 0 and at most {_LIFE_MAX_S:.0f} seconds")
        token = PREFIX + base64.urlsafe_b64encode(secrets.token_bytes(_SECRET_BYTES)).rstrip(b"=").decode()
        digest = hashlib.sha256(token.encode()).digest()
        now = self._clock()
        expires_at = None if expires_in_s is None else now + expires_in_s
        identifier = self._new_id()
        account = ""
        async with self._database.transaction() as connection:
            if namespace is not None:
                await connection.execute(_NAMESPACES["insert_namespace"], namespace, namespace, _moment(now))
                account = await connection.fetchval(_NAMESPACES["select_account"], namespace)
            await connection.execute(
                _SQL["insert_token"], identifier, namespace, digest, name, admin, _moment(now),
                None if expires_at is None else _moment(expires_at),
            )  # fmt: skip
        principal = Principal(identifier, namespace, name, admin, expires_at, account, now)
        self._principals[digest] = principal
        return NewToken(token, principal)

    async def revoke(self, token_id: str) -> None:
        """End a token now. Raises NotFound, Unavailable."""
        touched = await self._database.execute(_SQL["revoke_token"], token_id, _moment(self._clock()))
        known = [digest for digest, principal in self._principals.items() if principal.token_id == token_id]
        for digest in known:
            del self._principals[digest]
        if not touched and not known:
            raise NotFound(f"no token {token_id!r}")

    def list(self) -> list[Principal]:
        """Those not revoked, expired ones included, oldest first."""
        return sorted(self._principals.values(), key=lambda principal: (principal.created_at, principal.token_id))

    async def ensure_local_token(self, path: Path) -> str:
        """The admin token of this machine's user, in a file that only he can read; made when there is no good one.

        A file that others could read is not trusted: its token is revoked. Raises OSError, Unavailable.
        """
        found = _read_token(path)
        if found is not None:
            token, private = found
            principal = self._principals.get(hashlib.sha256(token.encode()).digest())
            if principal is not None:
                alive = principal.expires_at is None or self._clock() < principal.expires_at
                if private and alive and principal.admin:
                    return token
                await self.revoke(principal.token_id)
        created = await self.create(None, LOCAL_NAME, admin=True)
        _write_private(path, created.token + "\n")
        return created.token


def _principal(row: Row) -> Principal:
    expires_at = row["expires_at"]
    return Principal(
        row["id"], row["namespace"], row["name"], row["admin"],
        None if expires_at is None else expires_at.timestamp(), row["account"] or "", row["created_at"].timestamp(),
    )  # fmt: skip


def _read_token(path: Path) -> tuple[str, bool] | None:
    """The token in a file, and whether only its owner could read it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        status = os.fstat(descriptor)
        text = os.read(descriptor, 4 * _TOKEN_CHARACTERS).decode("ascii", "replace").strip()
    finally:
        os.close(descriptor)
    private = status.st_mode & 0o077 == 0 and status.st_uid == os.geteuid()
    return (text, private) if text.startswith(PREFIX) else None


def _write_private(path: Path, content: str) -> None:
    """Whole and private from its first moment: written beside, then renamed over."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.unlink(missing_ok=True)
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
        os.write(descriptor, content.encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    beside.replace(path)


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
