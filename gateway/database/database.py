"""The connection to PostgreSQL: a bounded pool, time limits on everything, and one place where its absence becomes
`Unavailable`. A lost connection is replaced at the next use, so an outage ends by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import asyncpg

from gateway.errors import Unavailable

Connection = asyncpg.pool.PoolConnectionProxy
Row = asyncpg.Record
Isolation = Literal["read_committed", "repeatable_read", "serializable"]

#: What asyncpg and the sockets below it raise when the server is away, leaving, starting or overrun. A client-side
#: InterfaceError is among them because asyncpg says so when a connection was cut in the middle of something.
_AWAY = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.OperatorInterventionError,
    asyncpg.TooManyConnectionsError,
    asyncpg.InternalClientError,
)


@dataclass(frozen=True)
class DatabaseParams:
    """Bounds; times in seconds."""

    connections_max: int = 8
    connect_timeout_s: float = 5.0
    #: Waiting for a free connection of the pool.
    acquire_timeout_s: float = 10.0
    #: The server ends a statement that runs longer.
    statement_timeout_s: float = 30.0
    #: We give up on a server that does not answer; a little more than the server's own limit.
    answer_timeout_s: float = 35.0
    #: Advice to callers who meet an outage.
    retry_after_s: float = 1.0


class Database:
    """See the module."""

    def __init__(self, dsn: str, params: DatabaseParams | None = None) -> None:
        self._dsn = dsn
        self._params = params if params is not None else DatabaseParams()
        self._pool: asyncpg.Pool[Row] | None = None

    async def open(self) -> None:
        """Connect. Raises Unavailable."""
        params = self._params
        pool = asyncpg.create_pool(
            self._dsn,
            min_size=1,
            max_size=params.connections_max,
            timeout=params.connect_timeout_s,
            command_timeout=params.answer_timeout_s,
            server_settings={
                "application_name": "samovar",
                "statement_timeout": str(int(params.statement_timeout_s * 1000)),
                "timezone": "UTC",
            },
        )
        with self._translated():
            await pool
        self._pool = pool

    async def close(self) -> None:
        """Close every connection; those in use are cut."""
        pool, self._pool = self._pool, None
        if pool is not None:
            try:
                async with asyncio.timeout(self._params.connect_timeout_s):
                    await pool.close()
            except TimeoutError:
                pool.terminate()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection of the pool. Raises Unavailable, also out of the block."""
        if self._pool is None:
            raise Unavailable("the database is not open", retry_after_s=self._params.retry_after_s)
        with self._translated():
            async with self._pool.acquire(timeout=self._params.acquire_timeout_s) as connection:
                yield connection

    @asynccontextmanager
    async def transaction(self, isolation: Isolation = "read_committed") -> AsyncIterator[Connection]:
        """A connection in a transaction: committed at the end of the block, rolled back when it raises."""
        async with self.connection() as connection, connection.transaction(isolation=isolation):
            yield connection

    async def fetch(self, sql: str, *values: Any) -> list[Row]:
        """All rows. Raises Unavailable."""
        async with self.connection() as connection:
            return await connection.fetch(sql, *values)

    async def fetchval(self, sql: str, *values: Any) -> Any:
        """The first column of the first row. Raises Unavailable."""
        async with self.connection() as connection:
            return await connection.fetchval(sql, *values)

    async def execute(self, sql: str, *values: Any) -> int:
        """Run a statement; gives the number of rows it touched. Raises Unavailable."""
        async with self.connection() as connection:
            return rows_touched(await connection.execute(sql, *values))

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except _AWAY as error:
            raise self._unavailable(error) from error
        except asyncpg.InterfaceError as error:
            if "closed" in str(error) or "closing" in str(error) or "released" in str(error):
                raise self._unavailable(error) from error
            raise

    def _unavailable(self, error: BaseException) -> Unavailable:
        said = str(error) or type(error).__name__
        return Unavailable(f"the database is away: {said}", retry_after_s=self._params.retry_after_s)


def rows_touched(tag: str) -> int:
    """The count in a command tag such as "UPDATE 3"; 0 when it has none."""
    count = tag.rpartition(" ")[2]
    return int(count) if count.isdigit() else 0
