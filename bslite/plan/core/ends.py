"""Both ends of a plan: where its inputs lie, and where its outputs must be at the end."""

from collections.abc import Sequence

from bslite.ops import Shape
from bslite.passes import Layer
from bslite.plan.core import views
from bslite.plan.core.builder import AnyBuilder
from bslite.plan.core.views import Buffer, View, contiguous, size_of
from bslite.spec import ModelSpec, Node


def place_inputs(b: AnyBuilder, shapes: Sequence[Shape], strides: Sequence[Shape] | None) -> None:
    """Record the caller's arrays as values; ``strides`` in elements, row-major if not given."""
    strides = strides or [contiguous(s) for s in shapes]
    for i, (declared, shape, stride) in enumerate(zip(b.spec.inputs, shapes, strides, strict=True)):
        buffer = Buffer(f"input{i}", size_of(shape), "input")
        b.buffers[buffer.name] = buffer
        b.values[declared.name] = View(buffer.name, 0, tuple(shape), tuple(stride))


def lie_as_images(
    spec: ModelSpec, shapes: Sequence[Shape], strides: Sequence[Shape] | None
) -> frozenset[str]:
    """The inputs that have their channels last in memory."""
    given = zip(spec.inputs, shapes, strides or map(contiguous, shapes), strict=True)
    return frozenset(declared.name for declared, shape, lies in given if views.channels_last(shape, lies))


def place_outputs(
    b: AnyBuilder, layers: Sequence[Layer], channels_last: bool = False
) -> tuple[list[View], dict[str, View]]:
    """Views of the output arrays, and, by name, those that a layer may write in place. They are row-major,
    or, with ``channels_last``, those of images have their channels last.
    """
    outputs = []
    made_by = {layer.name: layer for layer in layers}
    direct: dict[str, View] = {}
    for i, name in enumerate(b.spec.outputs):
        shape = b.shapes[name]
        buffer = Buffer(f"output{i}", size_of(shape), "output")
        b.buffers[buffer.name] = buffer
        image = len(shape) == 4 and b.inner(name) == 1
        permuted = name in made_by and len(shape) == 4 and made_by[name].node.op == "permute"
        images = channels_last and image and not permuted
        lies = (shape[0], *shape[2:], shape[1]) if images else shape
        view = View(buffer.name, 0, lies, contiguous(lies))
        outputs.append(view.permute((0, 3, 1, 2)) if images else view)
        if permuted:
            direct.setdefault(*_before(made_by[name].node, outputs[-1]))
        elif name in made_by and shape and (images or not image or shape[1] == 1):
            direct.setdefault(name, outputs[-1])
    return outputs, direct


def copy_outputs(b: AnyBuilder, outputs: Sequence[View]) -> None:
    """Append copies of the outputs that lie elsewhere."""
    b.layer = ("outputs",)
    for name, view in zip(b.spec.outputs, outputs, strict=True):
        if b.values[name].buffer != view.buffer:
            b.copy(b.values[name], view)


def _before(permute: Node, y: View) -> tuple[str, View]:
    """What is permuted, and where it lies if the result is ``y``."""
    order = permute.attrs["order"]
    places = [order.index(axis) for axis in range(len(order))]
    return permute.inputs[0], y.permute(places)
