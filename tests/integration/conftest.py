"""Real services for every integration test: one PostgreSQL and one Valkey a session, one database a test."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest
import pytest_asyncio

from gateway.database.database import Database
from gateway.database.migrations import migrate
from gateway.embedded.postgres import EmbeddedPostgres
from gateway.embedded.valkey import EmbeddedValkey

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def services_directory() -> Iterator[Path]:
    """A short path, as sockets need one."""
    with tempfile.TemporaryDirectory(prefix="samovar-test-") as directory:
        yield Path(directory)


@pytest.fixture(scope="session")
def postgres_dsn(services_directory: Path) -> Iterator[str]:
    """A PostgreSQL of the session's own; see `database_dsn` for an empty database in it."""
    server = EmbeddedPostgres(services_directory)
    # The kernel ends the server with the thread that started it, which is the session's main thread here.
    with asyncio.Runner() as runner:
        try:
            yield runner.run(server.start())
        finally:
            runner.run(server.stop())


@pytest.fixture(scope="session")
def valkey_url(services_directory: Path) -> Iterator[str]:
    """A Valkey of the session's own."""
    server = EmbeddedValkey(services_directory)
    with asyncio.Runner() as runner:
        try:
            yield runner.run(server.start())
        finally:
            runner.run(server.stop())


@pytest_asyncio.fixture
async def database_dsn(postgres_dsn: str) -> AsyncIterator[str]:
    """An empty database of the test's own."""
    name = f"test_{next(_numbers)}"
    connection = await asyncpg.connect(postgres_dsn)
    await connection.execute(f"CREATE DATABASE {name}")
    try:
        yield postgres_dsn.replace("/postgres?", f"/{name}?")
    finally:
        await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
        await connection.close()


@pytest_asyncio.fixture
async def database(database_dsn: str) -> AsyncIterator[Database]:
    """The test's own database, connected and with today's schema."""
    opened = Database(database_dsn)
    await opened.open()
    await migrate(opened)
    yield opened
    await opened.close()
