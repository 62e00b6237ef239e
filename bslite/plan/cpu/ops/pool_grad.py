"""Lowerings of what the gradients of pools take."""

from collections.abc import Mapping, Sequence
from typing import Any

from bslite.kernels.contracts.cpu.windows import MaxPoolPlaces, PoolGrad, Taps
from bslite.passes import Layer
from bslite.plan.core.lowering import CPU
from bslite.plan.core.views import View, size_of
from bslite.plan.core.windows import volume
from bslite.plan.cpu.ops.move import in_bytes
from bslite.plan.cpu.sharing import share_image
from bslite.plan.cpu.step import CpuBuilder, step


def _taps(attrs: Mapping[str, Any], size: Sequence[int], windows: Sequence[int]) -> Taps:
    """The windows, along three axes."""
    missing = 3 - len(size)

    def three(numbers: Sequence[int], other: int) -> tuple[int, int, int]:
        return (*(other,) * missing, *numbers)  # type: ignore[return-value]

    return Taps(
        three(size, 1), three(windows, 1), three(attrs["kernel"], 1), three(attrs["stride"], 1),
        three(attrs["before"], 0), three(attrs["dilation"], 1),
    )  # fmt: skip


def _steps(*views: View) -> tuple[list[int], list[tuple[int, ...]]]:
    """The strides of images, and those of planes, lines and pixels, in bytes."""
    strides = [in_bytes(volume(v).strides) for v in views]
    return [s[0] for s in strides], [s[2:] for s in strides]


@CPU.register("max_pool_places")
def lower_max_pool_places(b: CpuBuilder, layer: Layer) -> None:
    """Every window looks at its elements."""
    x = b.read(layer.node.inputs[0], inner=1, exact=True)
    y, home = b.writable(layer.name, 1)
    taps = _taps(layer.node.attrs, x.shape[2:], y.shape[2:])
    n, channels, planes, lines, _ = volume(y).shape
    work = 4.0 * size_of(y.shape) * taps.kernel[0] * taps.kernel[1] * taps.kernel[2] / b.machine.lanes
    cut = share_image(b.machine, n, planes * lines, channels, work)
    images, steps = _steps(x, y)
    record = MaxPoolPlaces(x.start, y.start, *images, *steps, taps, planes * lines, channels, cut)
    step(b, record, n * cut.bands * cut.blocks, [x], [y])
    if y is not home:
        b.copy(y, home)


@CPU.register("pool_grad")
def lower_pool_grad(b: CpuBuilder, layer: Layer) -> None:
    """Every element looks at its windows."""
    g, *places = (b.read(name, inner=1, exact=True) for name in layer.node.inputs)
    y, home = b.writable(layer.name, 1)
    taps = _taps(layer.node.attrs, y.shape[2:], g.shape[2:])
    n, channels, planes, lines, _ = volume(y).shape
    cut = share_image(b.machine, n, planes * lines, channels, 16.0 * size_of(y.shape) / b.machine.lanes)
    at = places[0] if places else g
    images, steps = _steps(g, at, y)
    record = PoolGrad(
        g.start, at.start, y.start, len(places), *images, *steps, taps, planes * lines, channels, cut
    )
    step(b, record, n * cut.bands * cut.blocks, [g, *places], [y])
    if y is not home:
        b.copy(y, home)
