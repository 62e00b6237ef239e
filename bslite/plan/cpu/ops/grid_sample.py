"""Lowering of grid sampling to one step, channels innermost; an item is a run of positions."""

from bslite.kernels.contracts.cpu.windows import GridSample
from bslite.kernels.contracts.sampling import Beyond, Interpolation
from bslite.passes import Layer
from bslite.plan.core.lowering import CPU
from bslite.plan.core.views import size_of
from bslite.plan.core.windows import volume
from bslite.plan.cpu.ops.move import in_bytes
from bslite.plan.cpu.sharing import share_rows
from bslite.plan.cpu.step import CpuBuilder, step

TAP_CYCLES, POINT_CYCLES = 4.0, 60.0


@CPU.register("grid_sample")
def lower_grid_sample(b: CpuBuilder, layer: Layer) -> None:
    """Lower `grid_sample`: the taps of a position, then all channels."""
    attrs = layer.node.attrs
    x = b.read(layer.node.inputs[0], inner=1, exact=True)
    grid = b.flat(b.values[layer.node.inputs[1]])
    y, home = b.writable(layer.name, 1)
    axes, mode = len(x.shape) - 2, Interpolation.of(attrs["mode"])
    source, target = volume(x), volume(y)
    points = x.shape[0] * size_of(target.shape[2:])
    registers = -(-x.shape[1] // b.machine.lanes)
    cycles = points * (POINT_CYCLES * axes + TAP_CYCLES * mode.taps**axes * registers)
    item_points, items = share_rows(b.machine, points, cycles)
    (xi, _, *xs), (yi, _, *ys) = in_bytes(source.strides), in_bytes(target.strides)
    record = GridSample(
        x.start, grid.start, y.start, (xi, *xs), (yi, *ys), *source.shape[2:], *target.shape[2:], x.shape[1],
        points, item_points, axes, mode, Beyond.of(attrs["padding"]), attrs["align_corners"],
    )  # fmt: skip
    step(b, record, items, [x, grid], [y], scratch=GridSample.SCRATCH)
    if y is not home:
        b.copy(y, home)
