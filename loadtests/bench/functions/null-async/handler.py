"""Gives back what it is given: the JSON work of any handler, and nothing else."""

from typing import Any


async def main(event: Any, context: Any) -> Any:
    """The event."""
    return event
