"""Attention's operands as matrices along three axes, which both targets' kernels walk by strides."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from bslite.kernels.contracts.attention import Mask
from bslite.ops.attention import OfHeads
from bslite.passes import Layer
from bslite.plan.core.builder import AnyBuilder
from bslite.plan.core.loops import merged_axes, padded
from bslite.plan.core.views import NO_HALO, View
from bslite.spec import Node

OUTER = 3  # axes around the matrices that the kernels walk


class Matrices(NamedTuple):
    """Views of q, k, v, what else is read, and y; ``sizes`` and strides of the axes around the matrices."""

    views: dict[str, View]
    sizes: list[int]
    runs: dict[str, list[int]]
    mask: Mask


def lower(
    b: AnyBuilder,
    layer: Layer,
    operand: Callable[[str], View],
    mask: Callable[[View], View],
    append: Callable[[Any, Layer, Matrices], None],
) -> None:
    """Find the matrices, copy what does not merge into three axes, and ``append`` the step or launch.

    ``operand`` gives the view of an operand by the value's name, ``mask`` that of a mask or noise, as the
    target's kernel needs them. A result with one axis for each matrix is one row.
    """
    node, shape = layer.node, b.shapes[layer.name]
    op = node.declaration
    assert isinstance(op, OfHeads)
    names = dict(zip(op.roles(len(node.inputs), node.attrs), node.inputs, strict=True))
    given = {role: operand(name) for role, name in names.items() if role in op.reads}
    q, k, flat = given["q"], given["k"], "grad" in given
    batch = shape[:-1] if flat else shape[:-2]
    groups = q.shape[-3] // k.shape[-3] if node.attrs["grouped"] else 1
    own = (*batch[:-1], batch[-1] // groups) if groups > 1 else batch  # the axes of k and v
    y, home = b.writable(layer.name, len(shape) - 1)
    views = {
        role: x.broadcast((*(own if role in "kv" else batch), *x.shape[-2:])) for role, x in given.items()
    }
    kind = Mask.NONE
    if "mask" in names:
        kind = {"float32": Mask.ADDED, "bool": Mask.ALLOWED}[b.dtypes[names["mask"]]]
    for role in [role for role in names if role not in given]:
        views[role] = mask(b.values[names[role]]).broadcast((*batch, q.shape[-2], k.shape[-2]))

    def apart(view: View, role: str = "y") -> View:
        """The view with the axes of the others."""
        if flat and role == "y":
            view = view.reshape((*view.shape[:-1], 1, view.shape[-1])) or view
        return _grouped(view, groups, repeat=role in "kv") if groups > 1 else view

    views = {role: apart(x, role) for role, x in views.items()} | {"y": apart(y)}
    merged = _merged(views)
    if merged is None:
        views = {role: copied(b, x) for role, x in views.items() if role != "y"}
        y = b.fresh(shape, len(shape) - 1, NO_HALO)
        views["y"] = apart(y)
        merged = _merged(views)
        assert merged is not None
    append(b, layer, Matrices(views, *merged, kind))
    if y is not home:
        b.copy(y, home)


def copied(b: AnyBuilder, view: View) -> View:
    """A copy in which repeated elements have memory of their own and the last axis is contiguous."""
    fresh = b.fresh(view.shape, len(view.shape) - 1, NO_HALO)
    b.copy(view, fresh)
    return fresh


def scale_of(node: Node, depth: int) -> float:
    """The factor of the scores."""
    return float(1 / math.sqrt(depth) if node.attrs["scale"] is None else node.attrs["scale"])


def _grouped(view: View, groups: int, repeat: bool) -> View:
    """The axis of heads split into heads of k and v, and ``groups`` of q's heads for each; for k and v, each
    head repeated that often.
    """
    (heads, *matrix), (step, *strides) = view.shape[-3:], view.strides[-3:]
    if repeat:
        cut, steps = (heads, groups), (step, 0)
    else:
        cut, steps = (heads // groups, groups), (step * groups, step)
    shape, lead = (*view.shape[:-3], *cut, *matrix), view.strides[:-3]
    return View(view.buffer, view.offset, shape, (*lead, *steps, *strides))


def _merged(views: dict[str, View]) -> tuple[list[int], dict[str, list[int]]] | None:
    """The axes around the matrices as three, with each view's strides; None if there are more than three."""
    shape = views["y"].shape[:-2]
    sizes, runs = merged_axes(shape, [x.strides[:-2] for x in views.values()], by=len(views) - 1)
    if len(sizes) > OUTER:
        return None
    sizes, runs = padded(sizes, runs, OUTER)
    return sizes, dict(zip(views, runs, strict=True))
