"""What both targets' attention kernels are told in the same way."""

from __future__ import annotations

from enum import IntEnum


class Mask(IntEnum):
    """What a mask does to the scores."""

    NONE = 0
    ADDED = 1  # float32
    ALLOWED = 2  # bool: true where a key takes part
