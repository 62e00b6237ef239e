"""Lowerings of arithmetic on complex numbers, pairs along a contiguous last axis."""

from collections.abc import Sequence

from bslite.kernels.contracts.cpu.complex import ComplexProduct, PairLoops, PairNorms
from bslite.kernels.contracts.cpu.rows import RowAxes
from bslite.ops import Shape
from bslite.passes import Layer
from bslite.plan.core.loops import into_items, merged_axes, padded, split_for_items
from bslite.plan.core.lowering import CPU
from bslite.plan.core.views import View, size_of
from bslite.plan.cpu.ops.move import in_bytes
from bslite.plan.cpu.sharing import item_count, share_rows
from bslite.plan.cpu.step import CpuBuilder, step

PRODUCT_CYCLES = 4.0  # of a register of results
NORM_CYCLES = 8.0


@CPU.register("complex_mul")
def lower_complex_mul(b: CpuBuilder, layer: Layer) -> None:
    """Lower a product of complex numbers; one that repeats its numbers along a line comes second, which
    changes no bit.
    """
    shape, conj = b.shapes[layer.name], int(layer.node.attrs["conj"])
    home = b.write(layer.name)
    y = home if _are_pairs(home) else b.dense(shape)
    x, z = (_in_lines(b, b.values[name], shape) for name in layer.node.inputs)
    flags = 0, conj
    if _repeats(x, shape):
        x, z, flags = z, x, (conj, 0)
    if _repeats(x, shape):
        x = _widened(b, x, shape)
    _product_step(b, x.broadcast(shape), z.broadcast(shape), y, flags)
    if y is not home:
        b.copy(y, home)


def _are_pairs(view: View) -> bool:
    """Whether numbers along the axis before the parts lie side by side."""
    rank = len(view.shape)
    return view.strides[-1] == 1 and (rank == 1 or view.shape[-2] == 1 or view.strides[-2] == 2)


def _repeats(view: View, shape: Shape) -> bool:
    """Whether a view has one number for a whole line of ``shape``."""
    return len(shape) > 1 and shape[-2] > 1 and (len(view.shape) == 1 or view.shape[-2] == 1)


def _in_lines(b: CpuBuilder, view: View, shape: Shape) -> View:
    """``view``, or a copy of it, with pairs side by side along lines, unless it has one for each line."""
    if view.strides[-1] == 1 and (_repeats(view, shape) or _are_pairs(view)):
        return view
    return b.flat(view)


def _widened(b: CpuBuilder, view: View, shape: Shape) -> View:
    """A copy of a view with its number repeated along the lines of ``shape``."""
    lines = view.shape[:-2] if len(view.shape) > 1 else ()
    made = b.dense((*lines, shape[-2], 2))
    b.copy(view.broadcast(made.shape), made)
    return made


def _product_step(b: CpuBuilder, x: View, z: View, y: View, conj: tuple[int, int]) -> None:
    """Append ``y = x * z``, views of one shape of which x and y have pairs side by side."""
    views = x, z, y
    sizes, runs = merged_axes(y.shape[:-1], [v.strides[:-1] for v in views], by=2)
    if not sizes or runs[0][-1] != 2 or runs[2][-1] != 2 or runs[1][-1] not in (0, 2):
        sizes, runs = [*sizes, 1], [[*run, 2] for run in runs]
    if len(sizes) > ComplexProduct.AXES:  # the axes lie in many orders
        plain_x, plain_z, plain_y = (b.dense(y.shape) for _ in views)
        b.copy(x, plain_x)
        b.copy(z, plain_z)
        _product_step(b, plain_x, plain_z, plain_y, conj)
        b.copy(plain_y, y)
        return
    sizes, runs = split_for_items(sizes, runs, 2 * b.machine.threads, 1 << 14)
    total = 2 * size_of(y.shape[:-1])
    moved = 12.0 * total / b.machine.l3_bytes_per_cycle
    items = item_count(b.machine, PRODUCT_CYCLES * total / b.machine.lanes + moved)
    z_inner = int(runs[1][-1] != 0)
    sizes, runs = into_items(sizes, runs, items, ComplexProduct.AXES)
    strides = [in_bytes(run[:-1]) for run in runs]
    loops = PairLoops(tuple(sizes[:-1]), sizes[-1], *strides)
    record = ComplexProduct(x.start, z.start, y.start, loops, z_inner, *conj)
    step(b, record, sizes[0] * sizes[1], [x, z], [y])


def norms_step(b: CpuBuilder, x: View, y: View, root: bool) -> bool:
    """Append the sums of both squares of the pairs along the last axis of x, or their roots, to y, which has
    the other axes; return False, without a step, where they do not lie side by side.
    """
    rank = len(y.shape)
    if rank == 0 or x.strides[-1] != 1:
        return False
    lines = [a for a in range(rank) if x.strides[a] == 2 and y.strides[a] == 1 and y.shape[a] > 1]
    if not lines:
        return False
    axes = [a for a in range(rank) if a != lines[0]]
    strides: Sequence[Shape] = [tuple(v.strides[a] for a in axes) for v in (x, y)]
    sizes, (xs, ys) = merged_axes(tuple(y.shape[a] for a in axes), strides, by=1)
    if len(sizes) > 3:
        return False
    rows, length = size_of(tuple(sizes)), y.shape[lines[0]]
    pieces = -(-item_count(b.machine, NORM_CYCLES * rows * length / b.machine.lanes) // rows)
    if rows < pieces and length % pieces == 0 and len(sizes) < 3:  # lines too few for the threads are cut
        length //= pieces
        sizes, xs, ys, rows = [*sizes, pieces], [*xs, 2 * length], [*ys, length], rows * pieces
    item_rows, items = share_rows(b.machine, rows, NORM_CYCLES * rows * length / b.machine.lanes)
    n, (xs, ys) = padded(sizes, [xs, ys], 3)
    along = RowAxes(in_bytes(xs), in_bytes(ys), n[1], n[2], rows, item_rows)
    step(b, PairNorms(x.start, y.start, along, length, int(root)), items, [x], [y])
    return True
