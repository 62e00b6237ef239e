"""Lowerings of normalisations. Batch norm is elementwise instead: its statistics are parameters."""

import dataclasses

from bslite.kernels.contracts.activation import IDENTITY
from bslite.kernels.contracts.rows import GroupWork, Norm, NormWork, ResponseWork
from bslite.passes import Layer
from bslite.plan.core.builder import AnyBuilder
from bslite.plan.core.lowering import lowers
from bslite.plan.core.views import NO_HALO, contiguous, size_of
from bslite.plan.shared.activation import activation
from bslite.plan.shared.elementwise import per_channel
from bslite.plan.shared.rows import axis_of, parameters, row_layer


@lowers("normalize")
def lower_normalize(b: AnyBuilder, layer: Layer) -> None:
    """Lower `normalize` along any axis, which is made contiguous first."""
    row_layer(b, layer, NormWork(Norm.UNIT, float(layer.node.attrs["eps"])), axis_of(b, layer))


@lowers("layer_norm", "rms_norm")
def lower_layer_norm(b: AnyBuilder, layer: Layer) -> None:
    """Lower a norm over the last axis in place, or over several axes, one axis in row-major order."""
    shape, axes = b.shapes[layer.name], len(layer.node.attrs["normalized_shape"])
    norm = Norm.LAYER if layer.node.op == "layer_norm" else Norm.RMS
    work = NormWork(norm, float(layer.node.attrs["eps"]), *parameters(b, layer, "weight", "bias"))
    lead, length = shape[: len(shape) - axes], size_of(shape[len(shape) - axes :])
    if axes == 1:
        row_layer(b, layer, work, len(lead))
        return
    x = b.flat(b.values[layer.node.inputs[0]])
    home = b.write(layer.name)
    y = home
    if any(n > 1 and s != e for n, s, e in zip(shape, home.strides, contiguous(shape), strict=True)):
        y = b.dense(shape)
    rows = (*lead, length)
    b.target.row_step(b, work, b.reshaped(x, rows), b.reshaped(y, rows), len(lead))
    if y is not home:
        b.copy(y, home)


@lowers("lrn")
def lower_lrn(b: AnyBuilder, layer: Layer) -> None:
    """Lower a local response norm over windows of channels, which are made contiguous."""
    attrs = layer.node.attrs
    size = attrs["size"]
    work = ResponseWork(
        size // 2, (size - 1) // 2, attrs["alpha"] / size, k=float(attrs["k"]), beta=float(attrs["beta"])
    )
    row_layer(b, layer, work, axis=1)


@lowers("group_norm")
def lower_group_norm(b: AnyBuilder, layer: Layer) -> None:
    """Lower a group norm in three steps: statistics of channels, then those of groups, then every pixel. Of
    planes, in two: each group is a row; then every channel is scaled and shifted.
    """
    if len(b.shapes[layer.name]) == 4 and b.inner(layer.name) != 1:
        _by_rows(b, layer)
        return
    x = b.read(layer.node.inputs[0], inner=1, exact=True)
    y, home = b.writable(layer.name, 1)
    attrs, act = layer.node.attrs, activation(layer.activation)
    work = GroupWork(
        attrs["num_groups"], float(attrs["eps"]), *parameters(b, layer, "weight", "bias"), act=act
    )  # fmt: skip
    if b.target.group_step(b, work, x, y):
        if y is not home:
            b.copy(y, home)
        return
    # The pixels lie along too many axes: volumes with zeros around them, in what is written or read.
    work, y = dataclasses.replace(work, act=IDENTITY), b.fresh(x.shape, 1, NO_HALO) if y is home else y
    if not b.target.group_step(b, work, x, y):
        plain = b.fresh(x.shape, 1, NO_HALO)
        b.copy(x, plain)
        done = b.target.group_step(b, work, plain, y)
        assert done
    if act == IDENTITY:
        b.copy(y, home)
    else:
        b.target.elementwise_step(b, "copy", [y], home, act, None)


def _by_rows(b: AnyBuilder, layer: Layer) -> None:
    """Append the steps of a group norm of planes of contiguous elements."""
    shape, attrs = b.shapes[layer.name], layer.node.attrs
    rows = (shape[0], attrs["num_groups"], size_of(shape[1:]) // attrs["num_groups"])
    x, y = b.flat(b.values[layer.node.inputs[0]]), b.write(layer.name)
    weight, bias = parameters(b, layer, "weight", "bias")
    plain = weight is bias is layer.activation is None
    made = (y.reshape(rows) if plain else None) or b.dense(rows)
    work = NormWork(Norm.LAYER, float(attrs["eps"]))
    b.target.row_step(b, work, b.reshaped(x, rows), made, 2)
    if plain and made.buffer == y.buffer:
        return
    act = activation(layer.activation)
    function = "affine" if weight and bias else "mul" if weight else "add" if bias else "copy"
    numbers = [per_channel(number, shape) for number in (weight, bias) if number is not None]
    b.target.elementwise_step(b, function, [b.reshaped(made, shape), *numbers], y, act, None)
