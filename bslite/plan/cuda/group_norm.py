"""Group norm as three launches: sums of channels, statistics of groups, normalisation of pixels."""

from collections.abc import Sequence

from bslite.kernels.contracts.cuda.rows import (
    ChannelSums,
    ChannelThreads,
    GroupScales,
    GroupScalesVariant,
    PixelAxes,
    ScalePixels,
)
from bslite.kernels.contracts.rows import GroupWork
from bslite.plan.core.loops import merged_axes, padded
from bslite.plan.core.views import View, size_of
from bslite.plan.cuda.launch import CudaBuilder, launch
from bslite.plan.cuda.rows import block_threads, power_above

ACROSS = 32  # channels side by side in a block
BAND = 512  # least pixels of a partial sum; set by size alone, so that results do not depend on the machine
BLOCKS = 512  # enough blocks: more bands of few images would only be more sums to join


def group_step(b: CudaBuilder, work: GroupWork, x: View, y: View) -> bool:
    """Append the launches from x to y, both with channels innermost; return False, and append none, where the
    pixels lie along too many axes.
    """
    found = _lines(x, y)
    if found is None:
        return False
    columns, xs, ys = found
    n, channels = x.shape[:2]
    pixels = size_of(x.shape[2:])
    threads = block_threads(b)
    across = min(ACROSS, threads // 4, power_above(channels))
    bands = min(-(-pixels // BAND), -(-BLOCKS // max(1, n * -(-channels // across))))
    band = -(-pixels // bands)
    variant = ChannelThreads(across, threads // across)
    grid, block = [-(-channels // across), bands, n], [across, threads // across]
    size = PixelAxes(channels, pixels, columns, x.strides[0], xs[0], xs[1])
    sums = b.dense((n * bands * channels * 4,))  # sums in float64
    scales = b.dense((n * 3 * channels,))
    launch(b, ChannelSums(x.start, sums.start, size, bands, band), variant, grid, block, [x], [sums])

    group = channels // work.groups
    there = [int(parameter is not None) for parameter in (work.weight, work.bias)]
    record = GroupScales(
        sums.start, work.weight or x.start, work.bias or x.start, scales.start, channels, group, bands,
        count=group * pixels, eps=work.eps,
    )  # fmt: skip
    of_group = GroupScalesVariant(threads, *there)
    launch(b, record, of_group, [work.groups, n], [threads], [sums], [scales])
    pixel = ScalePixels(x.start, y.start, scales.start, size, y.strides[0], ys[0], ys[1], band)
    launch(b, pixel, variant, grid, block, [x, scales], [y])
    return True


def _lines(x: View, y: View) -> tuple[int, Sequence[int], Sequence[int]] | None:
    """Return the axes after the channels as lines of pixels: pixels per line, strides (line, pixel) in x and
    in y. Returns None where they lie along more axes.
    """
    sizes, runs = merged_axes(x.shape[2:], [v.strides[2:] for v in (x, y)], by=1)
    if len(sizes) > 2:
        return None
    sizes, (xs, ys) = padded(sizes, runs, 2)
    return sizes[1], xs, ys
