"""Training: how long a step of the others takes, bslite's being 1; one panel for each batch size."""

from typing import Any

from matplotlib.figure import Figure

from benchmarks.plot import style

TICKS = (0.25, 0.5, 0.7, 0.85, 1, 1.2, 1.4, 1.7, 2, 2.5, 3, 4, 6)


def figure(data: dict[str, Any]) -> Figure:
    """Grouped bars from 1, upwards where the other takes longer; a mark where the arithmetic's floor is."""
    return style.bars_of_batches(
        data, TICKS, lambda r: float(r["flops"]) / float(data["fma"]), lambda r: str(r["name"]),
        [data["options"]["threads"]],
        "Time of one step of training, relative to bslite: above 1, bslite is faster",
        "three times the forward pass's arithmetic, less the gradient of the input, at the rate of bslite's "
        "microkernel alone, out of L1 cache",
    )  # fmt: skip
