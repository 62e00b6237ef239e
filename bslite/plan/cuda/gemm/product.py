"""Launches of a matrix product: the batch-reduce GEMM, or that of few rows, and the join of partial sums.

Convolutions, linear layers and matrix products all use it; they differ in what a row of A is.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bslite.arithmetic import Precision
from bslite.errors import EngineError
from bslite.kernels.contracts.activation import IDENTITY, Activation
from bslite.kernels.contracts.cuda.gemm import (
    Gemm,
    GemmPairs,
    GemmVariant,
    Gemv,
    GemvPairs,
    GemvVariant,
    Join,
    JoinVariant,
    Matrices,
    Outputs,
    Windows,
    even,
    in_cells,
)
from bslite.kernels.contracts.record import Operand
from bslite.passes import Layer
from bslite.plan.core.views import View, size_of
from bslite.plan.cuda.gemm.tiles import FEW, Choice, Problem, choose, choose_groups
from bslite.plan.cuda.launch import MOST_ELEMENTS, CudaBuilder, launch
from bslite.plan.cuda.library import LibraryCall
from bslite.plan.shared.activation import activation

THREADS = 256
ONE, NO_WINDOWS = Matrices(), Windows()


@dataclass(frozen=True)
class Before:
    """The prologue that A's elements pass through on load (`kernels.cuda.gemm.prologue`).

    ``kind``: `AFFINE` or `GATE` of the contract; then the activation, the places of per-channel numbers and,
    for a gate, the stride between images. ``slots``: issue slots per element.
    """

    kind: str
    activation: Activation
    scale: Operand
    shift: Operand
    gate_image: int = 0
    slots: float = 0.0


@dataclass
class Product:
    """``batch`` products of A ``[rows, terms]`` and w ``[cols, terms]`` transposed; strides in floats.

    ``x``, ``w`` and ``y`` are where A, the weights and the result of the first product begin. ``reads`` and
    ``writes`` are the views that the launch touches. ``windows`` is the number of axes that the windows move
    along, where A's rows are windows. ``apart`` leaves partial sums for the caller to join. ``library`` is
    the torch call that computes the same result from the same operands.
    """

    rows: int
    cols: int
    terms: int
    x: Operand
    w: Operand
    y: Operand
    x_row: int
    w_row: int
    outputs: Outputs
    reads: Sequence[View]
    writes: Sequence[View]
    batch: int = 1
    matrices: Matrices = ONE
    windows: Windows = NO_WINDOWS
    axes: int = 0
    across: int = 0
    scatter: int = 0
    residual: Operand | None = None
    bias: str | None = None
    apart: bool = False
    before: Before | None = None
    library: LibraryCall | None = None

    @property
    def biases(self) -> Operand:
        """The bias operand; without a bias, the weights fill the unused field."""
        return self.w if self.bias is None else Operand(self.bias, 0)

    @property
    def count(self) -> int:
        """The number of elements of the result."""
        return self.batch * self.rows * self.cols


def append(b: CudaBuilder, layer: Layer, p: Product) -> View | None:
    """Append the launches of a product, with bias, residual and the layer's activation in the last store.

    Returns the partial sums, ``[parts, batch * rows * cols]``, if there are any and they are left ``apart``.
    """
    if not p.count:
        return None
    act = activation(layer.activation)
    _check_sizes(b, p)
    record = _record(p, p.y, p.outputs, act)
    cell = 2 if _even(p, record) else 1
    read = sum(4 * size_of(v.shape) for v in (*p.reads, *p.writes))
    slots = cell * p.before.slots if p.before is not None else 0.0
    problem = Problem(p.rows, p.cols, p.terms, p.batch, cell, read + 4 * p.cols * p.terms, slots)
    first = len(b.steps)
    few = p.rows <= FEW and p.batch == 1 and not (p.axes or p.across or p.scatter or p.before)
    if few:
        apart = _few_rows(b, p, problem, act)
    else:
        apart = _tiled(b, p, choose(problem, b.machine, b.tuning), cell, act)
    if p.library is not None and b.tuning.precision is not Precision.IEEE:  # cuDNN's ways are its own
        b.steps[first].library = replace(p.library, steps=len(b.steps) - first, activation=act)
    return apart


def _record(p: Product, y: Operand, outputs: Outputs, act: Activation) -> Gemm:
    """Return the record of a product with whole sums, in floats."""
    before = p.before or Before("", IDENTITY, p.x, p.x)
    return Gemm(
        p.x, p.w, p.biases, p.residual or y, y, before.scale, before.shift, p.rows, p.cols, p.terms,
        chunk=p.terms, col_tiles=0, matrices=p.matrices, y_split=0, x_row=p.x_row, w_row=p.w_row,
        windows=p.windows, outputs=outputs, a=act.a, b=act.b, gate_image=before.gate_image,
        before_a=before.activation.a, before_b=before.activation.b,
    )  # fmt: skip


def _tiled(b: CudaBuilder, p: Product, choice: Choice, cell: int, act: Activation) -> View | None:
    """Append the batch-reduce GEMM and, for sums in parts, the join; returns what `append` returns."""
    tile, parts = choice.tile, choice.parts
    col_tiles = -(-p.cols // tile.cols)
    grid = (col_tiles * -(-p.rows // tile.rows), p.batch, parts)
    variant = GemmVariant(
        tile.constants, p.axes, p.across, p.scatter, int(p.bias is not None), int(p.residual is not None),
        act.function, tensor=tile.tensor,
    )  # fmt: skip
    if p.before is not None:
        variant = replace(variant, before=p.before.kind, before_code=p.before.activation.function)
    joining = b.machine.launch if parts > 1 else 0.0  # the join is a launch with a price of its own
    y, outputs, writes, memory = p.y, p.outputs, list(p.writes), None
    matrices, y_split = p.matrices, 0
    if parts > 1:
        memory = b.dense((parts, p.count))
        y, writes = memory.start, [memory]
        variant = replace(variant, scatter=0, bias=0, residual=0, code="identity")
        one, matrices = p.rows * p.cols, replace(matrices, bias_inner=0)
        outputs = replace(outputs, y_row=p.cols, y_inner=one, y_outer=matrices.inner * one)
        y_split = p.count
    record = replace(
        _record(p, y, outputs, act), chunk=choice.chunk if parts > 1 else p.terms, col_tiles=col_tiles,
        matrices=matrices, y_split=y_split,
    )  # fmt: skip
    if cell == 2:
        record = GemmPairs(**vars(in_cells(record, cell)))
    launch(b, record, variant, grid, (tile.threads,), p.reads, writes, choice.seconds - joining)
    if memory is not None and not p.apart:
        _join(b, p, memory, parts, act)
    return memory if p.apart else None


def _few_rows(b: CudaBuilder, p: Product, problem: Problem, act: Activation) -> View | None:
    """Append the product of few rows; a join follows if sums are in parts or there is a residual.

    A product therefore has the same bits whatever follows it. Returns what `append` returns.
    """
    cell = 2 if in_pairs((p.x, p.w), (p.x_row, p.w_row, p.terms)) else 1
    g = choose_groups(Problem(p.rows, p.cols, p.terms, 1, cell, problem.memory_bytes), b.machine)
    joined = g.parts > 1 or p.residual is not None
    variant = GemvVariant(g.rows, g.outputs, g.across, g.threads, int(p.bias is not None), act.function)
    y, writes, y_row, y_split = p.y, list(p.writes), p.outputs.y_row, 0
    if joined:
        memory = b.dense((g.parts, p.count))
        y, writes, y_row, y_split = memory.start, [memory], p.cols, p.rows * p.cols
        variant = replace(variant, bias=0, code="identity")
    record = in_cells(
        Gemv(
            p.x, p.w, p.biases, y, p.rows, p.cols, p.terms, g.chunk, p.x_row, p.w_row, y_row, y_split, act.a,
            act.b,
        ),
        cell,
    )  # fmt: skip
    grid = (-(-p.cols // (g.threads // g.across * g.outputs)), g.parts)
    kind = GemvPairs if cell == 2 else Gemv
    launch(b, kind(**vars(record)), variant, grid, (g.threads,), p.reads, writes)
    if joined and not p.apart:
        _join(b, p, memory, g.parts, act)
    return memory if g.parts > 1 and p.apart else None


def _join(b: CudaBuilder, p: Product, memory: View, parts: int, act: Activation) -> None:
    """Append the launch that adds up the parts of each sum."""
    if parts * p.count > MOST_ELEMENTS:
        raise EngineError(
            f"layer {b.layer[-1]!r}: {parts * p.count} elements; a kernel takes {MOST_ELEMENTS}"
        )
    threads = min(THREADS, b.machine.block_threads)
    variant = JoinVariant(p.scatter, int(p.bias is not None), int(p.residual is not None), act.function)
    record = Join(
        memory.start, p.biases, p.residual or p.y, p.y, p.count, parts, p.rows, p.cols, p.matrices.inner,
        p.matrices.bias_inner, p.outputs, act.a, act.b,
    )  # fmt: skip
    launch(b, record, variant, (-(-p.count // threads),), (threads,), [memory, *p.reads], p.writes)


def _even(p: Product, record: Gemm) -> bool:
    """Return whether everything that the kernel moves lies in pairs of floats."""
    places = [p.x, p.w, p.y, *([p.residual] if p.residual else []), *([p.before.scale] if p.before else [])]
    return in_pairs(places, [p.cols]) and even(record)


def in_pairs(places: Sequence[Operand], strides: Sequence[int]) -> bool:
    """Return whether pairs begin on multiples of 8 bytes, as all buffers do."""
    return all(n % 2 == 0 for n in (*strides, *(at for _, at in places)))


def _check_sizes(b: CudaBuilder, p: Product) -> None:
    """Raise EngineError if places exceed the 32 bits that the kernels compute them in."""
    for view in (*p.reads, *p.writes):
        low, high = view.extent
        if high - low > MOST_ELEMENTS:
            raise EngineError(
                f"layer {b.layer[-1]!r}: a value of {high - low} elements; a kernel takes {MOST_ELEMENTS}"
            )
