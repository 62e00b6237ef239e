"""The axis of a value that is innermost in memory: the channels, wherever they are (`passes/layouts.py`)."""

from bslite.plan.core.views import channel_axis

FEW = 4  # channels that are no row where they alone are reduced: lanes of another axis stand side by side


def innermost(rank: int, channels_second: bool) -> int:
    """The axis that kernels vectorise over."""
    if rank in (3, 4, 5):
        return 1 if channels_second else rank - 1
    return channel_axis(rank)
