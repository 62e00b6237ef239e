"""Depth-first on a GPU: the choice of layer runs that one launch of the stack kernel computes.

A chain is a run of layers in which each layer is the only reader of the one before. The price (`stack.price`)
decides how deep a stack pays: every cut writes and reads an image once more; every further layer in a launch
computes more columns and rows at the edges of a thread's region and holds more state in its registers. A
dynamic programme over the chain picks the cuts.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bslite.ops import Shape
from bslite.passes import Layer
from bslite.plan.core.lowering import CUDA
from bslite.plan.cuda.gemm.prologues import Prologue
from bslite.plan.cuda.launch import CudaBuilder
from bslite.plan.cuda.ops.prologue import lower_together
from bslite.plan.cuda.stack.price import STREAMED, Cut
from bslite.plan.cuda.stack.stages import Piece, piece_of
from bslite.plan.cuda.stack.steps import cut_of, stack_step

LONGEST = 16  # layers of a stack, at most


@dataclass(frozen=True)
class Stack:
    """The layers of one launch, starting from the value ``value``; it runs in the last layer's place."""

    pieces: tuple[Piece, ...]
    value: str
    cut: Cut

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its layers."""
        return tuple(p.layer.name for p in self.pieces)


def choose_stacks(b: CudaBuilder, layers: Sequence[Layer], outputs: Iterable[str]) -> list[Stack]:
    """Return disjoint stacks of at least two layers, the cheapest by price."""
    chains = [chain for chain in _chains(b, layers, set(outputs)) if len(chain) > 1]
    return [stack for chain in chains for stack in _cut_chain(b, chain) if len(stack.pieces) > 1]


def _chains(b: CudaBuilder, layers: Sequence[Layer], kept: set[str]) -> list[list[tuple[Piece, str]]]:
    """Return the runs of layers that may be stacked, each with the value it starts from."""
    readers: dict[str, list[Layer]] = {}
    for layer in layers:
        for name in layer.inputs:
            readers.setdefault(name, []).append(layer)
    place = {layer.name: i for i, layer in enumerate(layers)}
    taken: set[str] = set()
    chains = []
    for layer in layers:
        if layer.name in taken:
            continue
        value = _main_input(b, layer)
        piece = piece_of(layer, value, b.spec, b.shapes) if value else None
        chain: list[tuple[Piece, str]] = []
        while piece is not None and value is not None:
            chain.append((piece, value))
            taken.add(piece.layer.name)
            value = piece.layer.name
            following = readers.get(value, [])
            if value in kept or len(following) != 1 or following[0].name in taken:
                break
            piece = piece_of(following[0], value, b.spec, b.shapes)
            # Its operands from outside must not depend on the chain.
            if piece is not None and any(_needs(layers, place, o, chain) for o in piece.outside):
                piece = None
        if chain:
            chains.append(chain)
    return chains


def _needs(
    layers: Sequence[Layer], place: Mapping[str, int], name: str, chain: Sequence[tuple[Piece, str]]
) -> bool:
    """Return whether the value ``name`` depends on a value of the chain, its inputs excepted."""
    inside = {piece.layer.name for piece, _ in chain}
    waiting, seen = [name], set()
    while waiting:
        value = waiting.pop()
        if value in inside:
            return True
        if value in place and value not in seen:
            seen.add(value)
            waiting += layers[place[value]].inputs
    return False


def _main_input(b: CudaBuilder, layer: Layer) -> str | None:
    """Return the value that a stack from this layer on starts from: of two, one of the result's shape."""
    shape: Shape = b.shapes[layer.name]
    names = layer.node.inputs
    if len(names) == 1:
        return names[0]
    return next((n for n in names if b.shapes[n] == shape and names.count(n) == 1), None)


def _cut_chain(b: CudaBuilder, chain: Sequence[tuple[Piece, str]]) -> list[Stack]:
    """Return the chain as stacks and single layers of least total time."""
    best: list[float] = [0.0]
    picks: list[Stack] = []
    for stop in range(1, len(chain) + 1):
        cheapest: tuple[float, Stack | None] = (float("inf"), None)
        for start in range(stop - 1, max(-1, stop - 1 - LONGEST), -1):
            pieces, value = tuple(p for p, _ in chain[start:stop]), chain[start][1]
            cut = cut_of(b, pieces, value)
            if cut is None:
                if stop - start > 1:
                    break  # further layers need at least as many registers
                cut = Cut(1, 1, 1, 0, _alone(b, pieces[0]), 0.0, 0.0)
            if best[start] + cut.seconds < cheapest[0]:
                cheapest = best[start] + cut.seconds, Stack(pieces, value, cut)
        assert cheapest[1] is not None
        best.append(cheapest[0])
        picks.append(cheapest[1])
    found, stop = [], len(chain)
    while stop > 0:
        found.append(picks[stop - 1])
        stop -= len(picks[stop - 1].pieces)
    return found[::-1]


def _alone(b: CudaBuilder, piece: Piece) -> float:
    """Return the seconds of a layer that only its own lowering can compute."""
    names = (*piece.layer.inputs, piece.layer.name)
    moved = 4.0 * sum(_size(b.shapes[name]) for name in names)
    return moved / (b.machine.memory_bandwidth * STREAMED) + b.machine.launch


def _size(shape: Shape) -> float:
    total = 1.0
    for n in shape:
        total *= n
    return total


def lower_stacked(
    b: CudaBuilder, layers: Sequence[Layer], stacks: Sequence[Stack], prologues: Sequence[Prologue]
) -> None:
    """Append the launches of all layers.

    A stack is one launch in the place of its last layer; a prologue is part of its convolution.
    """
    ends = {stack.names[-1]: stack for stack in stacks}
    pairs = {prologue.then.name: prologue for prologue in prologues}
    inside = {name for stack in stacks for name in stack.names} | {p.first.name for p in prologues}
    for layer in layers:
        if layer.name in ends:
            stack = ends[layer.name]
            b.layer = tuple(m for piece in stack.pieces for m in piece.layer.members)
            stack_step(b, stack.pieces, stack.value, stack.cut)
        elif layer.name in pairs:
            lower_together(b, pairs[layer.name])
        elif layer.name not in inside:
            b.layer = layer.members
            CUDA[layer.node.op](b, layer)
