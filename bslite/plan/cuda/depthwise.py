"""Depthwise convolutions: by the stack kernel, or one element a thread where it has no code for them."""

from __future__ import annotations

from bslite import ops
from bslite.ops.conv import Conv
from bslite.passes import Layer
from bslite.plan.core.views import size_of
from bslite.plan.core.windows import volume
from bslite.plan.cuda.launch import CudaBuilder, untyped
from bslite.plan.cuda.stack.steps import as_stack, small
from bslite.plan.shared.activation import activation

THREADS = 128


def is_depthwise(b: CudaBuilder, layer: Layer) -> bool:
    """Whether a convolution has filters for single channels, and adds nothing in its store."""
    each, groups = b.spec.param_shapes(layer.node)["weight"][1], layer.node.attrs["groups"]
    return bool(each == 1 and groups > 1 and layer.residual is None)


def lower_depthwise(b: CudaBuilder, layer: Layer) -> None:
    """A convolution for which `is_depthwise` holds, along one to three axes."""
    if as_stack(b, layer):
        return
    node, attrs = layer.node, layer.node.attrs
    op = ops.get(node.op)
    assert issubclass(op, Conv)
    missing = (1,) * (3 - op.axes)
    zeros = (0,) * (3 - op.axes)
    x, y = b.read(node.inputs[0]), b.write(layer.name)
    source, target = volume(x), volume(y)
    small(b, source, target)
    k, _, *taps = b.spec.param_shapes(node)["weight"]
    axes = ("planes", "rows", "cols")
    name, first, second = activation(layer.activation)
    threads = min(THREADS, b.machine.block_threads)
    count = size_of(target.shape)
    xi, xc, xp, xr, xx = source.strides
    yi, yc, yp, yr, yx = target.strides
    scalars: dict[str, int | float] = {
        "count": count, "channels": k, "each": k // source.shape[1],
        **dict(zip(axes, target.shape[2:], strict=True)),
        **{f"in_{a}": n for a, n in zip(axes, source.shape[2:], strict=True)},
        **{f"taps_{a}": n for a, n in zip(axes, (*missing, *taps), strict=True)},
        **dict(zip(("front", "top", "left"), (*zeros, *attrs["padding"][: op.axes]), strict=True)),
        **{f"stride_{a}": n for a, n in zip(axes, (*missing, *attrs["stride"]), strict=True)},
        **{f"apart_{a}": n for a, n in zip(axes, (*missing, *attrs["dilation"]), strict=True)},
        "x_image": xi, "x_plane": xp, "x_row": xr, "x_col": xx, "x_channel": xc,
        "y_image": yi, "y_plane": yp, "y_row": yr, "y_col": yx, "y_channel": yc, "a": first, "b": second,
    }  # fmt: skip
    weight = b.const("taps_first", node.params["weight"])
    biased = int("bias" in node.params)
    bias = b.const("param", node.params["bias"]) if biased else weight
    places = {"x": (x.buffer, x.offset), "y": (y.buffer, y.offset), "w": (weight, 0), "bias": (bias, 0)}
    variant = {"biased": biased, "activation": name, "threads": threads}
    untyped(b, "depthwise", variant, [-(-count // threads)], [threads], scalars, places, [x], [y])
