"""A product as launches: the batch-reduce GEMM, or that of few rows, and the joining of sums taken in parts.

Convolutions, linear layers and matrix products all end here; they differ in what a row of A is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bslite.errors import EngineError
from bslite.passes import Layer
from bslite.plan.core.views import View, size_of
from bslite.plan.cuda.gemm.tiles import FEW, Choice, Problem, choose, choose_groups
from bslite.plan.cuda.launch import MOST_ELEMENTS, CudaBuilder, untyped
from bslite.plan.shared.activation import activation

THREADS = 256
#: The kernel's numbers that count floats, so that pairs halve them.
STRIDES = (
    "terms", "chunk", "depth", "x_outer", "x_inner", "w_outer", "w_inner", "y_outer", "y_inner", "y_split",
    "x_row", "w_row", "y_row", "r_row", "x_image", "x_plane", "x_line", "y_image", "y_plane", "y_line",
    "r_image", "r_plane", "r_line", "gate_image",
)  # fmt: skip
#: What there is besides: of a product without windows.
NUMBERS = dict.fromkeys(STRIDES, 0) | {
    "inner": 1, "bias_inner": 0, "planes": 1, "lines": 1, "pixels": 1,
    "start_d": 0, "start_h": 0, "start_w": 0, "step_d": 1, "step_h": 1, "step_w": 1,
    "have_d": 1, "have_h": 1, "have_w": 1, "taps_h": 1, "taps_w": 1, "next_d": 1, "next_h": 1, "next_w": 1,
}  # fmt: skip


@dataclass(frozen=True)
class Before:
    """What the kernel does to A's elements on the way in (`kernels.cuda.gemm.prologue`).

    ``kind`` says what; ``function``, ``a`` and ``b`` are the activation and its parameters; ``scale`` and
    ``shift`` are where the numbers per channel lie, ``gate_image`` elements apart from image to image.
    ``slots``: issue slots of an SM per element.
    """

    kind: str
    function: str
    a: float
    b: float
    scale: tuple[str, int]
    shift: tuple[str, int] | None = None
    gate_image: int = 0
    slots: float = 0.0


@dataclass
class Product:
    """``batch`` products of A ``[rows, terms]`` by w ``[cols, terms]``, transposed; all strides in floats.

    ``x``, ``w``, ``y`` are (buffer or constant, first element) of the first product's A, weights and result;
    ``numbers`` are the kernel's, as far as they are not 0 (see `kernels.cuda.gemm.gemm`). ``reads`` and
    ``writes`` are the views that are touched. ``apart``: sums in parts are left so, for the caller to join.
    ``library``: the call of torch's that makes the same of the same operands.
    """

    rows: int
    cols: int
    terms: int
    x: tuple[str, int]
    w: tuple[str, int]
    y: tuple[str, int]
    numbers: Mapping[str, int]
    reads: Sequence[View]
    writes: Sequence[View]
    batch: int = 1
    window: int = 0
    across: int = 0
    scatter: int = 0
    residual: tuple[str, int] | None = None
    bias: str | None = None
    apart: bool = False
    before: Before | None = None
    library: Mapping[str, Any] = field(default_factory=dict)


def append(b: CudaBuilder, layer: Layer, p: Product) -> View | None:
    """Append the launches of a product, with bias, residual and the layer's activation in the last store.

    The sums, ``[parts, batch * rows * cols]``, where they were taken in parts and are left ``apart``.
    """
    if not p.rows * p.cols * p.batch:
        return None
    function, act_a, act_b = activation(layer.activation)
    numbers: dict[str, Any] = {
        **NUMBERS, "rows": p.rows, "cols": p.cols, "terms": p.terms, "chunk": p.terms, **p.numbers,
    }  # fmt: skip
    if p.before is not None:
        numbers["gate_image"] = p.before.gate_image
    check_sizes(b, p)
    cell = 2 if _even(b, p, numbers) else 1
    read = sum(4 * size_of(v.shape) for v in (*p.reads, *p.writes))
    slots = cell * p.before.slots if p.before is not None else 0.0
    problem = Problem(p.rows, p.cols, p.terms, p.batch, cell, read + 4 * p.cols * p.terms, slots)
    ends = {"function": function, "a": act_a, "b": act_b}
    first = len(b.steps)
    few = p.rows <= FEW and p.batch == 1 and not (p.window or p.across or p.scatter or p.before)
    if few:
        apart = _few_rows(b, p, problem, numbers, ends)
    else:
        apart = _tiled(b, p, choose(problem, b.machine), cell, numbers, ends)
    if p.library:
        b.steps[first].library = {**p.library, "steps": len(b.steps) - first, **ends}
    return apart


def _tiled(
    b: CudaBuilder, p: Product, choice: Choice, cell: int, numbers: dict[str, Any], ends: Mapping[str, Any]
) -> View | None:
    """Append the batch-reduce GEMM, and the join where sums are in parts; as `append`."""
    tile, parts = choice.tile, choice.parts
    col_tiles = -(-p.cols // tile.cols)
    grid = (col_tiles * -(-p.rows // tile.rows), p.batch, parts)
    variant = {
        "tile": tile.constants, "window": p.window, "across": p.across, "scatter": p.scatter,
        "bias": int(p.bias is not None), "residual": int(p.residual is not None), "code": ends["function"],
        "before": p.before.kind if p.before else "none",
        "before_code": p.before.function if p.before else "identity",
    }  # fmt: skip
    joining = b.machine.launch if parts > 1 else 0.0  # a launch with a price of its own
    own = {**numbers, "seconds": choice.seconds - joining}
    y, writes, reads = p.y, list(p.writes), list(p.reads)
    if parts > 1:
        memory = parts_of(b, p, parts)
        y, writes = (memory.buffer, 0), [memory]
        variant |= {"scatter": 0, "bias": 0, "residual": 0, "code": "identity"}
        inner = own["inner"]
        own |= {
            "chunk": choice.chunk, "y_row": p.cols, "y_inner": p.rows * p.cols,
            "y_outer": inner * p.rows * p.cols, "y_split": p.batch * p.rows * p.cols, "bias_inner": 0,
        }  # fmt: skip
    scalars = {k: v // cell if k in STRIDES else v for k, v in own.items()}
    operands = {"x": p.x, "w": p.w, "biases": (p.bias, 0) if p.bias else p.w, "r": p.residual or y, "y": y}
    operands |= {"scale": p.before.scale if p.before else p.x}
    operands |= {"shift": (p.before.shift if p.before else None) or operands["scale"]}
    scalars |= {"col_tiles": col_tiles, "a": ends["a"], "b": ends["b"]}
    scalars |= {"before_a": p.before.a if p.before else 0.0, "before_b": p.before.b if p.before else 0.0}
    untyped(
        b,
        "gemm_pairs" if cell == 2 else "gemm",
        variant,
        grid,
        (tile.threads,),
        scalars,
        operands,
        reads,
        writes,
    )
    if parts > 1 and not p.apart:
        join(b, p, memory, parts, numbers, ends)
    return memory if parts > 1 and p.apart else None


def _few_rows(
    b: CudaBuilder, p: Product, problem: Problem, numbers: Mapping[str, Any], ends: Mapping[str, Any]
) -> View | None:
    """Append the product of few rows, and the join where sums are in parts or there is a residual: whatever
    follows it, a product has the same bits. As `append`.
    """
    cell = 2 if in_pairs(b, (p.x, p.w), (numbers["x_row"], numbers["w_row"], p.terms)) else 1
    g = choose_groups(Problem(p.rows, p.cols, p.terms, 1, cell, problem.memory_bytes), b.machine)
    joined = g.parts > 1 or p.residual is not None
    variant = {
        "rows": g.rows, "outputs": g.outputs, "across": g.across, "threads": g.threads,
        "bias": int(p.bias is not None), "code": ends["function"],
    }  # fmt: skip
    y, writes, y_row, y_split = p.y, list(p.writes), numbers["y_row"], 0
    if joined:
        memory = parts_of(b, p, g.parts)
        y, writes, y_row, y_split = (memory.buffer, 0), [memory], p.cols, p.rows * p.cols
        variant |= {"bias": 0, "code": "identity"}
    scalars = {
        "rows_in": p.rows, "cols": p.cols, "terms": p.terms // cell, "chunk": g.chunk // cell,
        "x_row": numbers["x_row"] // cell, "w_row": numbers["w_row"] // cell,
        "y_row": y_row, "y_split": y_split,
        "a": ends["a"], "b": ends["b"],
    }  # fmt: skip
    operands = {"x": p.x, "w": p.w, "biases": (p.bias, 0) if p.bias else p.w, "y": y}
    grid = (-(-p.cols // (g.threads // g.across * g.outputs)), g.parts)
    untyped(
        b,
        "gemv_pairs" if cell == 2 else "gemv",
        variant,
        grid,
        (g.threads,),
        scalars,
        operands,
        p.reads,
        writes,
    )
    if joined and not p.apart:
        join(b, p, memory, g.parts, numbers, ends)
    return memory if g.parts > 1 and p.apart else None


def parts_of(b: CudaBuilder, p: Product, parts: int) -> View:
    """Room for all parts of all sums."""
    shape = (parts, p.batch * p.rows * p.cols)
    return View(b.buffer(size_of(shape)).name, 0, shape, (shape[1], 1))


def join(
    b: CudaBuilder, p: Product, memory: View, parts: int, numbers: Mapping[str, Any], ends: Mapping[str, Any]
) -> None:
    """Append the sum over parts."""
    count = p.batch * p.rows * p.cols
    if parts * count > MOST_ELEMENTS:
        raise EngineError(f"layer {b.layer[-1]!r}: {parts * count} elements; a kernel takes {MOST_ELEMENTS}")
    names = (
        "inner", "bias_inner", "y_outer", "y_inner", "y_row", "r_row", "planes", "lines", "pixels",
        "y_image", "y_plane", "y_line", "r_image", "r_plane", "r_line",
    )  # fmt: skip
    threads = min(THREADS, b.machine.block_threads)
    untyped(
        b, "gemm_join",
        {"scatter": p.scatter, "bias": int(p.bias is not None), "residual": int(p.residual is not None),
         "code": ends["function"]},
        (-(-count // threads),), (threads,),
        {"count": count, "splits": parts, "rows": p.rows, "cols": p.cols, "a": ends["a"], "b": ends["b"],
         **{name: numbers[name] for name in names}},
        {"parts": (memory.buffer, 0), "biases": (p.bias, 0) if p.bias else p.w, "r": p.residual or p.y,
         "y": p.y},
        [memory, *p.reads], p.writes,
    )  # fmt: skip


def _even(b: CudaBuilder, p: Product, numbers: Mapping[str, Any]) -> bool:
    """Whether all that is moved lies in pairs."""
    places = [p.x, p.w, p.y, *([p.residual] if p.residual else []), *([p.before.scale] if p.before else [])]
    return in_pairs(b, places, [p.cols, *(numbers[name] for name in STRIDES)])


def in_pairs(b: CudaBuilder, places: Sequence[tuple[str, int]], strides: Sequence[int]) -> bool:
    """Whether pairs begin on 8 bytes. A caller's own memory may begin anywhere."""
    ours = all(name not in b.buffers or b.buffers[name].kind == "arena" for name, _ in places)
    return ours and all(n % 2 == 0 for n in (*strides, *(at for _, at in places)))


def check_sizes(b: CudaBuilder, p: Product) -> None:
    """Places are computed in 32 bits."""
    for view in (*p.reads, *p.writes):
        low, high = view.extent
        if high - low > MOST_ELEMENTS:
            raise EngineError(
                f"layer {b.layer[-1]!r}: a value of {high - low} elements; a kernel takes {MOST_ELEMENTS}"
            )
