"""Times and spans as people type them: `2026-01-31`, `2026-01-31T14:00`, `36h`, `7d`. Pure: `now` is passed in."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from samovar.problems import WrongUsage

_SPAN = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|d|w)")
_UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def parse_span(what: str, text: str) -> float:
    """Seconds of `90s`, `15m`, `36h`, `7d`, `2w`. Raises WrongUsage naming `what`."""
    found = _SPAN.fullmatch(text.strip())
    if not found:
        raise WrongUsage(f"{what}: {text!r} is not a span of time", hint="write 90s, 15m, 36h, 7d or 2w")
    return float(found[1]) * _UNIT_S[found[2]]


def parse_moment(what: str, text: str, now: float) -> float:
    """Seconds since the epoch: a date or time (UTC unless it names its zone), or a span before `now`.

    Raises WrongUsage naming `what`.
    """
    if _SPAN.fullmatch(text.strip()):
        return now - parse_span(what, text)
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise WrongUsage(
            f"{what}: {text!r} is neither a time nor a span", hint="write 2026-01-31, 2026-01-31T14:00 or 7d"
        ) from error
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
