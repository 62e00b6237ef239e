"""The settings of attention kernels that both targets share."""

from enum import IntEnum


class Mask(IntEnum):
    """How a mask acts on the scores."""

    NONE = 0
    ADDED = 1  # float32
    ALLOWED = 2  # bool: true where a key takes part
