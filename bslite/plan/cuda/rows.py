"""Launches that work along rows: the axes around rows merge into three; the length sets the threads."""

from dataclasses import astuple

from bslite.explore.gpu import GpuMachine
from bslite.kernels.contracts.cuda.rows import (
    Cumulate,
    CumulateIntegers,
    CumulateVariant,
    LocalResponse,
    LocalResponseVariant,
    NormalizeJoin,
    NormalizePart,
    NormalizeRows,
    NormJoinVariant,
    NormVariant,
    Part,
    PartAxes,
    RowAxes,
    Share,
    Softmax,
    SoftmaxJoin,
    SoftmaxJoinVariant,
    SoftmaxPart,
    SoftmaxVariant,
    TargetAxes,
)
from bslite.kernels.contracts.rows import NormWork, Power, ResponseWork, RowWork, RunningWork, SoftmaxWork
from bslite.plan.core.loops import merged_axes, padded
from bslite.plan.core.views import NO_HALO, View, size_of
from bslite.plan.cuda.launch import CudaBuilder, launch

OUTER = 3  # axes around the rows
THREADS = 256
HELD = 16  # elements of a row that a thread keeps, at most
AT_ONCE = 8  # elements of rows not kept that it loads at once
BLOCKS = 4  # blocks per SM
FLOAT = 4  # bytes
LATENCY = 0.7e-6  # seconds of a load from HBM under load


def power_above(n: int) -> int:
    """Return the least power of two that is not less than n."""
    return 1 << max(0, n - 1).bit_length()


def block_threads(b: CudaBuilder) -> int:
    """Return the threads of a block."""
    return min(THREADS, b.machine.block_threads)


def share(b: CudaBuilder, length: int) -> Share:
    """Return the threads per row, by length alone: four elements each, up to 16 where a block is one row."""
    threads = block_threads(b)
    width = min(threads, power_above(-(-length // 4)))
    if length <= 4 * width:
        return Share(threads, width, 4, 1)
    return Share(threads, width, HELD, 1) if length <= HELD * width else Share(threads, width, AT_ONCE, 0)


def row_parts(machine: GpuMachine, rows: int, length: int, shared: Share) -> int:
    """Return how many blocks should share each row, in two launches; 1 means one block and one launch.

    A block's read rate is limited by the loads that its threads have under way. A row of one block is priced
    by that, and read three times if it is not held; parts are read twice.
    """

    def seconds(parts: int, reads: int, each: int) -> float:
        chunk = FLOAT * -(-length // parts) * -(-rows * parts // (BLOCKS * machine.sms))
        moved = 2 * FLOAT * rows * length / machine.memory_bandwidth
        return max(reads * chunk * LATENCY / (FLOAT * shared.threads * each), moved)

    if shared.width < shared.threads:
        return 1
    found, least = 1, seconds(1, 1 if shared.held else 3, shared.each)
    parts = 2
    while parts <= -(-length // (shared.threads * AT_ONCE)) and rows * parts <= BLOCKS * machine.sms:
        price = seconds(parts, 2, AT_ONCE) + machine.launch
        if price < least:
            found, least = parts, price
        parts *= 2
    return found


def row_step(b: CudaBuilder, work: RowWork, x: View, y: View, axis: int) -> None:
    """Append ``work`` from x to y, views of one shape in which ``axis`` is contiguous.

    Several blocks share each long row of softmax and of norms, in two launches.
    """
    sizes, (xs, ys) = merged_axes(x.shape, [x.strides, y.strides], by=1, keep_last=axis)
    if len(sizes) - 1 > OUTER:  # the two axis orders do not merge: via a plain copy
        plain_x, plain_y = b.fresh(x.shape, axis, NO_HALO), b.fresh(y.shape, axis, NO_HALO)
        b.copy(x, plain_x)
        row_step(b, work, plain_x, plain_y, axis)
        b.copy(plain_y, y)
        return
    length, rows = sizes[-1], size_of(tuple(sizes[:-1]))
    n, (xs, ys) = padded(sizes[:-1], [xs[:-1], ys[:-1]], OUTER)
    along = RowAxes(rows, length, n[1], n[2], tuple(xs), tuple(ys))
    shared = share(b, length)
    if isinstance(work, (SoftmaxWork, NormWork)):
        parts = row_parts(b.machine, rows, length, shared)
        if parts > 1:
            _in_parts(b, work, parts, x, y, along, shared.threads)
        else:
            _shared(b, work, x, y, along, shared)
    elif isinstance(work, ResponseWork):
        record = LocalResponse(
            x.start, y.start, along, work.below, work.above, work.alpha, work.k, work.beta
        )  # fmt: skip
        blocks = -(-rows * length // shared.threads)  # one element per thread
        variant = LocalResponseVariant(shared.threads, Power.of(work.beta))
        launch(b, record, variant, [blocks], [shared.threads], [x], [y])
    else:
        _running(b, work, x, y, along, shared.threads)


def _shared(
    b: CudaBuilder, work: SoftmaxWork | NormWork, x: View, y: View, along: RowAxes, shared: Share
) -> None:
    """Append the launch of rows that the threads of a block share."""
    grid, block = [-(-along.rows // shared.rows)], [shared.threads]
    if isinstance(work, SoftmaxWork):
        variant = SoftmaxVariant(*astuple(shared), log_of=int(work.log))
        launch(b, Softmax(x.start, y.start, along), variant, grid, block, [x], [y])
        return
    record = NormalizeRows(
        x.start, y.start, along, work.weight or x.start, work.bias or x.start, work.eps
    )  # fmt: skip
    launch(b, record, NormVariant(*astuple(shared), *_norm(work)), grid, block, [x], [y])


def _norm(work: NormWork) -> tuple[int, int, int]:
    """Return which norm it is, and whether it has weights and a bias."""
    return work.norm, int(work.weight is not None), int(work.bias is not None)


def _in_parts(
    b: CudaBuilder, work: SoftmaxWork | NormWork, parts: int, x: View, y: View, along: RowAxes, threads: int
) -> None:
    """Append the two launches of rows that ``parts`` blocks share."""
    rows, length = along.rows, along.length
    step = threads * AT_ONCE
    chunk = step * -(-length // (parts * step))
    parts = -(-length // chunk)
    made = b.dense((4 * rows * parts,))
    grid, block = [parts, rows], [threads]
    part = PartAxes(length, chunk, parts, along.n1, along.n2, along.x)
    to = TargetAxes(along.y)
    if isinstance(work, SoftmaxWork):
        launch(b, SoftmaxPart(x.start, made.start, part), Part(threads, AT_ONCE), grid, block, [x], [made])
        joining = SoftmaxJoin(x.start, made.start, y.start, part, to)
        variant = SoftmaxJoinVariant(threads, AT_ONCE, int(work.log))
        launch(b, joining, variant, grid, block, [x, made], [y])
        return
    launch(b, NormalizePart(x.start, made.start, part), Part(threads, AT_ONCE), grid, block, [x], [made])
    normed = NormalizeJoin(
        x.start, made.start, y.start, work.weight or x.start, work.bias or x.start, part, to, work.eps
    )  # fmt: skip
    launch(b, normed, NormJoinVariant(threads, AT_ONCE, *_norm(work)), grid, block, [x, made], [y])


def _running(b: CudaBuilder, work: RunningWork, x: View, y: View, along: RowAxes, threads: int) -> None:
    """Append the launch of running totals with a block per row."""
    variant = CumulateVariant(threads, work.running, int(work.exclusive), int(work.reverse))
    record = Cumulate(x.start, y.start, along)
    if work.flag is not None:
        record = CumulateIntegers(x.start, y.start, work.flag, along)
    launch(b, record, variant, [along.rows], [threads], [x], [y])
