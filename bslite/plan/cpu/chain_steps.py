"""A chain of elementwise layers as one step: its items are tiles, and each runs a small plan of its own.

The layers are lowered as ever, but their elementwise steps are only noted. The same steps are then appended
to the plan of a tile, whose arena is a slice of a thread's scratch memory. The kernels are the same, and each
element is computed by itself, so the bits are those of one layer after the other.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from bslite.kernels.contracts.activation import IDENTITY, Activation
from bslite.kernels.contracts.cpu.reduce import Reduce
from bslite.kernels.contracts.cpu.stack import Stacked
from bslite.kernels.contracts.record import Operand
from bslite.kernels.contracts.rows import NormWork, RowWork
from bslite.ops import Shape
from bslite.ops.reduce import REDUCED
from bslite.passes import Layer
from bslite.plan.core.loops import merged_axes
from bslite.plan.core.memory import place_buffers
from bslite.plan.core.plan import Const, accesses
from bslite.plan.core.views import Buffer, View
from bslite.plan.cpu.chains import Form
from bslite.plan.cpu.elementwise import CYCLES, elementwise_step
from bslite.plan.cpu.layer_steps import lower_layer
from bslite.plan.cpu.ops.reduce import reduce_rows
from bslite.plan.cpu.rows import row_step
from bslite.plan.cpu.scratch import scratch_of
from bslite.plan.cpu.step import Band, CpuBuilder, CpuPlan, End, step
from bslite.plan.cpu.target import Cpu
from bslite.plan.cpu.tiles import Tiles, tiles

Key = tuple[str, int, Shape, Shape]


class Call(NamedTuple):
    """A step of a layer, as its lowering asks for it: ``append(b, operands, y)`` appends it to any plan."""

    layer: tuple[str, ...]
    operands: tuple[View, ...]
    y: View
    append: Callable[[CpuBuilder, Sequence[View], View], None]
    cycles: float = 8.0  # of a register of elements
    flag: Operand | None = None


@dataclasses.dataclass(frozen=True)
class Notes(Cpu):
    """The CPU as a target that notes the steps of the layers of a chain and appends none."""

    calls: list[Call] = dataclasses.field(default_factory=list)

    def elementwise_step(
        self,
        b: CpuBuilder,
        function: str,
        operands: Sequence[View],
        y: View,
        act: Activation,
        flag: Operand | None,
    ) -> None:
        """Note the step."""

        def append(b: CpuBuilder, operands: Sequence[View], y: View) -> None:
            elementwise_step(b, function, operands, y, act, flag)

        self.calls.append(Call(b.layer, tuple(operands), y, append, CYCLES.get(function, 4.0), flag))

    def copy(self, b: CpuBuilder, source: View, target: View) -> None:
        """Note the copy, as an elementwise step."""
        self.elementwise_step(b, "copy", [source], target, IDENTITY, None)

    def row_step(self, b: CpuBuilder, work: RowWork, x: View, y: View, axis: int) -> None:
        """Note the step; the constants of its work are made anew where it is appended."""
        assert axis == len(x.shape) - 1
        consts = b.consts

        def append(b: CpuBuilder, operands: Sequence[View], y: View) -> None:
            mine = work
            if isinstance(work, NormWork):
                numbers = [_anew(b, consts, number) for number in (work.weight, work.bias)]
                mine = dataclasses.replace(work, weight=numbers[0], bias=numbers[1])
            last = len(y.shape) - 1
            row_step(b, mine, b.arranged(operands[0], last, exact=True), y, last)

        self.calls.append(Call(b.layer, (x,), y, append))

    def lane_step(self, b: CpuBuilder, work: RowWork, x: View, y: View, axis: int, inner: int) -> None:
        """Refuse: `chains` leaves out layers whose rows stand side by side."""
        raise AssertionError(f"rows side by side in a chain: {b.layer}")

    def reduction(self, b: CpuBuilder, layer: Layer) -> None:
        """Note the reduction of a value along its rows."""

        def append(b: CpuBuilder, operands: Sequence[View], y: View) -> None:
            reduce_rows(b, layer, operands[0], y)

        x = b.values[layer.node.inputs[0]]
        self.calls.append(Call(b.layer, (x,), b.write(layer.name), append))


def _anew(b: CpuBuilder, consts: Mapping[str, Const], number: Operand | None) -> Operand | None:
    """A constant of another plan as one of this plan."""
    if number is None:
        return None
    const = consts[number.buffer]
    return Operand(b.const(const.recipe, *const.keys, **dict(const.args)), number.at)


def lower_chain(b: CpuBuilder, layers: Sequence[Layer], form: Form, leaving: Sequence[str]) -> None:
    """Append the step of a chain, of which ``leaving`` are needed after it.

    Layers whose axes lie in too many orders have a step each.
    """
    target, notes = b.target, Notes(b.machine, b.tuning)
    b.target = notes
    try:
        for layer in layers:
            b.layer = layer.members
            if layer.node.op in REDUCED:
                notes.reduction(b, layer)
            else:
                lower_layer(b, layer)
    finally:
        b.target = target
    b.layer = tuple(m for layer in layers for m in layer.members)
    if len(notes.calls) < 2 or not _by_tiles(b, notes.calls, layers, form, leaving):
        for layer in layers:
            b.layer = layer.members
            lower_layer(b, layer)


def _key(view: View) -> Key:
    """What tells values apart; zeros around an image do not."""
    return view.buffer, view.offset, view.shape, view.strides


def _full(key: Key, shape: Shape) -> bool:
    """Whether a value of a chain of rows has all elements of each row of ``shape``, not one for all."""
    return key[2][-1:] == shape[-1:]


def _by_tiles(
    b: CpuBuilder, calls: Sequence[Call], layers: Sequence[Layer], form: Form, leaving: Sequence[str]
) -> bool:
    """Append the step; return False if there are too many tiles of different places."""
    shape, rows = form
    made = {_key(call.y): call.y for call in calls}
    needed = {_key(b.values[name]) for name in leaving}
    stored = {key: view for key, view in made.items() if key in needed}
    taken = {_key(v): v for call in calls for v in call.operands if _key(v) not in made}
    if not stored:
        return False  # nothing needs any of it
    touched = accesses(list(made.values()))
    if any(some.overlaps(other) for some in accesses(list(taken.values())) for other in touched):
        return False
    outside = {key: view.broadcast(shape) for key, view in (taken | stored).items()}
    strides = [view.strides for view in outside.values()]
    sizes, runs = merged_axes(shape, strides, by=len(taken), keep_last=len(shape) - 1 if rows else None)
    if len(sizes) < 1 + rows:
        sizes, runs = [1, *sizes], [[1, *run] for run in runs]
    if rows and len(sizes) > 1 + Reduce.AXES:
        return False
    cut = tiles(sizes, runs, b.machine, sum(call.cycles for call in calls), len(outside), int(rows))
    if cut is None:
        return False
    ends = {key: f"in{i}" if key in taken else f"out{i}" for i, key in enumerate(outside)}
    plans = []
    for length in cut.lengths:
        tile = (length, *sizes[cut.axis + 1 :])
        within = {}
        for (key, end), run in zip(ends.items(), runs, strict=True):
            part = (*tile[:-1], 1) if rows and not _full(key, shape) else tile
            within[key] = View(end, 0, part, tuple(run[cut.axis :]))
        plans.append(_tile(b, calls, layers, form, tile, within))
    bands = _bands(cut, [(end, outside[key]) for key, end in ends.items()], calls)
    reads = [v for v in taken.values() if v.buffer not in b.consts]
    made_step = step(b, Stacked(), cut.images * len(bands), reads, list(stored.values()))
    made_step.plans, made_step.bands, made_step.tiled = tuple(plans), bands, True
    for layer in layers:
        if _key(b.values[layer.name]) in made.keys() - stored.keys():
            del b.values[layer.name]  # it has no memory outside
    return True


def _bands(cut: Tiles, ends: Sequence[tuple[str, View]], calls: Sequence[Call]) -> tuple[Band, ...]:
    """The tiles of the first image."""
    flags = [End("flags", "flags", 0, 0)] if any(call.flag for call in calls) else []
    return tuple(
        Band(
            plan,
            (
                *(
                    End(end, view.buffer, view.offset + at, image)
                    for (end, view), at, image in zip(ends, places, cut.strides, strict=True)
                ),
                *flags,
            ),
        )
        for plan, places in cut.bands
    )


def _tile(
    b: CpuBuilder,
    calls: Sequence[Call],
    layers: Sequence[Layer],
    form: Form,
    shape: Shape,
    outside: Mapping[Key, View],
) -> CpuPlan:
    """The plan of a tile of this shape; ``outside``: the values that it reads and those that it leaves."""
    alone = Cpu(dataclasses.replace(b.machine, threads=1), b.tuning)
    inner = CpuBuilder(b.spec, {}, alone, {}, second=frozenset())
    for view in outside.values():
        inner.buffers[view.buffer] = Buffer(view.buffer, 1 + view.extent[1], "outer")
    places = dict(outside)
    for call in calls:
        inner.layer = call.layer
        if call.flag:
            inner.buffers["flags"] = dataclasses.replace(b.buffers["flags"], kind="outer")
        operands = [places[_key(view)] for view in call.operands]
        key = _key(call.y)
        if key not in places:
            part = shape if not form.rows or _full(key, form.shape) else (*shape[:-1], 1)
            places[key] = inner.dense(part)
        call.append(inner, operands, places[key])
    keys = {layer.name: _key(b.values[layer.name]) for layer in layers}
    plan = CpuPlan(
        model=f"tile of {layers[0].name} to {layers[-1].name}",
        shapes=(shape,),
        threads=1,
        steps=inner.steps,
        buffers=inner.buffers,
        consts=inner.consts,
        values={name: places[key] for name, key in keys.items() if key in places},
        inputs=[],
        outputs=[],
    )
    place_buffers(plan)
    plan.scratch_size = scratch_of(plan)
    return plan
