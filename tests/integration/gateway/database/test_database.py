"""The connection to a real PostgreSQL, and its schema."""

from __future__ import annotations

import asyncio
from pathlib import Path

import asyncpg
import pytest

from gateway.database.database import Database, DatabaseParams
from gateway.database.migrations import Migration, SchemaMismatch, load_migrations, migrate
from gateway.errors import Unavailable


async def opened(dsn: str, params: DatabaseParams | None = None) -> Database:
    database = Database(dsn, params)
    await database.open()
    return database


async def test_migrations_run_once(database_dsn: str) -> None:
    database = await opened(database_dsn)
    assert await migrate(database) == [f"{m.number:04}_{m.name}" for m in load_migrations()]
    assert await migrate(database) == []
    await database.close()


async def test_two_gateways_that_start_together_migrate_once(database_dsn: str) -> None:
    databases = [await opened(database_dsn) for _ in range(2)]
    ran = await asyncio.gather(*(migrate(database) for database in databases))
    assert sorted(map(len, ran)) == [0, len(load_migrations())]
    for database in databases:
        await database.close()


async def test_a_migration_that_fails_leaves_the_schema_as_it_was(database_dsn: str) -> None:
    database = await opened(database_dsn)
    good = Migration(1, "good", "CREATE TABLE one (n integer);")
    bad = Migration(2, "bad", "CREATE TABLE two (n integer); SELECT nonsense;")
    with pytest.raises(asyncpg.UndefinedColumnError):
        await migrate(database, [good, bad])
    assert await database.fetchval("SELECT to_regclass('one')") is None
    assert await migrate(database, [good]) == ["0001_good"]
    await database.close()


async def test_a_schema_that_was_edited_is_refused(database: Database) -> None:
    first, *rest = load_migrations()
    with pytest.raises(SchemaMismatch, match="was edited"):
        await migrate(database, [Migration(first.number, first.name, first.sql + "-- more"), *rest])


async def test_a_server_that_is_not_there_is_unavailable(tmp_path: Path) -> None:
    database = Database(f"postgresql://samovar@/postgres?host={tmp_path}&port=5432")
    with pytest.raises(Unavailable, match="the database is away"):
        await database.open()
    with pytest.raises(Unavailable, match="not open"):
        await database.fetch("SELECT 1")


async def test_cut_connections_are_replaced(database: Database) -> None:
    async def cut_all() -> None:
        cut = (
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        await other.fetch(cut)

    other = await opened(database._dsn)
    assert await database.fetchval("SELECT 1") == 1
    await cut_all()
    async with asyncio.timeout(20):
        while True:
            try:
                assert await database.fetchval("SELECT 2") == 2
                break
            except Unavailable:
                continue
    await other.close()


async def test_a_connection_cut_in_a_transaction_is_unavailable_and_rolled_back(database: Database) -> None:
    with pytest.raises(Unavailable):
        async with database.transaction() as connection:
            await connection.execute("INSERT INTO namespaces VALUES ('one', 'one', now())")
            other = await asyncpg.connect(database._dsn)
            await other.execute("SELECT pg_terminate_backend($1)", connection.get_server_pid())
            await other.close()
            await connection.execute("INSERT INTO namespaces VALUES ('two', 'two', now())")
    assert await database.fetchval("SELECT count(*) FROM namespaces") == 0


async def test_a_statement_that_takes_too_long_is_ended_by_the_server(database_dsn: str) -> None:
    database = await opened(database_dsn, DatabaseParams(statement_timeout_s=0.05))
    with pytest.raises(Unavailable, match="statement timeout"):
        await database.fetch("SELECT pg_sleep(30)")
    assert await database.fetchval("SELECT 1") == 1
    await database.close()


async def test_waiting_for_a_connection_is_bounded(database_dsn: str) -> None:
    database = await opened(database_dsn, DatabaseParams(connections_max=1, acquire_timeout_s=0.05))
    async with database.connection():
        with pytest.raises(Unavailable):
            await database.fetch("SELECT 1")
    assert await database.fetchval("SELECT 1") == 1
    await database.close()


async def test_an_error_of_the_statement_stays_what_it_is(database: Database) -> None:
    with pytest.raises(asyncpg.UndefinedTableError):
        await database.fetch("SELECT * FROM nowhere")
    assert await database.execute("DELETE FROM prices WHERE version = 1") == 1
