"""Values rounded to bfloat16, two neighbours to a cell, for layers that multiply cells.

A layer of C channels is then one of C / 2 cells: its loops, panels and register tiles are those of float32,
and one instruction does twice the work. It is chosen by the sizes of the layer alone, so an image in a batch
has the bits that it has alone.
"""

from dataclasses import replace

from bslite.kernels.contracts.cpu.rows import Rounded, RowAxes
from bslite.kernels.contracts.cpu.tiles import Added
from bslite.passes import Layer, readers
from bslite.passes.families import CONVS
from bslite.plan.core.loops import merged_axes, padded
from bslite.plan.core.views import NO_HALO, Halo, View, size_of
from bslite.plan.cpu.ops.move import in_bytes
from bslite.plan.cpu.outside import inexact_flag
from bslite.plan.cpu.sharing import share_rows
from bslite.plan.cpu.step import CpuBuilder, step
from bslite.plan.cpu.stored_cells import stored_by_makers

LEAST = 16  # outputs of a group: of fewer, most of a register would be empty
LONGEST = 2048  # numbers of a row that is made of several pixels
ROUND = 0.2  # cycles to round a number,
APART = 15.0  # and more for a pixel of an odd number of them, which is rounded by itself
OUTER = 3  # axes around a row


def on_dots(
    b: CpuBuilder, key: str | None, depth: int, channels: int, groups: int = 1, reads: float = 1.0
) -> bool:
    """Whether dot products of bfloat16 compute a layer of ``depth`` inputs and ``channels`` outputs for each
    of the ``groups``, whose weights are the parameter ``key``. ``reads``: how often an input is read, the
    taps of a filter by the outputs for each input. Of what is measured
    `dot_cycles` alone decides.
    """
    machine = b.machine
    if not machine.dot_cycles or key is None or key in b.tuning.inexact:
        return False
    if channels < LEAST or (groups > 1 and depth % 2):
        return False
    saved = depth - cells(depth) * machine.dot_cycles
    gained = reads * saved * -(-channels // machine.lanes)
    return gained > ROUND * depth + APART * (depth % 2)


def cells(numbers: int) -> int:
    """The cells of so many numbers."""
    return -(-numbers // 2)


def rounded(b: CpuBuilder, layer: Layer, x: View, halo: Halo = NO_HALO) -> View:
    """``x`` as cells along axis 1, which is contiguous, with ``halo`` zeros around it; once for all
    layers that read it so.
    """
    found = rounded_by_makers(b, layer, x, halo)
    if found is None:
        found = b.rounded[x, halo] = _rounded(b, layer, x, halo)
    return found


def rounded_by_makers(b: CpuBuilder, layer: Layer, x: View, halo: Halo = NO_HALO) -> View | None:
    """`rounded`, where the steps that make x can store it so, else None."""
    key = x, halo
    if key not in b.rounded and (stored := stored_by_makers(b, layer, x, halo)) is not None:
        b.rounded[key] = stored
    return b.rounded.get(key)


def rounded_for_some(b: CpuBuilder, layer: Layer, name: str, halo: Halo) -> View | None:
    """The value ``name`` as cells with ``halo`` zeros or more around it, for a reader of any strides, where
    steps store it so already, or can without harm to others.
    """
    value = replace(b.values[name], halo=NO_HALO)
    for (view, zeros), made in b.rounded.items():
        enough = all(have >= need for have, need in zip(zeros, halo, strict=True))
        if enough and replace(view, halo=NO_HALO) == value:
            return made
    others = [n for n in readers(b.spec)[name] if n.name != layer.node.name and n.declaration.plain in CONVS]
    in_place = [n for n in others if max(n.attrs["stride"]) == 1]
    if any(any(n.attrs["padding"]) != (halo != NO_HALO) for n in in_place):
        return None  # cells are stored once, as those want them who read them where they lie
    return rounded_by_makers(b, layer, b.values[name], halo)


def rounded_residual(b: CpuBuilder, layer: Layer, x: View) -> tuple[View, Added]:
    """The residual ``x`` of a layer on tiles of one part, and how it is added: as cells, where a step stores
    it so, for others or for this layer alone. Else its store rounds the numbers, to the same.
    """
    name = layer.residual
    assert name is not None
    first = _first_row(b.values[name], x)
    made = None if first is None else rounded_for_some(b, layer, name, NO_HALO)
    if made is None or first is None:
        return x, Added.ROUNDED
    return made.slice(2, first, first + x.shape[2]), Added.CELLS


def _first_row(value: View, x: View) -> int | None:
    """The first of the rows of ``value`` that ``x`` is; None if it is no such rows."""
    first, rest = divmod(x.offset - value.offset, value.strides[2] or 1)
    if rest or not 0 <= first <= value.shape[2] - x.shape[2]:
        return None
    rows = value.slice(2, first, first + x.shape[2])
    return first if replace(rows, halo=NO_HALO) == replace(x, halo=NO_HALO) else None


def _rounded(b: CpuBuilder, layer: Layer, x: View, halo: Halo) -> View:
    images, depth, *rest = x.shape
    y = b.fresh((images, cells(depth), *rest), 1, halo)
    sizes, (xs, ys) = merged_axes(x.shape, [x.strides, y.strides], by=1, keep_last=1)
    if len(sizes) - 1 > OUTER:
        plain = b.fresh(x.shape, 1, NO_HALO)
        b.copy(x, plain)
        return _rounded(b, layer, plain, halo)
    sizes, xs, ys, length = sizes[:-1], xs[:-1], ys[:-1], depth
    if sizes and depth % 2 == 0 and (xs[-1], 2 * ys[-1]) == (depth, depth):
        fitting = range(1, max(1, LONGEST // depth) + 1)
        pixels = max(n for n in fitting if sizes[-1] % n == 0)
        length *= pixels
        sizes[-1] //= pixels
        xs[-1], ys[-1] = xs[-1] * pixels, ys[-1] * pixels
    rows = size_of(tuple(sizes))
    item_rows, items = share_rows(b.machine, rows, ROUND * rows * length)
    n, (xs, ys) = padded(sizes, [xs, ys], OUTER)
    along = RowAxes(in_bytes(xs), in_bytes(ys), n[1], n[2], rows, item_rows)
    step(b, Rounded(x.start, y.start, along, length, inexact_flag(b, layer)), items, [x], [y])
    return y
