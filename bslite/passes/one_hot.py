"""Rule: a one-hot vector times a matrix picks a row of it."""

import numpy as np

from bslite.passes.draft import Draft
from bslite.spec import Array, Node


def one_hot_product(draft: Draft, node: Node) -> bool:
    """``one_hot(i) @ matrix`` as row i of the matrix; an index out of range picks a row of zeros.

    A gather has no such row, so the table has two copies of the matrix with a row of zeros behind the first
    and in front of the second; the index is held within those. Negative ones count from the end of both.
    """
    hot = draft.nodes.get(node.inputs[0])
    matrix = _matrix(draft, node)
    if hot is None or hot.op != "one_hot" or matrix is None or not np.isfinite(matrix).all():
        return False
    attrs = hot.attrs
    rank = len(draft.shape(hot.name))
    if attrs["axis"] % rank != rank - 1 or attrs["strict"] or (attrs["on"], attrs["off"]) != (1.0, 0.0):
        return False
    indices, depth = hot.inputs[0], attrs["depth"]
    if attrs["to"] != "float32":
        return False
    bias = (
        draft.param(node.params["bias"]) if "bias" in node.params else np.zeros(matrix.shape[1], np.float32)
    )
    rows = matrix + bias
    table = np.concatenate([rows, bias[None], bias[None], rows])
    whole = draft.dtypes[indices]
    arrays = {"table": table, "most": np.array(depth, whole), "least": np.array(-depth - 1, whole)}
    keys = {part: f"{node.name}/{part}" for part in arrays}
    draft.params |= {keys[part]: array for part, array in arrays.items()}
    draft.put(
        Node(node.name, "gather", (keys["table"], f"{node.name}/row"), attrs={"axis": 0}),
        *(Node(key, "constant", params={"value": key}) for key in keys.values()),
        Node(f"{node.name}/below", "minimum", (indices, keys["most"])),
        Node(f"{node.name}/row", "maximum", (f"{node.name}/below", keys["least"])),
    )
    return True


def _matrix(draft: Draft, node: Node) -> Array | None:
    """What the node multiplies with, ``[depth, K]``."""
    if node.op == "linear":
        return draft.param(node.params["weight"]).T
    matrix = draft.constant(node.inputs[1])
    return matrix if matrix is not None and matrix.ndim == 2 else None
