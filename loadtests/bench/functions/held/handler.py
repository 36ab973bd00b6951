"""Imports numpy and parts of scipy, and stays busy for as long as it is asked to."""

import os
import time
from typing import Any

import numpy  # type: ignore[import-not-found,import-untyped,unused-ignore]  # noqa: F401
import scipy.linalg  # type: ignore[import-not-found,import-untyped,unused-ignore]  # noqa: F401


def main(event: Any, context: Any) -> dict[str, int]:
    """`{"sleep_s"}` -> the worker's process."""
    time.sleep(float(event["sleep_s"]))
    return {"pid": os.getpid()}
