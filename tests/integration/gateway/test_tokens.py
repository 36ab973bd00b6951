"""Tokens, with a real PostgreSQL behind."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
import pytest_asyncio

from gateway.database.database import Database
from gateway.errors import BadRequest, NotFound, Unauthorized
from gateway.tokens import PREFIX, Tokens

NOW = 1_800_000_000.0


@pytest_asyncio.fixture
async def tokens(database: Database) -> Tokens:
    return Tokens(database, lambda: NOW)


def header(secret: str) -> bytes:
    return b"Bearer " + secret.encode()


async def test_a_token_opens_its_namespace_until_it_expires(tokens: Tokens, database: Database) -> None:
    row, secret = await tokens.create("lab", "for tests", False, 60.0)
    assert secret.startswith(PREFIX)
    assert len(secret) >= len(PREFIX) + 43
    again = Tokens(database, lambda: NOW)
    await again.load()
    for known in (tokens, again):
        principal = known.authenticate(header(secret), NOW + 59.9)
        assert (principal.token_id, principal.namespace, principal.admin) == (row["id"], "lab", False)
        assert principal.expires_at == pytest.approx(NOW + 60)
        with pytest.raises(Unauthorized, match="expired"):
            known.authenticate(header(secret), NOW + 60)


async def test_only_a_hash_is_stored(tokens: Tokens, database: Database) -> None:
    row, secret = await tokens.create(None, "for tests", True, None)
    stored = await database.fetch("SELECT * FROM tokens")
    assert secret[len(PREFIX) :] not in repr([dict(one) for one in stored])
    assert secret not in repr(row) + repr(tokens.rows())


@pytest.mark.parametrize("scheme", ["Bearer ", "bearer ", "BEARER  "])
async def test_the_scheme_is_read_in_any_case_from_text_and_bytes(tokens: Tokens, scheme: str) -> None:
    _, secret = await tokens.create(None, "for tests", True, None)
    assert tokens.authenticate(scheme + secret, NOW).admin
    assert tokens.authenticate((scheme + secret).encode(), NOW).admin


@pytest.mark.parametrize(
    "wrong", [None, "", b"", "Basic eDp5", "Bearer", "Bearer smv_x", b"Bearer \xff", "smv_x", "Bearer " + "x" * 10_000]
)
async def test_anything_else_is_unauthorized(tokens: Tokens, wrong: str | bytes | None) -> None:
    await tokens.create(None, "for tests", True, None)
    with pytest.raises(Unauthorized):
        tokens.authenticate(wrong, NOW)


async def test_a_revoked_token_opens_nothing_from_then_on(tokens: Tokens, database: Database) -> None:
    row, secret = await tokens.create(None, "for tests", True, None)
    kept, _ = await tokens.create(None, "kept", True, None)
    await tokens.revoke(row["id"])
    again = Tokens(database, lambda: NOW)
    await again.load()
    for known in (tokens, again):
        with pytest.raises(Unauthorized):
            known.authenticate(header(secret), NOW)
        assert [one["id"] for one in known.rows()] == [kept["id"]]
    for absent in (row["id"], "nothing"):
        with pytest.raises(NotFound):
            await tokens.revoke(absent)


async def test_a_name_of_no_use_is_refused(tokens: Tokens) -> None:
    for name in ("", "x" * 1000):
        with pytest.raises(BadRequest, match="name"):
            await tokens.create(None, name, True, None)


async def test_the_local_token_is_private_and_stays(tokens: Tokens, database: Database, tmp_path: Path) -> None:
    path = tmp_path / "token"
    secret = await tokens.ensure_local_token(path)
    assert path.read_text().strip() == secret
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    principal = tokens.authenticate(header(secret), NOW)
    assert (principal.admin, principal.namespace) == (True, None)
    again = Tokens(database, lambda: NOW)
    await again.load()
    assert await again.ensure_local_token(path) == secret
    assert len(again.rows()) == 1


@pytest.mark.parametrize("content", ["", "smv_unknown", "\x00\xff"])
async def test_a_local_token_that_opens_nothing_is_made_new(tokens: Tokens, tmp_path: Path, content: str) -> None:
    path = tmp_path / "token"
    path.write_text(content, "latin-1")
    path.chmod(0o644)
    secret = await tokens.ensure_local_token(path)
    assert tokens.authenticate(header(secret), NOW).admin
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_a_local_token_that_is_no_admins_is_made_new(tokens: Tokens, tmp_path: Path) -> None:
    path = tmp_path / "token"
    _, weak = await tokens.create("lab", "weak", False, None)
    path.write_text(weak)
    secret = await tokens.ensure_local_token(path)
    assert secret != weak
    assert tokens.authenticate(header(secret), NOW).admin
