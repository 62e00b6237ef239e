"""What a model computes at every call because its sizes are free, and with numbers in their places does not.

Positions and masks, above all: with the sizes known they are constants.
"""

import math

from bslite.spec import ModelSpec
from bslite.spec.table import LayerRow, layer_rows

SHARE = 1.05  # by how much more work a model may have whose sizes are free
EACH = 200_000  # flops in the time that a small operation takes besides its elements
ELEMENT = 50  # flops in the time that an element of a result takes where it is not a sum of products


def little_more(free: ModelSpec, known: ModelSpec) -> bool:
    """Whether a model with free sizes computes floats by the operations of the one that knows its sizes, so
    that they have the same bits, and all together hardly more, at the sizes of ``known``.
    """
    if [n.op for n in free.nodes] == [n.op for n in known.nodes]:
        return True
    at = [i.example for i in known.inputs]
    rows, fewer = layer_rows(free, at), layer_rows(known, at)
    if _on_floats(free, rows) != _on_floats(known, fewer):
        return False
    return _work(rows) <= SHARE * _work(fewer)


def _on_floats(spec: ModelSpec, rows: list[LayerRow]) -> list[str]:
    """The operations that compute floats, and do not only move them."""
    return [row.op for row in rows if row.flops and spec.dtypes[row.name] == "float32"]


def _work(rows: list[LayerRow]) -> int:
    """About the time of all operations, in flops; constants are there already."""
    made = [row for row in rows if row.op != "constant"]
    return sum(EACH + row.flops + ELEMENT * math.prod(row.shape) for row in made)
