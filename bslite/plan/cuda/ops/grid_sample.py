"""Sampling at positions: channels side by side, those of several positions in a block where they are few."""

from __future__ import annotations

from bslite.passes import Layer
from bslite.plan.core.lowering import CUDA
from bslite.plan.core.views import size_of
from bslite.plan.cpu.ops.grid_sample import as_volume, sampling
from bslite.plan.cuda.launch import CudaBuilder, untyped
from bslite.plan.cuda.rows import block_threads, power_above

ACROSS = 32  # channels side by side at most


@CUDA.register("grid_sample")
def lower_grid_sample(b: CudaBuilder, layer: Layer) -> None:
    """One launch."""
    x, grid = b.read(layer.node.inputs[0], inner=1), b.flat(b.values[layer.node.inputs[1]])
    y, home = b.writable(layer.name, 1)
    (have, x_steps), (out, y_steps) = as_volume(x), as_volume(y)
    points, channels, threads = x.shape[0] * size_of(out), x.shape[1], block_threads(b)
    across = min(ACROSS, threads, power_above(channels))
    numbers = {
        "depth": have[0], "height": have[1], "width": have[2], "planes": out[0], "lines": out[1],
        "pixels": out[2], "channels": channels, "points": points,
    }  # fmt: skip
    for letter, steps in (("x", x_steps), ("y", y_steps)):
        numbers |= {f"{letter}{i}": s for i, s in enumerate(steps)}
    variant = {"threads": threads, "across": across, "axes": len(x.shape) - 2, **sampling(layer)}
    operands = {role: (v.buffer, v.offset) for role, v in (("x", x), ("grid", grid), ("y", y))}
    untyped(b, "grid_sample", variant, [-(-points // (threads // across))], [threads], numbers, operands,
           [x, grid], [y])  # fmt: skip
    if y is not home:
        b.copy(y, home)
