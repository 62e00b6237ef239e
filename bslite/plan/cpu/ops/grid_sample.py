"""Sampling at positions as one step, channels innermost; each item a run of positions."""

from __future__ import annotations

from bslite.ops.grid_sample import MODES, PADDINGS
from bslite.passes import Layer
from bslite.plan.core.lowering import CPU
from bslite.plan.core.views import View, size_of
from bslite.plan.cpu.sharing import share_rows
from bslite.plan.cpu.step import CpuBuilder, untyped

SCRATCH = 112  # cells: `kernels.cpu.windows.grid_sample.SCRATCH` bytes
TAP_CYCLES, POINT_CYCLES = 4.0, 60.0


def as_volume(view: View) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Planes, lines and pixels, channels left out; strides of images and of these. An image is a volume of
    one plane.
    """
    missing = 5 - len(view.shape)
    sizes = (*(1,) * missing, *view.shape[2:])
    return sizes, (view.strides[0], *(0,) * missing, *view.strides[2:])


def sampling(layer: Layer) -> dict[str, int]:
    """How positions are meant, as kernels are told."""
    attrs = layer.node.attrs
    return {
        "mode": MODES.index(attrs["mode"]), "padding": PADDINGS.index(attrs["padding"]),
        "align": int(attrs["align_corners"]),
    }  # fmt: skip


@CPU.register("grid_sample")
def lower_grid_sample(b: CpuBuilder, layer: Layer) -> None:
    """Taps of a position, then all channels."""
    attrs = layer.node.attrs
    x = b.read(layer.node.inputs[0], inner=1, exact=True)
    grid = b.flat(b.values[layer.node.inputs[1]])
    y, home = b.writable(layer.name, 1)
    axes = len(x.shape) - 2
    (have, x_steps), (out, y_steps) = as_volume(x), as_volume(y)
    points = x.shape[0] * size_of(out)
    taps = {"nearest": 1, "linear": 2, "cubic": 4}[attrs["mode"]] ** axes
    registers = -(-x.shape[1] // b.machine.lanes)
    cycles = points * (POINT_CYCLES * axes + TAP_CYCLES * taps * registers)
    item_points, items = share_rows(b.machine, points, cycles)
    args = {
        "depth": have[0], "height": have[1], "width": have[2], "planes": out[0], "lines": out[1],
        "pixels": out[2], "channels": x.shape[1], "points": points, "item_points": item_points, "axes": axes,
        **sampling(layer),
    }  # fmt: skip
    args |= {f"x{i}": 4 * s for i, s in enumerate(x_steps)} | {f"y{i}": 4 * s for i, s in enumerate(y_steps)}
    operands = {role: (v.buffer, v.offset) for role, v in (("x", x), ("grid", grid), ("y", y))}
    untyped(b, "grid_sample", items, args, operands, [x, grid], [y], scratch=SCRATCH)
    if y is not home:
        b.copy(y, home)
