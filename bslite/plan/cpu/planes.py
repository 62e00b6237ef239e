"""Pools of planes: images whose pixels are contiguous, channel by channel."""

from collections.abc import Sequence
from typing import NamedTuple

from bslite.kernels.contracts.cpu.windows import AvgPlanes, MaxPlanes, Planes
from bslite.kernels.contracts.record import Operand
from bslite.passes import Layer
from bslite.plan.core.views import View
from bslite.plan.cpu.epilogue import affine, epilogue
from bslite.plan.cpu.sharing import share_planes
from bslite.plan.cpu.step import CpuBuilder, step
from bslite.plan.shared.spans import Span


def window_table(spans: Sequence[Span], stride: int) -> list[int]:
    """The kernels' table entries of windows, for elements ``stride`` bytes apart."""
    return [v for s in spans for v in (s.first * stride, s.length, s.share)]


class Along(NamedTuple):
    """The windows along a line, if none were cut to the image: the first begins so far ``before`` it; each
    has ``wide`` taps and begins ``stride`` elements after the one before it. A stride of 0: they are uneven.
    """

    before: int
    wide: int
    stride: int


def pool_planes(
    b: CpuBuilder, layer: Layer, x: View, y: View, spans: Sequence[Sequence[Span]], dilation: Sequence[int],
    along: Along,
) -> None:  # fmt: skip
    """Append the step that pools planes of contiguous pixels from x to y: ``spans`` hold the windows along
    rows and columns.
    """
    kernel: type[Planes] = MaxPlanes if "max" in layer.node.op else AvgPlanes
    (rows, cols), (n, channels, lines, pixels), width = spans, y.shape, x.shape[3]
    xi, xk, xl, _ = x.strides
    yi, yk, yl, _ = y.strides
    lanes, apart = b.machine.lanes, dilation[1]
    before, wide, stride = along if along.stride in Planes.STRIDES else Along(0, 0, 0)
    registers = -(-pixels // lanes)
    # The last loads of rows and of windows reach up to a register of windows too far.
    line = max(before + width + 2 * lanes, registers * lanes * stride + wide * apart)
    line = -(-line // lanes) * lanes
    tall = max(s.length for s in rows)
    work = n * channels * lines * (2.0 * tall * -(-width // lanes) + 4.0 * registers * wide + 30.0)
    if not stride:
        work += n * channels * lines * 4.0 * sum(s.length for s in cols)
    shares, items = share_planes(b.machine, n * channels, lines, work)
    record = kernel(
        x.start, y.start, Operand(b.const("offsets", values=window_table(rows, 4 * xl)), 0),
        Operand(b.const("offsets", values=window_table(cols, 4)), 0), affine(b, layer.affine, x.start),
        epilogue(layer.activation), x_image=4 * xi, x_channel=4 * xk, x_row=4 * dilation[0] * xl,
        y_image=4 * yi, y_channel=4 * yk, y_line=4 * yl, channels=channels, shares=shares, width=width,
        lines=lines, pixels=pixels, before=before, wide=wide, apart=apart, stride=stride, line=line,
    )  # fmt: skip
    scratch = Planes.AT_ONCE * line + (3 + Planes.AT_ONCE * (not stride)) * registers * lanes
    step(b, record, items, [x], [y], scratch=scratch)
