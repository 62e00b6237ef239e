"""Copies between strided views: by elements, by pairs, or by tiles where contiguous axes differ; fills."""

from bslite.errors import EngineError
from bslite.kernels.contracts.cuda.moves import Copy, CopyPairs, CopyVariant, Transpose, TransposeVariant
from bslite.kernels.contracts.record import Operand
from bslite.plan.core.loops import merged_axes, padded
from bslite.plan.core.views import View, size_of
from bslite.plan.cuda.launch import CudaBuilder, launch

AXES, EACH = Copy.AXES, Copy.EACH
TILE = 32  # rows and columns of a block's tile in the transposition
OUTER = 3  # axes around the rows and columns
LEAST_ROWS = 8  # fewer planes are read as they are: the sectors of one warp serve the next from L1


def copy_step(b: CudaBuilder, source: View, target: View) -> None:
    """Append a copy of ``source`` to ``target``, views of the same logical shape."""
    spread = max(source.extent[1] - source.extent[0], target.extent[1] - target.extent[0])
    if max(spread, size_of(target.shape)) > b.tuning.copied_at_once:
        _in_halves(b, source, target)
        return
    sizes, runs = merged_axes(target.shape, [source.strides, target.strides], by=1)
    if not sizes:
        sizes, runs = [1], [[1], [1]]
    if len(sizes) > AXES:
        _slice_by_slice(b, source, target)
    elif not _transpose_step(b, source, target, sizes, runs):
        _strided_step(b, source, target, sizes, runs)


def _slice_by_slice(b: CudaBuilder, source: View, target: View) -> None:
    """Append a copy for every index of the shortest axis: the views have more axes than the kernel."""
    axis = min((a for a, n in enumerate(target.shape) if n > 1), key=lambda a: target.shape[a])
    for i in range(target.shape[axis]):
        copy_step(b, source.slice(axis, i, i + 1), target.slice(axis, i, i + 1))


def _in_halves(b: CudaBuilder, source: View, target: View) -> None:
    """Append two copies, one for each half of the longest axis."""
    axis = max(range(len(target.shape)), key=lambda a: target.shape[a])
    size = target.shape[axis]
    if size == 1:
        raise EngineError(f"layer {b.layer[-1]!r}: strides of more than {b.tuning.copied_at_once} elements")
    for start, stop in ((0, size // 2), (size // 2, size)):
        copy_step(b, source.slice(axis, start, stop), target.slice(axis, start, stop))


def _strided_step(
    b: CudaBuilder, source: View, target: View, sizes: list[int], runs: list[list[int]]
) -> None:
    """Append a copy by elements, or by pairs where all pairs lie on multiples of 8 bytes."""
    starts = [v.offset - v.extent[0] for v in (source, target)]
    lows = [v.extent[0] for v in (source, target)]
    pairs = _in_pairs(sizes, runs, [*starts, *lows])
    each = 2 if pairs else 1
    if pairs:
        sizes = [*sizes[:-1], sizes[-1] // 2]
        runs = [[*(s // 2 for s in run[:-1]), 1] for run in runs]
        starts = [s // 2 for s in starts]
    count = size_of(tuple(sizes))
    threads = min(256, b.machine.block_threads)
    inward, (x, y) = padded(sizes, runs, AXES)
    kind = CopyPairs if pairs else Copy
    record = kind(
        Operand(source.buffer, lows[0] // each * each), Operand(target.buffer, lows[1] // each * each), count,
        x_start=starts[0], y_start=starts[1], n=tuple(reversed(inward[1:])), x=tuple(reversed(x)),
        y=tuple(reversed(y)),
    )  # fmt: skip
    grid = [-(-count // (threads * Copy.EACH))]
    launch(b, record, CopyVariant(len(sizes), threads), grid, [threads], [source], [target])


def _in_pairs(sizes: list[int], runs: list[list[int]], places: list[int]) -> bool:
    """Return whether all pairs along the innermost axis lie on multiples of 8 bytes, as all buffers begin."""
    even = all(n % 2 == 0 for n in (sizes[-1], *places, *(s for run in runs for s in run[:-1])))
    return even and all(run[-1] == 1 for run in runs)


def _transpose_step(
    b: CudaBuilder, source: View, target: View, sizes: list[int], runs: list[list[int]]
) -> bool:
    """Append a copy by tiles through shared memory, if different axes are contiguous in source and target.

    Rows are contiguous in the target, columns in the source.
    """
    x, y = runs
    if y[-1] != 1 or x[-1] == 1 or sizes[-1] < LEAST_ROWS or min(*x, *y) < 0 or len(sizes) > OUTER + 2:
        return False
    columns = [a for a in range(len(sizes) - 1) if x[a] == 1 and sizes[a] >= LEAST_ROWS]
    if not columns:
        return False
    col, row = columns[0], len(sizes) - 1
    outer = [a for a in range(len(sizes)) if a not in (col, row)]
    n, (xs, ys) = padded([sizes[a] for a in outer], [[run[a] for a in outer] for run in runs], OUTER)
    tile = TILE if b.machine.block_threads >= TILE * TILE // EACH else TILE // 4
    across, down = -(-sizes[col] // tile), -(-sizes[row] // tile)
    record = Transpose(
        source.start, target.start, rows=sizes[row], cols=sizes[col], x_row=x[row], y_col=y[col],
        across=across, down=down, n1=n[1], n2=n[2], x=tuple(xs), y=tuple(ys),
    )  # fmt: skip
    blocks = across * down * size_of(tuple(n))
    launch(b, record, TransposeVariant(tile), [blocks], [tile, tile // EACH], [source], [target])
    return True


def fill_step(b: CudaBuilder, view: View, value: float) -> None:
    """Append a copy of a number to every element of ``view``: a float, or an int for a view of int cells."""
    if not size_of(view.shape):
        return
    name = b.const("cells" if isinstance(value, int) else "numbers", values=[value])
    copy_step(b, View(name, 0, view.shape, (0,) * len(view.shape)), view)
