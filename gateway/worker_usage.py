"""What a worker says that a call took, believed within reason: its process runs code that is not ours."""

from __future__ import annotations

#: Run and CPU time in microseconds, peak memory in bytes.
Usage = tuple[int, int, int]

NO_USAGE: Usage = (0, 0, 0)
_MAX = 2**48


def usage_of(stats: list[int]) -> Usage:
    """The numbers at the end of an answer; zeros when they cannot be."""
    if len(stats) != 3:
        return NO_USAGE
    for number in stats:
        if type(number) is not int or not 0 <= number < _MAX:
            return NO_USAGE
    return stats[0], stats[1], stats[2]
