"""A run of layers as one "stack" step: a plan for one image, its ends tied to the memory outside."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from bslite.passes import Layer
from bslite.plan.builder import Builder, halo_needs
from bslite.plan.concats import place_concats
from bslite.plan.lowering import LOWERINGS
from bslite.plan.memory import place_buffers
from bslite.plan.plan import End, Plan
from bslite.plan.stacks import one_image
from bslite.plan.views import Buffer, View, size_of, with_halo


def lower_stack(b: Builder, layers: Sequence[Layer], later: Sequence[Layer]) -> None:
    """Append the step for ``layers``; ``later`` are all the layers after them."""
    single = one_image(b.spec, b.shapes)
    assert single is not None
    batch = b.shapes[b.spec.inputs[0].name][0]
    made = {layer.name for layer in layers}
    needed = {name for layer in later for name in layer.inputs} | set(b.spec.outputs)
    taken = dict.fromkeys(n for layer in layers for n in layer.inputs if n not in made)
    places = place_concats(layers, single)
    machine = dataclasses.replace(b.machine, threads=1)
    inner = Builder(b.spec, single, machine, halo_needs(layers, places), places)

    ends: list[End] = []
    reads, writes = [], []
    for name in taken:
        outside = b.values[name]
        if outside.buffer in b.consts:
            const = b.consts[outside.buffer]
            copy = inner.const(const.recipe, *const.keys, **dict(const.args))
            inner.values[name] = dataclasses.replace(outside, buffer=copy)
            continue
        callers = b.buffers[outside.buffer].kind == "input"
        inner.values[name] = _end(inner, ends, f"in{len(ends)}", outside, "input" if callers else "outer")
        reads.append(with_halo(outside))
    direct: dict[str, View] = {}
    for layer in layers:
        if layer.name in needed:
            outside = b.write(layer.name)
            direct[layer.name] = _end(inner, ends, f"out{len(ends)}", outside, "outer")
            writes.append(outside)
    inner.write_outputs_to(direct)

    for layer in layers:
        inner.layer = layer.members
        LOWERINGS[layer.node.op](inner, layer)
    inner.layer = ("ends",)
    for name, view in direct.items():
        if inner.values[name].buffer != view.buffer:
            inner.copy(inner.values[name], view)
    plan = Plan(
        model=f"{layers[0].name} to {layers[-1].name}",
        shapes=tuple(v.shape for v in inner.values.values() if v.buffer.startswith("in")),
        threads=1,
        steps=inner.steps,
        buffers=inner.buffers,
        consts=inner.consts,
        values=inner.values,
        inputs=[],
        outputs=list(direct.values()),
    )
    place_buffers(plan)
    b.layer = tuple(m for layer in layers for m in layer.members)
    b.step("stack", batch, {}, {}, reads, writes)
    b.steps[-1].stack, b.steps[-1].ends = plan, tuple(ends)


def _end(inner: Builder, ends: list[End], name: str, outside: View, kind: str) -> View:
    """The buffer ``name`` in the stack's plan for one image of the view ``outside``."""
    inner.buffers[name] = Buffer(name, size_of(outside.shape[1:]), kind)
    ends.append(End(name, outside.buffer, outside.offset, outside.strides[0]))
    return View(name, 0, (1, *outside.shape[1:]), outside.strides, outside.halo)
