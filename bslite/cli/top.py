"""Class scores for people: softmax and the largest few."""

import numpy as np
from rich.table import Table

from bslite.spec import Array


def top_classes(scores: Array, count: int = 5) -> list[tuple[int, float]]:
    """``(class index, probability)`` of the ``count`` largest of one row of scores, largest first."""
    shifted = np.exp(scores.astype(np.float64) - scores.max())
    share = shifted / shifted.sum()
    return [(int(i), float(share[i])) for i in np.argsort(-share, kind="stable")[:count]]


def top_table(columns: dict[str, Array]) -> Table:
    """The top classes and their shares, a column for each row of scores; four columns fit 80 characters."""
    table = Table("class", *columns, box=None, padding=(0, 2))
    ranked = [top_classes(scores) for scores in columns.values()]
    for rank, row in enumerate(zip(*ranked, strict=True), 1):
        table.add_row(f"no. {rank}", *(f"{index}  {100 * share:.2f} %" for index, share in row))
    return table
