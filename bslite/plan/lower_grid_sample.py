"""Sampling at positions as one step, channels innermost; each item a run of positions."""

from __future__ import annotations

from bslite.ops.grid_sample import MODES, PADDINGS
from bslite.passes import Layer
from bslite.plan.builder import Builder
from bslite.plan.lowering import lowers
from bslite.plan.rows import writable
from bslite.plan.sharing import share_rows
from bslite.plan.views import size_of

SCRATCH = 112  # cells: `kernels.cpu.grid_sample.SCRATCH` bytes
TAP_CYCLES, POINT_CYCLES = 4.0, 60.0


@lowers("grid_sample")
def lower_grid_sample(b: Builder, layer: Layer) -> None:
    """An image is a volume of one plane."""
    attrs = layer.node.attrs
    x = b.read(layer.node.inputs[0], inner=1, exact=True)
    grid = b.flat(b.values[layer.node.inputs[1]])
    y, home = writable(b, layer.name, 1)
    axes, plane = len(x.shape) - 2, (1,) * (5 - len(x.shape))
    have, out = (*plane, *x.shape[2:]), (*plane, *y.shape[2:])
    x_steps = (x.strides[0], *(0,) * len(plane), *x.strides[2:])
    y_steps = (y.strides[0], *(0,) * len(plane), *y.strides[2:])
    points = x.shape[0] * size_of(out)
    taps = {"nearest": 1, "linear": 2, "cubic": 4}[attrs["mode"]] ** axes
    registers = -(-x.shape[1] // b.machine.lanes)
    cycles = points * (POINT_CYCLES * axes + TAP_CYCLES * taps * registers)
    item_points, items = share_rows(b.machine, points, cycles)
    args = {
        "depth": have[0], "height": have[1], "width": have[2], "planes": out[0], "lines": out[1],
        "pixels": out[2], "channels": x.shape[1], "points": points, "item_points": item_points, "axes": axes,
        "mode": MODES.index(attrs["mode"]), "padding": PADDINGS.index(attrs["padding"]),
        "align": int(attrs["align_corners"]),
    }  # fmt: skip
    args |= {f"x{i}": 4 * s for i, s in enumerate(x_steps)} | {f"y{i}": 4 * s for i, s in enumerate(y_steps)}
    operands = {role: (v.buffer, v.offset) for role, v in (("x", x), ("grid", grid), ("y", y))}
    b.step("grid_sample", items, args, operands, [x, grid], [y], scratch=SCRATCH)
    if y is not home:
        b.copy(y, home)
