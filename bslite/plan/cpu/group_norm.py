"""Group norm as three steps; each uses all threads, even for few groups."""

from collections.abc import Sequence

from bslite.kernels.contracts.cpu.epilogue import Epilogue
from bslite.kernels.contracts.cpu.rows import ChannelMoments, GroupScales, Lines, ScalePixels, XSteps, YSteps
from bslite.kernels.contracts.cpu.shares import Shares
from bslite.kernels.contracts.rows import GroupWork
from bslite.plan.core.loops import merged_axes
from bslite.plan.core.views import View
from bslite.plan.cpu.ops.move import in_bytes
from bslite.plan.cpu.sharing import share_image, share_rows
from bslite.plan.cpu.step import CpuBuilder, step

BAND_PIXELS = 512  # pixels of a partial sum: fixed, so that results do not depend on the number of threads
#: Pixels added one after the other where they lie along one axis. In longer chains the roundings of equal
#: values add up; a line costs some time, however short.
LINE_PIXELS = range(8, 65)


def group_step(b: CpuBuilder, work: GroupWork, x: View, y: View) -> bool:
    """Append the steps from x to y, both with channels innermost; return False, without a step, where the
    pixels lie along too many axes.
    """
    found = lines_of(x, y)
    if found is None:
        return False
    (lines, pixels), (x_strides, y_strides) = found
    n, channels = x.shape[:2]
    machine = b.machine
    registers = -(-channels // machine.lanes)
    padded = -(-registers // 2) * 2 * machine.lanes
    band_lines = lines_of_band(lines, pixels)
    bands = -(-lines // band_lines)
    loads = float(n * registers * lines * pixels)
    size = Lines(lines, pixels, channels, padded)
    from_x = in_bytes((x.strides[0], *x_strides))
    moments = b.dense((n * bands * 3 * padded,))
    scales = b.dense((n * 3 * padded,))

    blocks = share_image(machine, n * bands, 1, channels, 3 * loads)
    cut = Shares(band_lines, bands, blocks.blocks, blocks.block_registers)
    first = ChannelMoments(x.start, moments.start, XSteps(*from_x), size, cut)
    step(b, first, n * bands * blocks.blocks, [x], [moments])

    groups = work.groups
    item_groups, items = share_rows(machine, n * groups, 8.0 * n * channels * bands)
    second = GroupScales(
        moments.start, scales.start, work.weight or moments.start, work.bias or moments.start,
        has_weight=int(work.weight is not None), has_bias=int(work.bias is not None), eps=work.eps,
        groups=groups, item_groups=item_groups, all_groups=n * groups, group_channels=channels // groups,
        padded=padded, lines=lines, pixels=pixels, band_lines=band_lines, bands=bands,
    )  # fmt: skip
    step(b, second, items, [moments], [scales])

    shares = share_image(machine, n, lines, channels, 2 * loads)
    to_y = in_bytes((y.strides[0], *y_strides))
    third = ScalePixels(
        x.start, y.start, scales.start, XSteps(*from_x), YSteps(*to_y), size, shares, Epilogue.of(work.act)
    )
    step(b, third, n * shares.bands * shares.blocks, [x, scales], [y])
    return True


def lines_of_band(lines: int, pixels: int) -> int:
    """The lines of a band."""
    return min(lines, max(1, BAND_PIXELS // pixels))


def lines_of(*views: View) -> tuple[Sequence[int], Sequence[Sequence[int]]] | None:
    """The axes after the channels as lines of pixels: the number of both, and their strides in each of the
    ``views`` of one shape. None if there are more axes.
    """
    shape, strides = views[0].shape, [v.strides[2:] for v in views]
    sizes, runs = merged_axes(shape[2:], strides, by=len(views) - 1)
    if len(shape) == 4:
        sizes, runs = list(shape[2:]), [list(run) for run in strides]
    if len(sizes) > 2:
        return None
    if len(sizes) == 1:  # cut the single axis where it divides
        fits = [d for d in range(1, min(sizes[0], BAND_PIXELS) + 1) if sizes[0] % d == 0]
        pixels = next((d for d in reversed(fits) if d in LINE_PIXELS), fits[-1])
        sizes, runs = [sizes[0] // pixels, pixels], [[pixels * run[0], run[0]] for run in runs]
    return (sizes, runs) if sizes else ([1, 1], [[0, 0] for _ in views])
