"""Ops on complex numbers: a conjugate joins a product; and all of them as the nodes that they are, products
with matrices of sines and cosines and arithmetic, for engines without kernels of them.
"""

import numpy as np

from bslite.errors import UnsupportedError
from bslite.ops.complex import ComplexMul
from bslite.ops.core import Attrs
from bslite.ops.fourier import Fourier, points_of
from bslite.ops.values import Value
from bslite.passes.absorb import scale_shift
from bslite.passes.draft import Draft
from bslite.passes.parts import DraftTape
from bslite.spec import Array, ModelSpec, Node

MOST = 2**24  # elements of a transform's matrix: beyond, it is no product that anyone wants


def conjugate_into_product(draft: Draft, node: Node) -> bool:
    """A product of which one factor is a conjugate, pairs times 1 and -1, that nothing else reads."""
    for place, name in enumerate(node.inputs):
        before = draft.alone(name)
        found = scale_shift(draft, before) if before is not None and before.op == "mul" else None
        if before is None or found is None or found[1] is None:
            continue
        signs = found[1]
        if signs.shape[-1:] != (2,) or not np.array_equal(signs.reshape(-1), [1.0, -1.0]):
            continue
        if not draft.alike(found[0], before.name):
            continue
        conj = node.attrs["conj"]
        if place == 0 and conj:  # the conjugate of the product of what both are conjugates of
            continue
        draft.put(Node(node.name, node.op, (node.inputs[1 - place], found[0]), {}, {"conj": not conj}))
        return True
    return False


def complex_in_parts(spec: ModelSpec) -> ModelSpec:
    """The model without ops on complex numbers. Raises UnsupportedError where a matrix would be too large."""
    draft = Draft(spec)
    for node in spec.nodes:
        if isinstance(node.declaration, Fourier | ComplexMul):
            tape = DraftTape(draft, node)
            if isinstance(node.declaration, ComplexMul):
                _product(tape.inputs[0], tape.inputs[1], node.attrs["conj"])
            else:
                window = draft.param(node.params["window"]) if "window" in node.params else None
                if draft.fixed(node.inputs[0], [node.attrs["axis"]]) is None:
                    raise UnsupportedError(f"{node.name}: a transform, as a matrix, along a free axis")
                _transform(tape.inputs[0], node, window)
            *before, last = tape.nodes
            draft.put(Node(node.name, last.op, last.inputs, last.params, last.attrs), *before)
    return draft.spec_now()


def _product(x: Value, y: Value, conj: bool) -> Value:
    """x times the real part of y, and i times x times its imaginary one."""
    re, im = (y.op("slice", axis=-1, start=i, stop=i + 1) for i in range(2))
    turned = x.op("slice", axis=-1, start=-1, step=-1) * x.tape.constant([1.0, -1.0] if conj else [-1.0, 1.0])
    return x * re + turned * im


def _transform(x: Value, node: Node, window: Array | None) -> Value:
    """The points, both parts of each, moved to the last axis, times a matrix, and moved back. Other sizes may
    be free.
    """
    attrs, axis, count = node.attrs, node.attrs["axis"] % len(x.shape), x.shape[node.attrs["axis"]]
    paired, made = attrs["source"] != "real", points_of(attrs)[1]
    if 4 * count * made > MOST:
        raise UnsupportedError(f"{node.name}: a transform of {attrs['length']} points, as a matrix")
    around = [a for a in range(len(x.shape) - paired) if a != axis]
    inner = [axis, len(x.shape) - 1] if paired else [axis]
    outer = (0,) * len(around)  # whatever their sizes are
    lines = x.permute(*around, *inner).op("reshape", shape=(*outer, -1))
    matrix = _matrix(attrs, count, window)
    y = lines.matmul(x.tape.constant(matrix.reshape(lines.shape[-1], -1)))
    back = [*range(axis), len(around), *range(axis, len(around))]
    if attrs["real"]:
        return y.permute(*back)
    return y.op("reshape", shape=(*outer, made, 2)).permute(*back, len(around) + 1)


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
