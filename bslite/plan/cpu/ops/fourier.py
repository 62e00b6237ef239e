"""Lowering of Fourier transforms: signals side by side in the lanes of registers, or long rows."""

from typing import NamedTuple

from bslite.kernels.contracts.cpu.fourier import Form, FourierLanes, FourierRows, Numbers, Transform
from bslite.kernels.contracts.cpu.rows import RowAxes
from bslite.kernels.contracts.record import Operand
from bslite.passes import Layer
from bslite.plan.core.layouts import FEW
from bslite.plan.core.loops import merged_axes
from bslite.plan.core.loops import padded as filled_up
from bslite.plan.core.lowering import CPU
from bslite.plan.core.views import View, size_of
from bslite.plan.cpu.ops.move import in_bytes
from bslite.plan.cpu.ops.radices import Matrix, as_matrix, cycles_of, padded_of, radices_of
from bslite.plan.cpu.sharing import share_rows
from bslite.plan.cpu.step import CpuBuilder, step
from bslite.plan.shared.rows import parameters

LONG = 1 << 14  # points from which on signals are rows wherever they lie: lanes would fill caches
BESIDES = 8.0  # cycles of a point of one register that is read, prepared and stored


class Signals(NamedTuple):
    """A view of signals along ``axis``; ``paired``: of complex numbers, whose parts are its last axis."""

    view: View
    axis: int
    paired: bool

    @property
    def by(self) -> int:
        """The stride from a point to the next."""
        return self.view.strides[self.axis]

    @property
    def part(self) -> int:
        """The stride from a real to its imaginary part."""
        return self.view.strides[-1] if self.paired else 0

    @property
    def are_rows(self) -> bool:
        """Whether the points of a signal are contiguous."""
        together = self.part == int(self.paired)
        return together and (self.view.shape[self.axis] == 1 or self.by == 1 + self.paired)

    def form(self, lane: int) -> Form:
        """How the signals along the axis ``lane`` lie: as rows, if nothing else."""
        stride = 1 if self.view.shape[lane] == 1 else self.view.strides[lane]
        if stride == 1:
            return Form.SIDE
        if self.paired and (self.part, stride) == (1, 2):
            return Form.PAIRS
        return Form.ROWS

    def fit(self, lane: int | None) -> bool:
        """Whether the kernels know how the signals lie, along ``lane`` or as rows."""
        return self.are_rows or (lane is not None and self.form(lane) != Form.ROWS)

    def beside(self, lanes: int) -> int | None:
        """An axis along which at least so many numbers lie side by side, if the signals are no rows."""
        if self.are_rows:
            return None
        return next((a for a in self.outer() if self.view.shape[a] >= lanes and self.fit(a)), None)

    def outer(self, *without: int) -> list[int]:
        """The axes around the signals, but for some."""
        rank = len(self.view.shape) - self.paired
        return [a for a in range(rank) if a != self.axis and a not in without]


@CPU.register("fourier")
def lower_fourier(b: CpuBuilder, layer: Layer) -> None:
    """Lower a transform. The model alone decides which kernel it is: their sums differ in their last bits."""
    attrs, axis, name = layer.node.attrs, _axis(b, layer), layer.node.inputs[0]
    x = Signals(b.values[name], axis, attrs["source"] != "real")
    shape, inner, paired = b.shapes[layer.name], b.inner(layer.name), not attrs["real"]
    lane = len(shape) - 2 if paired and inner == len(shape) - 1 else inner
    core = _core(layer)
    rows = lane == axis or shape[lane] <= FEW or core >= LONG
    home = b.write(layer.name)
    y = Signals(home, axis, paired)
    matrix = as_matrix(core, b.machine.lanes, b.machine.registers) if rows else None
    if not y.fit(None if rows else lane):
        y = _fresh(b, y, None if rows else lane)
    if rows and matrix:
        _rows_step(b, layer, x if x.fit(None) else _copied(b, x, None), y, matrix)
    else:
        beside = x.beside(b.machine.lanes) if rows else lane
        _lanes_step(b, layer, x if x.fit(beside) else _copied(b, x, beside), y, beside)
    if y.view is not home:
        b.copy(y.view, home)


def _axis(b: CpuBuilder, layer: Layer) -> int:
    """The axis of the points, not negative: it counts in the input, whose rank may differ."""
    return int(layer.node.attrs["axis"]) % len(b.shapes[layer.node.inputs[0]])


def _core(layer: Layer) -> int:
    """The complex points that are transformed: real numbers are taken as pairs where there is an even number
    of them, and both parts are wanted.
    """
    attrs = layer.node.attrs
    length, whole = attrs["length"], attrs["source"] != "half" and attrs["real"]
    return length if length % 2 or attrs["source"] == "complex" or whole else length // 2


def _fresh(b: CpuBuilder, like: Signals, lane: int | None) -> Signals:
    """A new view for such signals: rows, or with the axis ``lane`` inside."""
    inner = [like.axis] if lane is None else [like.axis, lane]
    order = [*like.outer(*inner), *inner, *([len(like.view.shape) - 1] if like.paired else [])]
    dense = b.dense(tuple(like.view.shape[a] for a in order))
    return like._replace(view=dense.permute([order.index(a) for a in range(len(order))]))


def _copied(b: CpuBuilder, x: Signals, lane: int | None) -> Signals:
    """A copy of signals as `_fresh` makes them."""
    made = _fresh(b, x, lane)
    b.copy(x.view, made.view)
    return made


def _around(x: Signals, y: Signals, *without: int) -> tuple[list[int], list[list[int]]]:
    """The axes around the signals, as few as there are, outermost in y first, and their strides."""
    axes = x.outer(*without)
    strides = [tuple(s.view.strides[a] for a in axes) for s in (x, y)]
    return merged_axes(tuple(x.view.shape[a] for a in axes), strides, by=1)


def _transform(b: CpuBuilder, layer: Layer, points: int, room: int, planar: bool) -> Transform:
    """The part of the records that both kernels have; passes of ``points`` points come first."""
    attrs, core = layer.node.attrs, _core(layer)
    length, x, y = attrs["length"], b.shapes[layer.node.inputs[0]], b.shapes[layer.name]
    twiddles, radices = _passes(b, points)
    halves = twiddles
    if core < length:
        lanes = b.machine.lanes if planar else 0
        halves = Operand(b.const("half_twiddles", length=length, count=core + 1, lanes=lanes), 0)
    axis = _axis(b, layer)
    (window,) = parameters(b, layer, "window")
    return Transform(
        twiddles, halves, window or twiddles, radices, windowed=int(window is not None),
        source=Numbers[attrs["source"].upper()], real=int(attrs["real"]), inverse=int(attrs["inverse"]),
        given=x[axis], made=y[axis], length=length, core=core, room=room, scale=attrs["scale"],
    )  # fmt: skip


def _passes(b: CpuBuilder, points: int) -> tuple[Operand, Operand]:
    """The constants of the passes of ``points`` points: twiddles and radices."""
    radices = radices_of(points, b.machine.registers)
    twiddles = b.const("twiddles", points=points, radices=radices)
    return Operand(twiddles, 0), Operand(b.const("offsets", values=[*radices, 0]), 0)


def _work(b: CpuBuilder, *points: int) -> int:
    """Points of scratch memory that the largest pass needs, if its radix has no code of its own."""
    return max([0, *(r for n in points for r in radices_of(n, b.machine.registers))])


def _lanes_step(b: CpuBuilder, layer: Layer, x: Signals, y: Signals, lane: int | None) -> None:
    """Append a step of signals side by side: along ``lane``, or of rows."""
    sizes, (xs, ys) = _around(x, y, *([] if lane is None else [lane]))
    if len(sizes) > (3 if lane is None else 2):
        made = _fresh(b, y, lane)
        _lanes_step(b, layer, _copied(b, x, lane), made, lane)
        b.copy(made.view, y.view)
        return
    x_form = y_form = Form.ROWS
    if lane is None:  # along the longest of the axes around them
        sizes, xs, ys = sizes or [1], xs or [0], ys or [0]
        place = sizes.index(max(sizes))
        channels, x_lane, y_lane = (run.pop(place) for run in (sizes, xs, ys))
    else:
        x_form, y_form = x.form(lane), y.form(lane)
        channels, x_lane, y_lane = x.view.shape[lane], x.view.strides[lane], y.view.strides[lane]
    lanes, core, length = b.machine.lanes, _core(layer), layer.node.attrs["length"]
    registers = -(-channels // lanes)
    wanted = -(-2 * b.machine.threads // max(1, size_of(tuple(sizes))))
    block = lanes * -(-registers // min(registers, wanted))
    blocks = -(-channels // block)
    sizes, xs, ys = [*sizes, blocks], [*xs, block * x_lane], [*ys, block * y_lane]
    rows = size_of(tuple(sizes))
    padded = padded_of(core, b.machine.registers)
    points = padded or core
    cycles = cycles_of(points, b.machine.registers) * (2 if padded else 1) + BESIDES * length
    item_rows, items = share_rows(b.machine, rows, rows * block / lanes * cycles)
    n, (xs, ys) = filled_up(sizes, [xs, ys], 3)
    room = max(points, core + 1, y.view.shape[y.axis], length // 2 + 1)
    how = _transform(b, layer, points, room, planar=False)
    chirp = Operand(b.const("chirp", points=core, padded=padded), 0) if padded else how.twiddles
    record = FourierLanes(
        x.view.start, y.view.start, RowAxes(in_bytes(xs), in_bytes(ys), n[1], n[2], rows, item_rows), how,
        chirp, padded, channels, block,
        x_form, *in_bytes((x_lane, x.by, x.part)), y_form, *in_bytes((y_lane, y.by, y.part)),
    )  # fmt: skip
    scratch = 2 * lanes * (2 * room + _work(b, points))
    step(b, record, items, [x.view], [y.view], scratch=scratch)


def _rows_step(b: CpuBuilder, layer: Layer, x: Signals, y: Signals, matrix: Matrix) -> None:
    """Append a step of long rows."""
    sizes, (xs, ys) = _around(x, y)
    if len(sizes) > 3:
        made = _fresh(b, y, None)
        _rows_step(b, layer, _copied(b, x, None), made, matrix)
        b.copy(made.view, y.view)
        return
    lanes, registers, (high, low) = b.machine.lanes, b.machine.registers, matrix
    rows, length = size_of(tuple(sizes)), layer.node.attrs["length"]
    over_high, over_low = -(-high // lanes), -(-low // lanes)
    cycles = over_low * cycles_of(high, registers) + over_high * cycles_of(low, registers)
    item_rows, items = share_rows(b.machine, rows, rows * (cycles + BESIDES * length / lanes))
    n, (xs, ys) = filled_up(sizes, [xs, ys], 3)
    room = lanes * max(over_high, over_low)
    twiddles, radices = _passes(b, low)
    scale = layer.node.attrs["scale"]
    between = b.const("twiddles_between", high=high, low=low, lanes=lanes, scale=scale)
    record = FourierRows(
        x.view.start, y.view.start, RowAxes(in_bytes(xs), in_bytes(ys), n[1], n[2], rows, item_rows),
        _transform(b, layer, high, room, planar=True), twiddles, radices, Operand(between, 0), high, low,
    )  # fmt: skip
    plane = 2 * lanes + lanes * -(-(length + 1) // lanes)
    scratch = 4 * plane + 2 * lanes * (over_high * over_low * lanes + 2 * room + _work(b, high, low))
    step(b, record, items, [x.view], [y.view], scratch=scratch)
