"""Numbered migrations: each runs once, in a transaction, one gateway at a time, and is never edited afterwards."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gateway.database.database import Database
from gateway.database.statements import SQL_DIRECTORY, load_statements

log = logging.getLogger("gateway.database")

_FILE = re.compile(r"^(\d{4})_([a-z0-9_]+)\.sql$")
_SQL = load_statements("migrations")


class SchemaMismatch(Exception):
    """The database was made by another Samovar; the message says how it differs."""


@dataclass(frozen=True)
class Migration:
    """One step of the schema."""

    number: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        """Of the text that ran."""
        return hashlib.sha256(self.sql.encode()).hexdigest()


def load_migrations(directory: Path = SQL_DIRECTORY / "migrations") -> list[Migration]:
    """Those in a directory, in order. Raises SchemaMismatch when a number is missing, doubled or misspelt."""
    migrations = []
    for path in sorted(directory.glob("*.sql")):
        match = _FILE.match(path.name)
        if match is None:
            raise SchemaMismatch(f"{path.name}: a migration is named NNNN_words.sql")
        migrations.append(Migration(int(match[1]), match[2], path.read_text("utf-8")))
    for place, migration in enumerate(migrations, 1):
        if migration.number != place:
            raise SchemaMismatch(f"migration {migration.number:04} stands where {place:04} should")
    return migrations


def pending(migrations: Sequence[Migration], done: Sequence[tuple[int, str, str]]) -> list[Migration]:
    """What is still to run; `done`: (number, name, checksum) from the database. Raises SchemaMismatch."""
    known = {migration.number: migration for migration in migrations}
    for number, name, checksum in done:
        if number not in known:
            raise SchemaMismatch(
                f"the database has migration {number:04}_{name}, which this Samovar does not know: it is newer; "
                "start the version that made it"
            )
        if known[number].checksum != checksum:
            raise SchemaMismatch(f"migration {number:04}_{name} was edited after it had run on this database")
    ran = {number for number, _, _ in done}
    return [migration for migration in migrations if migration.number not in ran]


async def migrate(database: Database, migrations: Sequence[Migration] | None = None) -> list[str]:
    """Bring the schema up to date; gives the names of what ran. Raises SchemaMismatch, Unavailable.

    All or nothing, and safe to call from several gateways at once: they wait for each other.
    """
    wanted = load_migrations() if migrations is None else migrations
    async with database.transaction() as connection:
        await connection.execute(_SQL["lock_migrations"])
        await connection.execute(_SQL["make_migrations_table"])
        done = [
            (row["number"], row["name"], row["checksum"]) for row in await connection.fetch(_SQL["load_migrations"])
        ]
        ran = []
        for migration in pending(wanted, done):
            await connection.execute(migration.sql)
            await connection.execute(_SQL["insert_migration"], migration.number, migration.name, migration.checksum)
            ran.append(f"{migration.number:04}_{migration.name}")
    if ran:
        log.info("database schema: ran %s", ", ".join(ran))
    return ran
