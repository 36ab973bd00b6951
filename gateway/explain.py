"""The latest decisions about each function, with their reasons, for `samovar explain`. In memory only, bounded."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass(frozen=True)
class ExplainParams:
    """Bounds of remembering."""

    decisions_max: int = 500
    #: Functions remembered; the one that nothing happened to for longest is forgotten first.
    functions_max: int = 2_000
    reason_chars_max: int = 2_000


class Decision(NamedTuple):
    """One decision. `at`: seconds since the epoch; `worker` empty when it was not about one."""

    at: float
    revision: int
    decision: str
    reason: str
    worker: str


class Explanations:
    """A ring of decisions for each function."""

    def __init__(self, params: ExplainParams = ExplainParams()) -> None:
        self._params = params
        self._rings: OrderedDict[tuple[str, str], deque[Decision]] = OrderedDict()

    def record(
        self, namespace: str, function: str, revision: int, decision: str, reason: str, worker: str, at: float
    ) -> None:
        """Remember one decision."""
        key = (namespace, function)
        ring = self._rings.get(key)
        if ring is None:
            ring = self._rings[key] = deque(maxlen=self._params.decisions_max)
            if len(self._rings) > self._params.functions_max:
                self._rings.popitem(last=False)
        else:
            self._rings.move_to_end(key)
        ring.append(Decision(at, revision, decision, reason[: self._params.reason_chars_max], worker))

    def recent(self, namespace: str, function: str, limit: int) -> list[dict[str, Any]]:
        """The latest decisions, newest first, as docs/api.md shows them."""
        ring = self._rings.get((namespace, function), ())
        return [entry._asdict() for entry, _ in zip(reversed(ring), range(limit), strict=False)]

    def forget(self, namespace: str, function: str) -> None:
        """The function was deleted."""
        self._rings.pop((namespace, function), None)
