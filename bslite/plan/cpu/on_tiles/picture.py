"""Images of few channels, for layers on tiles of one part: a row of a window is read where it lies.

Pixels have four numbers of bfloat16, so a row of a window is one run of memory, which begins at a whole cell
for any stride. Nothing is split, and what a step of its own rounds it rounds once.
"""

from bslite.kernels.contracts.cpu.rows import PICTURE, Picture
from bslite.kernels.contracts.cpu.tiles import TERMS
from bslite.passes import Layer
from bslite.plan.core.views import Halo, View
from bslite.plan.core.windows import Window
from bslite.plan.cpu.outside import inexact_flag
from bslite.plan.cpu.sharing import share_rows
from bslite.plan.cpu.step import CpuBuilder, step

ROUND = 5.0  # cycles of a pixel, as a Xeon takes them from L3


def rows_of_windows(b: CpuBuilder, layer: Layer, x: View, window: Window, halo: Halo) -> View:
    """The rows of all windows of ``[N, C, H, W]`` with ``halo`` zeros around it, as cells ``[N, cells of a
    row, H, windows]``, C at most 4.
    """
    n, channels, height, width = x.shape
    top, left, bottom, right = halo
    if width > 1 and x.strides[3] != 1:
        x = b.flat(x)
    whole = (left + width + right) * PICTURE
    # The last block of terms of the last row ends behind it: there are zeros.
    y = b.fresh((n, whole // 2, height, 1), 1, (top, 0, bottom + -(-TERMS // whole), 0))
    (x_image, x_channel, x_line, _), (y_image, _, y_line, _) = x.strides, y.strides
    item_lines, items = share_rows(b.machine, n * height, ROUND * n * height * width)
    record = Picture(
        x.start, y.start, inexact_flag(b, layer), images=n, lines=height, cols=width, channels=channels,
        left=left, right=right, x_image=4 * x_image, x_channel=4 * x_channel, x_line=4 * x_line,
        y_image=4 * y_image, y_line=4 * y_line, item_lines=item_lines,
    )  # fmt: skip
    step(b, record, items, [x], [y])
    cols, pixel = window.cols, PICTURE // 2
    at = y.offset + (left + cols.start) * pixel
    shape = (n, cols.taps * pixel, height, cols.made)
    return View(y.buffer, at, shape, (y_image, 1, y_line, cols.stride * pixel))
