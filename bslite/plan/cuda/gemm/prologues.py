"""Layers that run as the prologue of the convolution after them: detection, and the choice by price.

A batch norm or a gate (the product of squeeze-and-excitation) read by one dense convolution alone needs no
launch of its own, and its result need not be in memory: the convolution's kernel computes it from that
layer's inputs (`kernels.cuda.gemm.prologue`). The kernel recomputes it for every tile of columns and, for a
filter wider than a pixel, for every tap. Each pair is therefore priced together and apart.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bslite.kernels.contracts.cuda.gemm import AFFINE, GATE
from bslite.passes import Layer
from bslite.plan.core.views import size_of
from bslite.plan.cuda.gemm.tiles import FEW, Problem, choose
from bslite.plan.cuda.launch import CudaBuilder
from bslite.plan.cuda.stack.price import FUNCTION, OTHER_FUNCTION, STREAMED
from bslite.plan.cuda.stack.stages import piece_of
from bslite.plan.cuda.stack.steps import cut_of
from bslite.plan.shared.activation import activation
from bslite.plan.shared.prologue import gated

SELECTED = 1.0  # slots per element to select zero for elements outside the input
FACTORS = 2.0  # slots per element for a channel's numbers: all rows of a thread share a slice's
GATED = 4.5  # slots per element for a gate and its place


@dataclass(frozen=True)
class Prologue:
    """The layer ``first``, computed in the launch of the convolution ``then``, which then reads ``value``.

    ``kind`` is `AFFINE` or `GATE`; ``gate`` is the value that ``value`` is multiplied by.
    """

    kind: str
    first: Layer
    then: Layer
    value: str
    gate: str | None = None

    @property
    def members(self) -> tuple[str, ...]:
        """All nodes that the launch computes."""
        return (*self.first.members, *self.then.members)


def choose_prologues(
    b: CudaBuilder, layers: Sequence[Layer], outputs: Iterable[str], stacked: set[str]
) -> list[Prologue]:
    """Return the pairs that are cheaper in one launch. ``stacked``: layers that are already in stacks."""
    readers: dict[str, int] = dict.fromkeys(outputs, 2)
    for layer in layers:
        for name in layer.inputs:
            readers[name] = readers.get(name, 0) + 1
    made_by = {layer.name: layer for layer in layers}
    found = []
    for then in layers:
        first = made_by.get(then.node.inputs[0]) if _takes(b, then) else None
        if first is None or readers[first.name] != 1 or first.name in stacked:
            continue
        prologue = prologue_of(b, first, then)
        if prologue is None:
            continue
        if b.tuning.prologues or seconds_together(b, prologue) < seconds_apart(b, prologue):
            found.append(prologue)
    return found


def _takes(b: CudaBuilder, layer: Layer) -> bool:
    """Return whether the layer's kernel has prologues: a dense convolution of more than a few rows."""
    node = layer.node
    if node.op not in ("conv1d", "conv2d", "conv3d") or node.attrs["groups"] != 1:
        return False
    shape = b.shapes[node.name]
    return size_of(shape) > 0 and size_of(shape) // shape[1] > FEW


def prologue_of(b: CudaBuilder, first: Layer, then: Layer) -> Prologue | None:
    """Return ``first`` as a prologue of the convolution ``then``, or None if it cannot be one."""
    node = first.node
    floats = all(b.spec.dtypes[name] == "float32" for name in (*first.inputs, first.name))
    if not floats or first.affine is not None or first.residual is not None:
        return None
    if node.op == "batch_norm":
        return Prologue(AFFINE, first, then, node.inputs[0])
    return _gate(b, first, then)


def _gate(b: CudaBuilder, first: Layer, then: Layer) -> Prologue | None:
    """Return a product with one number per channel, or per image and channel, as the prologue of a pointwise
    convolution. For wider filters a thread would need more registers than it has.
    """
    taps = b.spec.param_shapes(then.node)["weight"][2:]
    if size_of(tuple(taps)) > 1 or any(then.node.attrs["padding"]) or set(then.node.attrs["stride"]) != {1}:
        return None
    found = gated(first, b.shapes)
    return Prologue(GATE, first, then, *found) if found else None


def _function_slots(layer: Layer) -> float:
    """Return the issue slots of a layer's activation for one element."""
    name = activation(layer.activation)[0]
    return 0.0 if name == "identity" else FUNCTION.get(name, OTHER_FUNCTION)


def element_slots(prologue: Prologue) -> float:
    """Return the issue slots of a prologue for one element."""
    return _function_slots(prologue.first) + SELECTED + 1.0 + (GATED if prologue.kind == GATE else FACTORS)


def _product(b: CudaBuilder, then: Layer, read: int, before: float = 0.0) -> Problem:
    """Return a convolution as a product; ``read``: elements that it reads besides its weights."""
    cols, depth, *taps = b.spec.param_shapes(then.node)["weight"]
    made = size_of(b.shapes[then.name])
    terms = depth * size_of(tuple(taps))
    moved = read + made * (1 + (then.residual is not None)) + cols * terms
    cell = 1 if cols % 2 or depth % 2 else 2
    return Problem(made // cols, cols, terms, 1, cell, 4 * moved, cell * before)


def seconds_together(b: CudaBuilder, prologue: Prologue) -> float:
    """Return the predicted seconds of one launch for both layers."""
    read = size_of(b.shapes[prologue.value])
    product = _product(b, prologue.then, read, element_slots(prologue))
    return choose(product, b.machine, b.tuning).seconds


def seconds_apart(b: CudaBuilder, prologue: Prologue) -> float:
    """Return the predicted seconds of the two layers apart."""
    first, made = prologue.first, size_of(b.shapes[prologue.first.name])
    piece = piece_of(first, prologue.value, b.spec, b.shapes)
    cut = cut_of(b, [piece], prologue.value) if piece is not None else None
    if cut is None:
        moved = 4.0 * (size_of(b.shapes[prologue.value]) + made)
        alone = moved / (b.machine.memory_bandwidth * STREAMED) + b.machine.launch
    else:
        alone = cut.seconds
    product = _product(b, prologue.then, made)
    return alone + choose(product, b.machine, b.tuning).seconds
