"""Rules: a one-hot vector times a matrix picks a row of it; a function of what is picked is of the table."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from bslite.ops import INTEGERS
from bslite.passes.channels import trailing_array
from bslite.passes.draft import Draft
from bslite.reference import call
from bslite.spec import Array, Node


def one_hot_product(draft: Draft, node: Node) -> bool:
    """``one_hot(i) @ matrix`` as row i of the matrix; an index out of range picks a row of zeros.

    A gather has no such row, so the table has one behind the matrix, and the index is held within the table.
    Where negative indices count from the end, a row of zeros and the matrix follow once more.
    """
    if indices := _indices(draft, node.inputs[0]):
        drops, wraps = False, True
    elif indices := _compared(draft, node.inputs[0]):
        drops, wraps = True, False
    else:
        return False
    matrix = _matrix(draft, node)
    if matrix is None or not np.isfinite(matrix).all():
        return False
    bias = [draft.param(node.params["bias"])] if "bias" in node.params else []
    depth, whole = len(matrix), draft.dtypes[indices]
    bounds = {"most": np.array(depth, whole), "least": np.array(-depth - 1 if wraps else -1, whole)}
    keys = {part: f"{node.name}/{part}" for part in ("table", *bounds)}
    make = partial(_table, matrix, bias, wraps)
    draft.derive(keys["table"], ("one-hot rows", wraps), [matrix, *bias], make)
    draft.params |= {keys[part]: array for part, array in bounds.items()}
    new = [Node(key, "constant", params={"value": key}) for key in keys.values()]
    if drops:
        kept = (0,) * (len(draft.shape(indices)) - 1)
        new.append(Node(f"{node.name}/index", "reshape", (indices,), attrs={"shape": kept}))
        indices = new[-1].name
    new.append(Node(f"{node.name}/below", "minimum", (indices, keys["most"])))
    new.append(Node(f"{node.name}/row", "maximum", (new[-1].name, keys["least"])))
    draft.put(Node(node.name, "gather", (keys["table"], new[-1].name), attrs={"axis": 0}), *new)
    return True


def _table(matrix: Array, given: Sequence[Array], wraps: bool) -> Array:
    """The rows that a one-hot vector picks, and those for indices beyond: the bias alone."""
    bias = given[0] if given else np.zeros(matrix.shape[1], np.float32)
    rows = matrix + bias
    return np.concatenate([rows, bias[None], bias[None], rows] if wraps else [rows, bias[None]])


def _indices(draft: Draft, name: str) -> str:
    """The indices of a one-hot of ones and zeros in the last axis, or ""."""
    hot = draft.nodes.get(name)
    if hot is None or hot.op != "one_hot":
        return ""
    attrs, rank = hot.attrs, len(draft.shape(name))
    plain = (attrs["on"], attrs["off"], attrs["to"], attrs["strict"]) == (1.0, 0.0, "float32", False)
    return hot.inputs[0] if plain and attrs["axis"] % rank == rank - 1 else ""


def _compared(draft: Draft, name: str) -> str:
    """The indices ``[..., 1]`` that are compared with all numbers from zero on, as float32; or ""."""
    cast = draft.nodes.get(name)
    equal = draft.nodes.get(cast.inputs[0]) if cast is not None and cast.op == "cast" else None
    if cast is None or equal is None or equal.op != "equal" or cast.attrs["to"] != "float32":
        return ""
    for indices, other in (equal.inputs, equal.inputs[::-1]):
        numbers = draft.nodes.get(other)
        if numbers is None or numbers.op != "constant" or draft.dtypes[indices] not in INTEGERS:
            continue
        value = draft.param(numbers.params["value"])
        if value.shape[-1:] != (value.size,) or not np.array_equal(value.reshape(-1), np.arange(value.size)):
            continue
        if all(shapes[indices] == (*shapes[name][:-1], 1) for shapes in draft.shapes):
            return indices
    return ""


def _matrix(draft: Draft, node: Node) -> Array | None:
    """What the node multiplies with, ``[depth, K]``."""
    if node.op == "linear":
        return draft.param(node.params["weight"]).T
    matrix = draft.constant(node.inputs[1])
    return matrix if matrix is not None and matrix.ndim == 2 else None


def function_into_table(draft: Draft, node: Node) -> bool:
    """A function of elements that are picked from a smaller table: picked from the function of the table."""
    picked = [n for n in node.inputs if draft.constant(n) is None]
    gather = draft.alone(picked[0]) if len(picked) == 1 else None
    if gather is None or gather.op != "gather" or not draft.alike(gather.name, node.name):
        return False
    table = draft.constant(gather.inputs[0])
    if table is None or table.size > np.prod(draft.shape(node.name), dtype=np.int64):
        return False
    operands = []
    for name in node.inputs:
        constant = draft.constant(name)
        if constant is not None:
            constant = trailing_array(constant, table.shape[1:]) if gather.attrs["axis"] == 0 else None
        operands.append(table if name == gather.name else constant)
    known = [x for x in operands if x is not None]
    if len(known) < len(operands):
        return False
    key = f"{node.name}/table"
    sources = [c for n in node.inputs if (c := table if n == gather.name else draft.constant(n)) is not None]
    about = (node.op, repr(dict(node.attrs)), tuple(x.shape for x in known))
    draft.derive(key, ("function of a table", about), sources, partial(_function, node, known))
    new = Node(node.name, "gather", (key, gather.inputs[1]), attrs=gather.attrs)
    draft.put(new, Node(key, "constant", params={"value": key}))
    return True


def _function(node: Node, known: Sequence[Array]) -> Array:
    return np.asarray(call(node.op, known, {}, node.attrs, np.float64), np.float32)
