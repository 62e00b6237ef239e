"""Depthwise convolutions: by the stack kernel or, where it has no code for them, an element per thread."""

from bslite import ops
from bslite.kernels.contracts.cuda.windows import Depthwise, DepthwiseVariant, Places
from bslite.kernels.contracts.record import Operand
from bslite.ops.conv import Conv
from bslite.passes import Layer
from bslite.plan.core.views import View, size_of
from bslite.plan.core.windows import volume
from bslite.plan.cuda.launch import CudaBuilder, launch
from bslite.plan.cuda.stack.steps import as_stack, small
from bslite.plan.shared.activation import activation

THREADS = 128


def is_depthwise(b: CudaBuilder, layer: Layer) -> bool:
    """Return whether every filter covers a single channel and the store adds no residual."""
    each, groups = b.spec.param_shapes(layer.node)["weight"][1], layer.node.attrs["groups"]
    return bool(each == 1 and groups > 1 and layer.residual is None)


def lower_depthwise(b: CudaBuilder, layer: Layer) -> None:
    """Append a convolution for which `is_depthwise` holds, along one to three axes."""
    if as_stack(b, layer):
        return
    node, attrs = layer.node, layer.node.attrs
    op = ops.get(node.op)
    assert isinstance(op, Conv)
    missing = (1,) * (3 - op.axes)
    zeros = (0,) * (3 - op.axes)
    x, y = b.read(node.inputs[0]), b.write(layer.name)
    source, target = volume(x), volume(y)
    small(b, source, target)
    k, _, *taps = b.spec.param_shapes(node)["weight"]
    name, first, second = activation(layer.activation)
    threads = min(THREADS, b.machine.block_threads)
    count = size_of(target.shape)
    weight = Operand(b.const("taps_first", node.params["weight"]), 0)
    biased = int("bias" in node.params)
    bias = Operand(b.const("param", node.params["bias"]), 0) if biased else weight
    record = Depthwise(
        x.start, y.start, weight, bias, count, k, k // source.shape[1], *target.shape[2:], *source.shape[2:],
        *missing, *taps, *zeros, *attrs["padding"][: op.axes], *missing, *attrs["stride"], *missing,
        *attrs["dilation"], places_of(source, target), first, second,
    )  # fmt: skip
    variant = DepthwiseVariant(biased, name, threads)
    launch(b, record, variant, [-(-count // threads)], [threads], [x], [y])


def places_of(x: View, y: View) -> Places:
    """Return the strides of two volumes as fields of the record."""
    (xi, xc, *xs), (yi, yc, *ys) = x.strides, y.strides
    return Places(xi, *xs, xc, yi, *ys, yc)
