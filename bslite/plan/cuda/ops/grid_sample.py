"""Grid sampling: a block takes neighbouring channels, of several positions where channels are few."""

from bslite.kernels.contracts.cuda.windows import GridSample, GridSampleVariant
from bslite.kernels.contracts.sampling import Beyond, Interpolation
from bslite.passes import Layer
from bslite.plan.core.lowering import CUDA
from bslite.plan.core.views import size_of
from bslite.plan.core.windows import volume
from bslite.plan.cuda.launch import CudaBuilder, launch
from bslite.plan.cuda.rows import block_threads, power_above

ACROSS = 32  # channels side by side, at most


@CUDA.register("grid_sample")
def lower_grid_sample(b: CudaBuilder, layer: Layer) -> None:
    """Append one launch."""
    x, grid = b.read(layer.node.inputs[0], inner=1), b.flat(b.values[layer.node.inputs[1]])
    (y, home), attrs = b.writable(layer.name, 1), layer.node.attrs
    source, target = volume(x), volume(y)
    points, channels, threads = x.shape[0] * size_of(target.shape[2:]), x.shape[1], block_threads(b)
    across = min(ACROSS, threads, power_above(channels))
    (xi, _, *xs), (yi, _, *ys) = source.strides, target.strides
    record = GridSample(
        x.start, grid.start, y.start, *source.shape[2:], *target.shape[2:], channels, points, (xi, *xs),
        (yi, *ys),
    )  # fmt: skip
    variant = GridSampleVariant(
        threads, across, len(x.shape) - 2, Interpolation.of(attrs["mode"]), Beyond.of(attrs["padding"]),
        int(attrs["align_corners"]),
    )  # fmt: skip
    launch(b, record, variant, [-(-points // (threads // across))], [threads], [x, grid], [y])
    if y is not home:
        b.copy(y, home)
