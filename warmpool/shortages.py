"""Who lacks workers for want of a place, in the order in which places will be given.

Revisions that need the same of a slice form a line, for what refuses the first refuses all; so trying again costs a
step for each kind of need, not one for each revision. In a line those with waiting calls come before those that only
want spare workers or a minimum.
"""

from __future__ import annotations

from collections.abc import Iterator

from warmpool.ledger import Revision
from warmpool.values import Need


class Line:
    """Revisions with the same need."""

    __slots__ = ("refusal", "spare", "urgent")

    def __init__(self) -> None:
        self.urgent: dict[Revision, None] = {}
        self.spare: dict[Revision, None] = {}
        #: Why the last try came to nothing.
        self.refusal = ""


class Shortages:
    """All lines, and the sum of what waiting calls lack where stopping idle workers could help."""

    __slots__ = ("by_calls", "lines")

    def __init__(self) -> None:
        self.lines: dict[Need, Line] = {}
        self.by_calls = 0

    def __iter__(self) -> Iterator[Revision]:
        return (revision for line in self.lines.values() for turn in (line.urgent, line.spare) for revision in turn)

    def first(self, need: Need) -> Revision | None:
        """Whose turn it is in the line for this."""
        line = self.lines.get(need)
        if line is None:
            return None
        return next(iter(line.urgent or line.spare))

    def refusal(self, revision: Revision) -> str:
        """Why the revision's line does not move."""
        return self.lines[revision.spec.need].refusal

    def put(self, revision: Revision, missing: int, by_calls: int) -> None:
        """So many workers are missing, so many of them for waiting calls; it keeps its place in the line."""
        self.by_calls += by_calls - revision.unmet_by_calls
        revision.unmet, revision.unmet_by_calls = missing, by_calls
        line = self.lines.get(revision.spec.need)
        if line is None:
            line = self.lines[revision.spec.need] = Line()
        if revision.waiting:
            line.spare.pop(revision, None)
            line.urgent[revision] = None
        elif revision not in line.urgent:
            line.spare[revision] = None

    def remove(self, revision: Revision) -> None:
        """Nothing is missing any more, or nothing may be started now."""
        if not revision.unmet:
            return
        self.by_calls -= revision.unmet_by_calls
        revision.unmet = revision.unmet_by_calls = 0
        need = revision.spec.need
        line = self.lines[need]
        line.urgent.pop(revision, None)
        line.spare.pop(revision, None)
        if not line.urgent and not line.spare:
            del self.lines[need]
