"""What a model computes at every call because its sizes are free, and with numbers in their places does not.

Positions and masks, above all: with the sizes known they are constants.
"""

from bslite.spec import ModelSpec
from bslite.spec.table import LayerRow, layer_rows

SHARE = 1.05  # by how much more work a model may have whose sizes are free
EACH = 200_000  # about the flops in the time that an operation takes to begin
BYTE = 4  # about the flops in the time that a byte takes to move


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
    return sum(EACH + row.flops + BYTE * row.traffic for row in rows if row.op != "constant")
