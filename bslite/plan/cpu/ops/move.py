"""Steps that copy between strided views, write zeros around images, and fill."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from bslite.kernels.contracts.cpu.moves import Copy, CopyAxes, Fill, Halo, Interleave, Transpose, Weave, Widen
from bslite.kernels.contracts.record import Operand
from bslite.plan.core.loops import into_items, merged_axes, padded, split_for_items
from bslite.plan.core.views import View, size_of, with_halo
from bslite.plan.core.windows import volume
from bslite.plan.cpu.sharing import item_count, share_rows
from bslite.plan.cpu.step import CpuBuilder, step

AXES = Copy.AXES
#: Cells of a pixel to one that is copied, from which on registers gain nothing over single cells.
MOST_GAPS = 8
FEW = 8  # turns of a loop: fewer are not worth its start


def in_bytes(strides: Sequence[int]) -> tuple[int, ...]:
    """Strides of float32 elements, as records hold them."""
    return tuple(4 * s for s in strides)


def widen_step(b: CpuBuilder, name: str) -> None:
    """Append a step that widens a model's input of bytes, which becomes a dense value of cells.

    It has a register of bytes or more, side by side.
    """
    x, signed = b.values[name], int(b.dtypes[name] == "int8")
    y, count, b.layer = b.dense(x.shape), size_of(x.shape), (name,)
    parts = max(1, min(item_count(b.machine, 2.0 * count / b.machine.lanes), count // b.machine.lanes))
    step(b, Widen(x.start, y.start, count, parts, signed), parts, [x], [y])
    b.values[name], b.layer = y, ()


def copy_step(b: CpuBuilder, source: View, target: View) -> None:
    """Append a copy of ``source`` to ``target``, views of the same logical shape."""
    sizes, runs = merged_axes(target.shape, [source.strides, target.strides], by=1)
    if not sizes:
        sizes, runs = [1], [[1], [1]]
    sizes, runs = split_for_items(sizes, runs, 2 * b.machine.threads, 1 << 16)
    sizes, runs, run = _without_run(sizes, runs)
    if len(sizes) <= AXES and run <= 2 and _transpose_step(b, source, target, sizes, runs, run):
        return
    if run == 1 and _interleave_step(b, source, target, sizes, runs):
        return
    if run == 1 and _without_gaps_first(b, source, target, sizes[-1]):
        return
    if run < b.machine.lanes:
        sizes, runs = _long_inside(sizes, runs)
    if len(sizes) > AXES:
        _copy_axes_step(b, source, target, sizes, runs, run)
        return
    items = item_count(b.machine, 2.0 * size_of(target.shape) / min(run, b.machine.lanes))
    if len(sizes) == 1:
        sizes, runs = _cut(sizes[0], [step for (step,) in runs], items)
    sizes, runs = into_items(sizes, runs, items, AXES)
    x, y = runs
    record = Copy(source.start, target.start, tuple(sizes), in_bytes(x), in_bytes(y), run)
    step(b, record, sizes[0] * sizes[1], [source], [target])


def _without_gaps_first(b: CpuBuilder, source: View, target: View, cols: int) -> bool:
    """Append two copies where gaps of the source keep squares of registers from one of short lines: the first
    closes them, and lines join.
    """
    strides, lanes = source.closed_up, b.machine.lanes
    if (
        strides is None
        or cols >= lanes
        or max(n for n, s in zip(source.shape, source.strides, strict=True) if s == 1) < lanes
    ):
        return False
    sizes, (_, y) = merged_axes(target.shape, [strides, target.strides], by=1)
    if not sizes or y[-1] != 1 or sizes[-1] < lanes:
        return False
    dense = View(b.buffer(size_of(source.shape)).name, 0, source.shape, strides)
    copy_step(b, source, dense)
    copy_step(b, dense, target)
    return True


def _without_run(sizes: list[int], runs: list[list[int]]) -> tuple[list[int], list[list[int]], int]:
    """The axes around the cells that lie side by side in all operands, and how many these are."""
    if any(run[-1] != 1 for run in runs):
        return sizes, runs, 1
    return sizes[:-1] or [1], [run[:-1] or [0] for run in runs], sizes[-1]


def _cut(size: int, steps: list[int], want: int) -> tuple[list[int], list[list[int]]]:
    """One axis as two, the outer one of ``want`` pieces or more, so that there are items."""
    parts = next(n for n in range(min(want, size), size + 1) if size % n == 0)
    parts = parts if parts <= 16 * want else 1  # a prime, say: items of one turn cost more than they share
    return [parts, size // parts], [[step * (size // parts), step] for step in steps]


def _pieces(size: int, want: int, least: int) -> int:
    """Into how many equal pieces an axis is cut: ``want`` or fewer, none shorter than ``least``."""
    return max(n for n in range(1, min(want, size // least) + 1) if size % n == 0)


def _long_inside(sizes: list[int], runs: list[list[int]]) -> tuple[list[int], list[list[int]]]:
    """The axes with the nearest long one innermost: a loop pays for its start."""
    last = next((a for a in reversed(range(len(sizes))) if sizes[a] >= FEW), len(sizes) - 1)
    order = [*(a for a in range(len(sizes)) if a != last), last]
    return [sizes[a] for a in order], [[run[a] for a in order] for run in runs]


def _copy_axes_step(
    b: CpuBuilder, source: View, target: View, sizes: list[int], runs: list[list[int]], run: int
) -> None:
    """Append a copy over more axes than the copy kernel has loops."""
    x, y = runs
    planes = size_of(tuple(sizes[:-2]))
    each, items = share_rows(b.machine, planes, 2.0 * size_of(target.shape) + 100.0 * planes)
    outer = reversed(range(len(sizes) - 2))
    table = b.const("offsets", values=[cell for a in outer for cell in (sizes[a], 4 * x[a], 4 * y[a])])
    record = CopyAxes(
        source.start, target.start, Operand(table, 0), len(sizes) - 2, planes, each, n=(sizes[-2], sizes[-1]),
        x=in_bytes(x[-2:]), y=in_bytes(y[-2:]), run=run,
    )  # fmt: skip
    step(b, record, items, [source], [target])


def _transpose_step(
    b: CpuBuilder, source: View, target: View, sizes: list[int], runs: list[list[int]], run: int
) -> bool:
    """Append a copy by squares of registers, if different axes are contiguous in source and target."""
    lanes = b.machine.lanes // run
    rows = [a for a in range(len(sizes) - 1) if abs(runs[0][a]) == run and sizes[a] >= lanes]
    if runs[1][-1] != run or runs[0][-1] == run or sizes[-1] < lanes or not rows or len(sizes) > 5:
        return False
    row, items = rows[0], item_count(b.machine, 0.5 * size_of(target.shape))
    x_start, y_start = source.start, target.start
    if runs[0][row] < 0:  # rows that run backwards in the source, from their other end
        starts = [(sizes[row] - 1) * each[row] for each in runs]
        x_start, y_start = (
            s._replace(at=s.at + by) for s, by in zip((x_start, y_start), starts, strict=True)
        )
        runs = [[-step if a == row else step for a, step in enumerate(each)] for each in runs]
    have = size_of(tuple(sizes)) // sizes[row] // lanes
    if have < items and len(sizes) < 5:
        pieces = _pieces(sizes[row], -(-items // have), lanes)
        inner, steps = _cut(sizes[row], [each[row] for each in runs], pieces)
        sizes = [*sizes[:row], *inner, *sizes[row + 1 :]]
        runs = [[*each[:row], *own, *each[row + 1 :]] for each, own in zip(runs, steps, strict=True)]
        row += 1
    x, y = runs
    outer = [a for a in range(len(sizes) - 1) if a != row]
    n, (xs, ys) = padded([sizes[a] for a in outer], [[each[a] for a in outer] for each in runs], 3)
    block_cols, blocks = _blocks(sizes[-1], lanes, -(-items // size_of(tuple(n))))
    record = Transpose(
        x_start, y_start, n[1], n[2], in_bytes(xs), in_bytes(ys), rows=sizes[row], cols=sizes[-1],
        x_col=4 * x[-1], y_row=4 * y[row], blocks=blocks, block_cols=block_cols, run=run,
    )  # fmt: skip
    step(b, record, size_of(tuple(n)) * blocks, [source], [target])
    return True


class _Woven(NamedTuple):
    """Axes of a copy between planes and pixels: whether from pixels (``apart``), which axis counts the
    pixels and which the planes (None: there is one), and the cells of a pixel.
    """

    apart: bool
    pixel: int
    plane: int | None
    cells: int


def _woven(sizes: list[int], runs: list[list[int]], lanes: int) -> _Woven | None:
    """How the copy goes between a few planes and pixels whose cells lie side by side, if it does."""
    for apart in (False, True):
        planar, packed = reversed(runs) if apart else runs
        if 1 not in planar:
            continue
        pixel = planar.index(1)
        plane = packed.index(1) if 1 in packed else None
        planes, cells = 1 if plane is None else sizes[plane], packed[pixel]
        fits = 2 <= cells < lanes and planes <= cells < MOST_GAPS * planes
        if fits and sizes[pixel] >= lanes // 2:
            return _Woven(apart, pixel, plane, cells)
    return None


def _interleave_step(
    b: CpuBuilder, source: View, target: View, sizes: list[int], runs: list[list[int]]
) -> bool:
    """Append a copy between planes and pixels by registers, if it is one."""
    found = _woven(sizes, runs, b.machine.lanes)
    if found is None:
        return False
    apart, pixel, plane, cells = found
    outer = [a for a in range(len(sizes)) if a not in (pixel, plane)]
    if len(outer) > Interleave.AXES:
        return False
    items = item_count(b.machine, 0.5 * size_of(target.shape))
    kept = [*outer, pixel]
    (*n, pixels), (x, y) = into_items(
        [sizes[a] for a in kept], [[run[a] for a in kept] for run in runs], items, Interleave.AXES + 1
    )
    block_pixels, blocks = _blocks(pixels, b.machine.lanes, -(-items // (n[0] * n[1])))
    planes, between = (1, 0) if plane is None else (sizes[plane], runs[apart][plane])
    record = Interleave(
        source.start, target.start, Weave(planes, cells, apart), tuple(n), in_bytes(x[:-1]), in_bytes(y[:-1]),
        4 * x[-1], 4 * y[-1], plane=4 * between, pixels=pixels, blocks=blocks, block_pixels=block_pixels,
    )  # fmt: skip
    step(b, record, n[0] * n[1] * blocks, [source], [target])
    return True


def _blocks(size: int, each: int, want: int) -> tuple[int, int]:
    """An axis in blocks that are multiples of ``each``, ``want`` of them or fewer: their size and number."""
    parts = -(-size // each)
    block = each * -(-parts // min(want, parts))
    return block, -(-size // block)


def halo_step(b: CpuBuilder, view: View) -> None:
    """Append the zeros around the images of ``view``; a volume has them around every plane."""
    whole = volume(view)
    n, _, d, h, w = whole.shape
    image, _, plane, line, col = whole.strides
    top, left, bottom, right = view.halo
    bands = min(h, b.machine.threads)  # each thread fills those of its share of the lines
    record = Halo(
        view.start, y_image=4 * image, y_plane=4 * plane, y_line=4 * line, planes=d, lines=h, left=left * col,
        right=right * col, top=top, bottom=bottom, whole=(left + w + right) * col, bands=bands,
    )  # fmt: skip
    zeros = step(b, record, n * d * bands, [], [with_halo(view)]).writes
    # A step that only writes the image itself need not wait for its zeros.
    zeros[0] = dataclasses.replace(zeros[0], inside=view.extent)


def fill_step(b: CpuBuilder, view: View, value: float) -> None:
    """Append steps that set every element of ``view`` to a float, or an int where its cells are integers."""
    sizes, (strides,) = merged_axes(view.shape, [view.strides], by=0)
    if not sizes or strides[-1] != 1:
        sizes, strides = [*sizes, 1], [*strides, 1]
    while len(sizes) > 2:  # rare: a slice of a wider buffer, one line at a time
        for i in range(sizes[0]):
            inner = View(view.buffer, view.offset + i * strides[0], tuple(sizes[1:]), tuple(strides[1:]))
            fill_step(b, inner, value)
        return
    count = sizes[-1]
    items, between = (sizes[0], strides[0]) if len(sizes) == 2 else (1, 0)
    step(b, Fill(view.start, 4 * between, count, value), items, [], [view])
