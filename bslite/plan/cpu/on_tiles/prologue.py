"""Prologues: a scale and shift of each channel, and a clamp, computed while a layer's pixels are split.

A batch norm before a convolution, or the gate of a squeeze-and-excitation block, is a step of its own, which
reads and writes a value. A convolution of one pixel that is the only one to read the result splits it into
parts, and can compute it on the way, by the same operations in the same order.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from bslite.kernels.contracts.activation import Activation
from bslite.kernels.contracts.cpu.elementwise import Elementwise
from bslite.kernels.contracts.cpu.epilogue import Epilogue
from bslite.kernels.contracts.cpu.tiles import Prologue
from bslite.machine import Machine
from bslite.ops import Shape
from bslite.passes import Layer, readers
from bslite.plan.core.views import NO_HALO, View
from bslite.plan.cpu.step import CpuBuilder
from bslite.plan.cpu.work import parts_of
from bslite.plan.shared.activation import activation
from bslite.plan.shared.prologue import gated
from bslite.spec import ModelSpec, Node


class Scaled(NamedTuple):
    """``min(hi, max(lo, x * scale + shift))``, all of one shape; no shift if None. ``layers``: whose."""

    x: View
    scale: View
    shift: View | None
    lo: float
    hi: float
    layers: tuple[str, ...]

    @property
    def record(self) -> Prologue:
        """The same for a kernel."""
        shift = self.shift or self.scale
        return Prologue(
            1 + (self.shift is not None), self.scale.start, shift.start, 4 * self.scale.strides[0],
            4 * shift.strides[0], self.lo, self.hi,
        )  # fmt: skip

    @property
    def by_image(self) -> bool:
        """Whether images have scales of their own."""
        return any(v is not None and v.shape[0] > 1 and v.strides[0] != 0 for v in (self.scale, self.shift))


def note_scaled(b: CpuBuilder, function: str, operands: Sequence[View], y: View, act: Activation) -> None:
    """Note the step just appended, ``y = act(function(*operands))``, if it is such a function."""
    end = Epilogue.of(act)
    if function not in ("affine", "mul") or len(y.shape) < 3 or end.after.activation is not None:
        return
    first, second, *rest = operands
    if function == "mul" and not _of_channels(second):
        first, second = second, first
    if all(map(_of_channels, (second, *rest))) and first.strides[1] == 1:
        b.scaled[y] = Scaled(first, second, rest[0] if rest else None, end.lo, end.hi, b.layer)


def _of_channels(view: View) -> bool:
    """Whether a view has one number for each channel, side by side."""
    sizes = zip(view.shape[2:], view.strides[2:], strict=True)
    return view.strides[1] == 1 and not any(n > 1 and s for n, s in sizes)


def take_scaled(b: CpuBuilder, layer: Layer, x: View) -> Scaled | None:
    """What computes the input ``x`` of a layer, whose step is taken out of the plan; None, without a change,
    if others read it, or it is no such function.
    """
    name = layer.node.inputs[0]
    value = b.values[name]
    found: Scaled | None = b.scaled.get(value)
    if found is None or b.layerwise or replace(x, halo=NO_HALO) != replace(value, halo=NO_HALO):
        return None
    if not _reads_alone(b.spec, layer.node, name):
        return None
    made = next(s for s in b.steps if isinstance(s.record, Elementwise) and s.record.y == value.start)
    b.steps.remove(made)
    return found


def _reads_alone(spec: ModelSpec, node: Node, name: str) -> bool:
    """Whether a node is the only one that needs a value."""
    return name not in spec.outputs and [n.name for n in readers(spec).get(name, [])] == [node.name]


def is_prologue(
    layer: Layer, then: Layer, spec: ModelSpec, shapes: Mapping[str, Shape], machine: Machine
) -> bool:
    """Whether `take_scaled` will find a layer when ``then`` is lowered: what stacks are priced by."""
    node, params = then.node, spec.param_shapes(then.node)
    if node.op != "conv2d" or not parts_of(node, params, machine) or layer.residual is not None:
        return False
    if node.attrs["groups"] > 1 or any(node.attrs["padding"]) or params["weight"][2:] != (1, 1):
        return False
    if layer.node.op not in ("batch_norm", "scale_shift") and gated(layer, shapes) is None:
        return False
    clamped = Epilogue.of(activation(layer.activation)).after.activation is None
    return clamped and node.inputs[0] == layer.name and _reads_alone(spec, node, layer.name)
