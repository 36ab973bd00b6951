"""Sums of metering records per function, read from the records themselves; calls answered a moment ago included."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Protocol

from gateway.database.database import Database
from gateway.database.statements import load_statements
from gateway.errors import BadRequest

_SQL = load_statements("metering")


class Flushing(Protocol):
    """The metering writer, as usage sees it."""

    async def flush(self) -> None:
        """Everything appended so far is in the database. Raises Unavailable."""


class Usage:
    """See the module. `writer` None: nothing is metered here, only what the database has is summed."""

    def __init__(self, database: Database, writer: Flushing | None) -> None:
        self._database = database
        self._writer = writer

    async def rows(
        self, namespace: str | None = None, since: float | None = None, until: float | None = None
    ) -> list[dict[str, Any]]:
        """One row a function, see docs/api.md; calls that arrived in [since, until), seconds since the epoch.

        Raises Unavailable; BadRequest for times that are none.
        """
        times = _moment("since", since), _moment("until", until)
        if self._writer is not None:
            await self._writer.flush()
        return [dict(row) for row in await self._database.fetch(_SQL["usage"], namespace, *times)]


def _moment(name: str, seconds: float | None) -> datetime | None:
    if seconds is None:
        return None
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise BadRequest(f"{name}: {seconds!r} is not a time in seconds since 1970") from error
