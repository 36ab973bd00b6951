"""Sleeps for a second and says which process did."""

import os
import time
from typing import Any

SLEEP_S = 1.0


def main(event: Any, context: Any) -> dict[str, int]:
    """The worker's process."""
    time.sleep(SLEEP_S)
    return {"pid": os.getpid()}
