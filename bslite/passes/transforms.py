"""Fourier transforms as products with matrices of sines and cosines, for engines without a kernel of them."""

import numpy as np

from bslite.errors import UnsupportedError
from bslite.ops.core import Attrs
from bslite.ops.fourier import Fourier, points_of
from bslite.ops.values import Value
from bslite.passes.draft import Draft
from bslite.passes.parts import DraftTape
from bslite.spec import Array, ModelSpec, Node

MOST = 2**24  # elements of a transform's matrix: beyond, it is no product that anyone wants


def transforms_in_parts(spec: ModelSpec) -> ModelSpec:
    """All transforms as products. Raises UnsupportedError where a matrix would be too large."""
    draft = Draft(spec)
    for node in spec.nodes:
        if isinstance(node.declaration, Fourier):
            tape = DraftTape(draft, node)
            window = draft.param(node.params["window"]) if "window" in node.params else None
            _product(tape.inputs[0], node, window)
            *before, last = tape.nodes
            draft.put(Node(node.name, last.op, last.inputs, last.params, last.attrs), *before)
    return draft.spec_now()


def _product(x: Value, node: Node, window: Array | None) -> Value:
    """The points, both parts of each, moved to the last axis, times a matrix, and moved back."""
    attrs, axis, count = node.attrs, node.attrs["axis"] % len(x.shape), x.shape[node.attrs["axis"]]
    paired, made = attrs["source"] != "real", points_of(attrs)[1]
    if 4 * count * made > MOST:
        raise UnsupportedError(f"{node.name}: a transform of {attrs['length']} points, as a matrix")
    around = [a for a in range(len(x.shape) - paired) if a != axis]
    inner = [axis, len(x.shape) - 1] if paired else [axis]
    outer = tuple(x.shape[a] for a in around)
    lines = x.permute(*around, *inner).reshape(*outer, count * (2 if paired else 1))
    matrix = _matrix(attrs, count, window)
    y = lines.matmul(x.tape.constant(matrix.reshape(lines.shape[-1], -1)))
    back = [*range(axis), len(around), *range(axis, len(around))]
    if attrs["real"]:
        return y.permute(*back)
    return y.reshape(*outer, made, 2).permute(*back, len(around) + 1)


def _matrix(attrs: Attrs, count: int, window: Array | None) -> Array:
    """``[count, parts of x, points made, parts of y]``, without the axes of parts that x or y do not have."""
    length, points = attrs["length"], np.arange(count)
    parts = np.outer(points, np.arange(points_of(attrs)[1])) % length
    turns = np.exp((2j if attrs["inverse"] else -2j) * np.pi / length * parts)
    turns.real[4 * parts % (2 * length) == length] = 0
    turns.imag[2 * parts % length == 0] = 0
    weights = np.full(count, attrs["scale"])
    if attrs["source"] == "half":
        weights[(points > 0) & (2 * points < length)] *= 2
    if window is not None:
        weights = weights * window
    turns = turns * weights[:, None]
    matrix = np.stack([np.stack([turns.real, turns.imag], -1), np.stack([-turns.imag, turns.real], -1)], 1)
    matrix = matrix if attrs["source"] != "real" else matrix[:, 0]
    return np.ascontiguousarray(matrix[..., 0] if attrs["real"] else matrix)
