"""Which input lines make up an output line of a resized axis."""

from collections.abc import Sequence
from typing import NamedTuple


class Tap(NamedTuple):
    """One input line and its weight."""

    line: int
    weight: float


#: For each output line its taps, equally many.
Taps = Sequence[Sequence[Tap]]
