"""Names that tenants choose: of namespaces and functions. They appear in URLs, host names and file names."""

from __future__ import annotations

import re

from gateway.errors import BadRequest

NAME_RULE = "1 to 63 of a-z, 0-9 and '-', beginning and ending with a letter or digit"
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")


def checked_name(field: str, value: str) -> str:
    """The value, if it is a name. Raises BadRequest naming the field and the rule."""
    if not _NAME.fullmatch(value):
        shown = value if len(value) <= 80 else value[:77] + "..."
        raise BadRequest(f"{field}: {shown!r} is not a name: {NAME_RULE}")
    return value
