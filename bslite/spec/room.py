"""Whether this machine has the memory that something takes."""

import os

from bslite.errors import EngineError


def check_room(size: float, what: str, purpose: str = "") -> None:
    """EngineError if the machine has fewer than the ``size`` bytes that ``what`` takes for a ``purpose``."""
    try:
        have = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return  # this system does not say
    if size > have:
        raise EngineError(
            f"{what} takes {size / 2**30:,.1f} GB{purpose}; the machine has {have / 2**30:,.1f} GB"
        )
