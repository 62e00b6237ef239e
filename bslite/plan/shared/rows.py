"""Layers that work along one axis: in rows, which are made contiguous first, or in lanes side by side."""

from bslite.kernels.contracts.record import Operand
from bslite.kernels.contracts.rows import RowWork
from bslite.passes import Layer
from bslite.plan.core.builder import AnyBuilder
from bslite.plan.core.concats import VIEW_OPS
from bslite.plan.core.layouts import FEW


def row_layer(b: AnyBuilder, layer: Layer, work: RowWork, axis: int) -> None:
    """Append the steps of a layer that does ``work`` along ``axis`` of its input."""
    name = layer.node.inputs[0]
    inner = b.inner(name)
    lanes = inner != axis and b.shapes[name][inner] > FEW and b.target.in_lanes(work) and not _viewed(b, name)
    x = b.read(name, inner if lanes else axis, exact=True)
    y, home = b.writable(layer.name, inner if lanes else axis)
    if lanes:
        b.target.lane_step(b, work, x, y, axis, inner)
    else:
        b.target.row_step(b, work, x, y, axis)
    if y is not home:
        b.copy(y, home)


def _viewed(b: AnyBuilder, name: str) -> bool:
    """Whether a value is a view of another one: it lies in any order, and may have to be copied either way.
    By the model alone, as bits must not depend on what a plan fuses.
    """
    return any(node.name == name and node.op in VIEW_OPS for node in b.spec.nodes)


def axis_of(b: AnyBuilder, layer: Layer) -> int:
    """The layer's attribute ``axis``, not negative."""
    return int(layer.node.attrs["axis"]) % len(b.shapes[layer.name])


def parameters(b: AnyBuilder, layer: Layer, *roles: str) -> list[Operand | None]:
    """The layer's parameters as operands; None for a missing one."""
    keys = [layer.node.params.get(role) for role in roles]
    return [Operand(b.const("param", key), 0) if key is not None else None for key in keys]
