"""A run of layers as one "stack" step: plans for one image or bands of it, linked to the memory outside."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from bslite.kernels.contracts.cpu.stack import Stacked
from bslite.ops import Shape
from bslite.passes import Layer
from bslite.plan.core.bands import Crop, Rows, crop, row_map, share
from bslite.plan.core.concats import place_concats
from bslite.plan.core.memory import place_buffers
from bslite.plan.core.views import NO_HALO, Buffer, View, size_of, with_halo
from bslite.plan.cpu.banding import choose_bands
from bslite.plan.cpu.chain_steps import lower_chain
from bslite.plan.cpu.chains import needed_after, units
from bslite.plan.cpu.halos import halo_needs
from bslite.plan.cpu.layer_steps import lower_layer
from bslite.plan.cpu.line_sums import want_line_sums
from bslite.plan.cpu.outside import Outside
from bslite.plan.cpu.phases import shared_inputs
from bslite.plan.cpu.scratch import scratch_of
from bslite.plan.cpu.stacks import Stack, shown
from bslite.plan.cpu.step import Band, CpuBuilder, CpuPlan, End, step, used_consts
from bslite.plan.cpu.stored_cells import without_float32
from bslite.plan.cpu.target import Cpu


def lower_layers(
    b: CpuBuilder, layers: Sequence[Layer], stacks: Sequence[Stack], outputs: Collection[str]
) -> None:
    """Append the steps of all layers, runs of them as ``stacks``, elementwise ones as chains; ``outputs`` are
    needed at the end.
    """
    readers: dict[str, list[int]] = {}
    for i, layer in enumerate(layers):
        for name in layer.inputs:
            readers.setdefault(name, []).append(i)
    found = units(layers, stacks, b.shapes, b.dtypes, b.second, b.tuning.chains)
    want_line_sums(b, (layers[i] for unit in found if unit.stack is None for i in unit.layers))
    for unit in found:
        run = [layers[i] for i in unit.layers]
        if unit.stack is not None:
            for constant in [n for n in run if n.node.op == "constant"]:
                lower_layer(b, constant)  # the same for all images
            rest = [n for n in run if n.node.op != "constant"]
            lower_stack(b, rest, unit.stack.leaving(layers, outputs), unit.stack.bands)
        elif unit.form is not None and len(run) > 1:
            lower_chain(b, run, unit.form, needed_after(unit, layers, readers, outputs))
        else:
            b.layer = run[0].members
            lower_layer(b, run[0])


def lower_stack(b: CpuBuilder, layers: Sequence[Layer], leaving: Sequence[str], bands: int = 1) -> None:
    """Append the step for ``layers`` in ``bands`` bands of rows; ``leaving`` are needed after it."""
    shared = {name for layer in layers for name in shared_inputs(layer)}
    sums = {layer.name for layer in layers if layer.node.declaration.sums_images}
    taken = [name for name in taken_values(layers) if b.values[name].buffer not in b.consts]
    images = [name for name in (*taken, *(layer.name for layer in layers)) if name not in shared | sums]
    batch = b.shapes[images[0]][0]
    assert all(b.shapes[name][0] == batch for name in images)
    single = {**b.shapes} | {name: (1, *b.shapes[name][1:]) for name in images}
    b.layer = tuple(m for layer in layers for m in layer.members)
    reads = [with_halo(b.values[n]) for n in taken]
    writes = [b.write(name) for name in leaving]
    # Layers inside may also read a value that leaves, from its place outside, with the zeros beside it.
    reads += [with_halo(view) for view in writes if view.halo != NO_HALO]
    assert bands == 1 or bands <= min(single[name][2] for name in leaving)
    maps = {}
    if bands > 1:
        found = {layer.name: row_map(layer.node, b.spec.param_shapes(layer.node)) for layer in layers}
        maps = {name: reads for name, reads in found.items() if reads is not None}
        assert len(maps) == len(layers)
    stacks: list[Stack] = []
    if (
        bands == 1 and not shared | sums
    ):  # an image too large for one core's L2 goes through in bands within the stack
        alone = dataclasses.replace(b.machine, threads=1)
        runs = choose_bands(
            layers, b.spec, single, b.second, alone, 1, range(len(layers)), leaving, b.tuning.banding
        )
        stacks = [Stack(r.start, r.stop, r.bands) for r in runs]
    plans: list[CpuPlan] = []
    parts: list[Band] = []
    around = Outside(b, batch)
    for band in range(bands):
        cut = crop(layers, maps, single, leaving, band, bands) if bands > 1 else Crop({}, single)
        mine = {name: share(single[name][2], band, bands) for name in leaving} if bands > 1 else {}
        plan, ends = _band(b, layers, cut, leaving, mine, stacks, shared, around)
        same = next((i for i, other in enumerate(plans) if other == plan), len(plans))
        if same == len(plans):
            plans.append(plan)
        parts.append(Band(same, tuple(ends)))
    made = step(b, Stacked(), batch * bands, [*reads, *around.read], [*writes, *around.written])
    made.plans, made.bands = tuple(plans), tuple(parts)
    for finish in around.after:
        finish(b)


def taken_values(layers: Sequence[Layer]) -> list[str]:
    """The values that a run of layers reads and does not make, in order."""
    made = {layer.name for layer in layers}
    return list(dict.fromkeys(n for layer in layers for n in layer.inputs if n not in made))


def _band(
    b: CpuBuilder,
    layers: Sequence[Layer],
    cut: Crop,
    leaving: Sequence[str],
    mine: Mapping[str, Rows],
    stacks: Sequence[Stack],
    shared: Collection[str],
    around: Outside,
) -> tuple[CpuPlan, list[End]]:
    """The plan of one band of one image, and its ends.

    ``mine``: the rows that the band writes, of each value that leaves it. ``stacks``: nested ones.
    ``shared``: the values that all images read whole.
    """
    shapes = dict(cut.whole) | {name: _height(cut.whole[name], z - a) for name, (a, z) in cut.rows.items()}
    places = place_concats(shown(layers, stacks, leaving), shapes)
    alone = Cpu(dataclasses.replace(b.machine, threads=1), b.tuning)
    halos = halo_needs(layers, places, b.spec, cut)
    inner = CpuBuilder(b.spec, shapes, alone, places, halos, cut, b.second)
    inner.around = around
    ends = around.ends = []
    for name in taken_values(layers):
        outside = b.values[name]
        if outside.buffer in b.consts:
            const = b.consts[outside.buffer]
            copy = inner.const(const.recipe, *const.keys, **dict(const.args))
            view = dataclasses.replace(outside, buffer=copy)
            if name not in shared and view.shape[:1] == (b.shapes[leaving[0]][0],) and view.strides[0] == 0:
                view = view.slice(0, 0, 1)  # repeated for each image, of which this is one
            whole = name not in cut.rows or view.shape[2] == 1
            inner.values[name] = view if whole else view.slice(2, *cut.rows[name])
            continue
        if name in shared:
            inner.values[name] = around.share(inner, outside)
            continue
        callers = b.buffers[outside.buffer].kind == "input"
        kind = "input" if callers else "outer"
        inner.values[name] = _end(inner, ends, f"in{len(ends)}", name, outside, kind)
    taken = {name: cut.rows[name] for name in leaving} if cut.rows else {}
    outs = {
        name: _end(inner, ends, f"out{len(ends)}", name, b.values[name], "outer", mine.get(name))
        for name in leaving
    }
    # The band never writes rows of another band outside: for a while they would hold partial sums, or values
    # before their activation, while the other band reads them.
    inner.write_outputs_to({name: view for name, view in outs.items() if taken.get(name) == mine.get(name)})
    lower_layers(inner, layers, stacks, leaving)
    inner.layer = ("ends",)
    for name, view in outs.items():
        value = inner.values[name]
        if value.buffer != view.buffer:
            if name in mine:
                first, last = mine[name]
                value = value.slice(2, first - taken[name][0], last - taken[name][0])
            inner.copy(value, view)
    without_float32(inner, ())
    plan = CpuPlan(
        model=f"{layers[0].name} to {layers[-1].name}",
        shapes=tuple(v.shape for v in inner.values.values() if v.buffer.startswith("in")),
        threads=1,
        steps=inner.steps,
        buffers=inner.buffers,
        consts=used_consts(inner, list(outs.values())),
        values=inner.values,
        inputs=[],
        outputs=list(outs.values()),
    )
    place_buffers(plan)
    plan.scratch_size = scratch_of(plan)
    return plan, ends


def _end(
    b: CpuBuilder, ends: list[End], end: str, name: str, outside: View, kind: str, rows: Rows | None = None
) -> View:
    """The buffer ``end`` in a band's plan: the band's part, or ``rows``, of the value ``name``.

    ``outside`` is the whole value.
    """
    shape, halo, offset = b.shapes[name], outside.halo, outside.offset
    rows = rows or b.crop.rows.get(name)
    if rows is not None:
        first, last = rows
        shape = _height(shape, last - first)
        offset += first * outside.strides[2]
        if halo != NO_HALO:
            top, left, bottom, right = halo
            at_start, at_end = first == 0, last == outside.shape[2]
            if len(shape) == 3:
                halo = (top, left * at_start, bottom, right * at_end)
            else:
                halo = (top * at_start, left, bottom * at_end, right)
    b.buffers[end] = Buffer(end, size_of(shape[1:]), kind)
    ends.append(End(end, outside.buffer, offset, outside.strides[0]))
    return View(end, 0, (1, *shape[1:]), outside.strides, halo)


def _height(shape: Shape, rows: int) -> Shape:
    return (*shape[:2], rows, *shape[3:])
