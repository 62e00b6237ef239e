"""How much memory this machine has."""

import math
import os


def machine_memory() -> float:
    """Bytes; infinitely many where the system does not say."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (ValueError, OSError, AttributeError):
        return math.inf
