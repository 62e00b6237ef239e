"""Whether this machine has the memory that something takes."""

import os

from bslite.errors import EngineError


def check_room(size: float, before: str, after: str = "") -> None:
    """EngineError if the machine has fewer than ``size`` bytes of memory, its message between two texts."""
    try:
        have = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return  # this system does not say
    if size > have:
        raise EngineError(f"{before} {size / 2**30:,.1f} GB{after}; the machine has {have / 2**30:,.1f} GB")
