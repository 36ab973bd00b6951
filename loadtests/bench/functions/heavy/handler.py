"""Imports numpy and parts of scipy; solves a small system; on request stays busy for a while."""

import os
import sys
import time
from typing import Any

import numpy  # type: ignore[import-not-found,import-untyped,unused-ignore]
import scipy.linalg  # type: ignore[import-not-found,import-untyped,unused-ignore]
import scipy.optimize  # type: ignore[import-not-found,import-untyped,unused-ignore]
import scipy.stats  # type: ignore[import-not-found,import-untyped,unused-ignore]


def main(event: Any, context: Any) -> dict[str, Any]:
    """`{"sleep_s"?}` -> the solution's sum, the worker's process and the interpreter it came from."""
    time.sleep(float((event or {}).get("sleep_s", 0)))
    matrix = numpy.diag([1.0, 2.0, 4.0])
    solution = scipy.linalg.solve(matrix, numpy.ones(3))
    return {"sum": float(solution.sum()), "pid": os.getpid(), "python": sys.executable}
