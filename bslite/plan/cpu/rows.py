"""Work along rows as steps: few axes around the rows after merging, rows shared out as items."""

from bslite.kernels.contracts.cpu.rows import (
    CumProd,
    CumProdLanes,
    CumSum,
    CumSumLanes,
    LayerNorm,
    LocalResponse,
    LogCumSumExp,
    LogSoftmax,
    LogSoftmaxLanes,
    RmsNorm,
    RowAxes,
    Softmax,
    SoftmaxLanes,
    UnitNorm,
)
from bslite.kernels.contracts.record import Operand, StepRecord
from bslite.kernels.contracts.rows import (
    Norm,
    NormWork,
    Power,
    ResponseWork,
    RowWork,
    Running,
    RunningWork,
    SoftmaxWork,
)
from bslite.plan.core.loops import merged_axes, padded
from bslite.plan.core.views import NO_HALO, View, size_of
from bslite.plan.cpu.ops.move import in_bytes
from bslite.plan.cpu.sharing import share_rows
from bslite.plan.cpu.step import CpuBuilder, step

Rows = tuple[Operand, Operand, RowAxes, int]
OUTER = 3  # axes around the rows that the row kernels walk


def row_step(b: CpuBuilder, work: RowWork, x: View, y: View, axis: int) -> None:
    """Append ``work`` from x to y, views of one shape in which ``axis`` is contiguous."""
    sizes, (xs, ys) = merged_axes(x.shape, [x.strides, y.strides], by=1, keep_last=axis)
    if len(sizes) - 1 > OUTER:  # the axes lie in two orders that do not merge: copy through row-major order
        plain_x, plain_y = b.fresh(x.shape, axis, NO_HALO), b.fresh(y.shape, axis, NO_HALO)
        b.copy(x, plain_x)
        row_step(b, work, plain_x, plain_y, axis)
        b.copy(plain_y, y)
        return
    length, outer = sizes[-1], sizes[:-1]
    rows = size_of(tuple(outer))
    item_rows, items = share_rows(b.machine, rows, rows * _cycles(work, length, b.machine.lanes))
    n, (xs, ys) = padded(outer, [xs[:-1], ys[:-1]], OUTER)
    along = RowAxes(in_bytes(xs), in_bytes(ys), n[1], n[2], rows, item_rows)
    writes = [y]
    if isinstance(work, ResponseWork):
        writes.append(b.dense((items * _squares(work, length, b.machine.lanes),)))
    record = _record(work, (x.start, y.start, along, length), b.machine.lanes, writes[-1].start)
    step(b, record, items, [x], writes)


def in_lanes(work: RowWork) -> bool:
    """Whether there are kernels that do ``work`` along another axis than the contiguous one."""
    floats = isinstance(work, RunningWork) and work.flag is None and work.running != Running.LOGSUMEXP
    return floats or isinstance(work, SoftmaxWork)


def lane_step(b: CpuBuilder, work: RowWork, x: View, y: View, axis: int, inner: int) -> None:
    """Append ``work`` along ``axis`` from x to y, views of one shape in which ``inner`` is contiguous."""
    outer = [a for a in range(len(x.shape)) if a not in (axis, inner)]
    strides = [tuple(view.strides[a] for a in outer) for view in (x, y)]
    sizes, (xs, ys) = merged_axes(tuple(x.shape[a] for a in outer), strides, by=1)
    if len(sizes) >= OUTER:
        plain_x, plain_y = b.fresh(x.shape, inner, NO_HALO), b.fresh(y.shape, inner, NO_HALO)
        b.copy(x, plain_x)
        lane_step(b, work, plain_x, plain_y, axis, inner)
        b.copy(plain_y, y)
        return
    lanes, channels = b.machine.lanes, x.shape[inner]
    registers = -(-channels // lanes)
    wanted = -(-2 * b.machine.threads // max(1, size_of(tuple(sizes))))
    block = lanes * -(-registers // min(registers, wanted))
    sizes, xs, ys = [*sizes, -(-channels // block)], [*xs, block], [*ys, block]
    rows = size_of(tuple(sizes))
    cycles = (30.0 if isinstance(work, SoftmaxWork) else 8.0) * size_of(x.shape) / lanes
    item_rows, items = share_rows(b.machine, rows, cycles)
    n, (xs, ys) = padded(sizes, [xs, ys], OUTER)
    along = RowAxes(in_bytes(xs), in_bytes(ys), n[1], n[2], rows, item_rows)
    by = in_bytes((x.strides[axis], y.strides[axis]))
    common = x.start, y.start, along, x.shape[axis], *by, channels, block
    record: StepRecord
    if isinstance(work, SoftmaxWork):
        record = (LogSoftmaxLanes if work.log else SoftmaxLanes)(*common)
    else:
        assert isinstance(work, RunningWork)
        kind = CumSumLanes if work.running == Running.SUM else CumProdLanes
        record = kind(*common, int(work.exclusive), int(work.reverse))
    step(b, record, items, [x], [y])


def _record(work: RowWork, rows: Rows, lanes: int, memory: Operand) -> StepRecord:
    """The record of a row kernel: ``rows`` are the fields that all have, ``memory`` is the items' own."""
    nowhere, _, _, length = rows
    match work:
        case SoftmaxWork():
            return LogSoftmax(*rows) if work.log else Softmax(*rows)
        case NormWork(norm=Norm.UNIT):
            return UnitNorm(*rows, work.eps)
        case NormWork(norm=Norm.RMS):
            return RmsNorm(*rows, work.weight or nowhere, int(work.weight is not None), work.eps)
        case NormWork():
            has = [int(there is not None) for there in (work.weight, work.bias)]
            return LayerNorm(*rows, work.weight or nowhere, work.bias or nowhere, *has, work.eps)
        case ResponseWork():
            return LocalResponse(
                *rows, memory, 4 * _squares(work, length, lanes), work.below, work.above, work.alpha, work.k,
                Power.of(work.beta), work.beta,
            )  # fmt: skip
        case RunningWork(running=Running.LOGSUMEXP):
            return LogCumSumExp(*rows)
    kind = CumSum if work.running == Running.SUM else CumProd
    flags = [int(on) for on in (work.exclusive, work.reverse, work.flag is not None)]
    return kind(*rows, work.flag or nowhere, *flags)


def _cycles(work: RowWork, length: int, lanes: int) -> float:
    """The cycles of a row on one core."""
    registers = -(-length // lanes)
    match work:
        case SoftmaxWork():
            return 60 + 30 * registers
        case NormWork(norm=Norm.LAYER):
            return 30 + 8.0 * registers
        case NormWork():
            return 15 + 7.0 * registers
        case ResponseWork():
            return 40 + registers * (60 + work.below + 1 + work.above)
    return 20 + (60.0 if work.running == Running.LOGSUMEXP else 6.0) * length


def _squares(work: ResponseWork, length: int, lanes: int) -> int:
    """Elements of memory for the squares of a row, with zeros on both sides."""
    registers = -(-length // lanes) + -(-work.above // lanes)
    return -(-(work.below + registers * lanes) // lanes) * lanes
