"""Layers that work along one axis: its rows made contiguous, the axes around it merged into three."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from bslite.explore.gpu import GpuMachine
from bslite.passes import Layer
from bslite.plan.core.loops import merged_axes, padded
from bslite.plan.core.views import NO_HALO, View, size_of
from bslite.plan.cpu.rows import writable
from bslite.plan.cuda.launch import CudaBuilder, untyped

OUTER = 3  # axes around the rows
THREADS = 256
HELD = 16  # elements of a row that a thread keeps at most
AT_ONCE = 8  # that it loads at once of rows that are not kept
BLOCKS = 4  # of an SM
FLOAT = 4  # bytes
LATENCY = 0.7e-6  # seconds of a load from HBM under load


class Share(NamedTuple):
    """How a block's threads share rows: ``width`` to a row, ``each`` elements of a thread at once, which are
    all it has if the row is ``held``.
    """

    threads: int
    width: int
    each: int
    held: int

    @property
    def rows(self) -> int:
        """Rows of a block."""
        return self.threads // self.width


def power_above(n: int) -> int:
    """The least power of two that is not less."""
    return 1 << max(0, n - 1).bit_length()


def block_threads(b: CudaBuilder) -> int:
    """Threads of a block."""
    return min(THREADS, b.machine.block_threads)


def share(b: CudaBuilder, length: int) -> Share:
    """By the row's length alone: four elements to a thread, up to 16 where a block is one row."""
    threads = block_threads(b)
    width = min(threads, power_above(-(-length // 4)))
    if length <= 4 * width:
        return Share(threads, width, 4, 1)
    return Share(threads, width, HELD, 1) if length <= HELD * width else Share(threads, width, AT_ONCE, 0)


def row_parts(machine: GpuMachine, rows: int, length: int, shared: Share) -> int:
    """How many blocks should take each row, in two launches; 1: one does, in one launch.

    A block reads as fast as what its threads load at once comes from memory. So a row that one block has is
    priced by that, read three times if it is not held; parts are read twice.
    """

    def seconds(parts: int, reads: int, each: int) -> float:
        chunk = FLOAT * -(-length // parts) * -(-rows * parts // (BLOCKS * machine.sms))
        moved = 2 * FLOAT * rows * length / machine.memory_bandwidth
        return max(reads * chunk * LATENCY / (FLOAT * shared.threads * each), moved)

    if shared.width < shared.threads:
        return 1
    found, least = 1, seconds(1, 1 if shared.held else 3, shared.each)
    parts = 2
    while parts <= -(-length // (shared.threads * AT_ONCE)) and rows * parts <= BLOCKS * machine.sms:
        price = seconds(parts, 2, AT_ONCE) + machine.launch
        if price < least:
            found, least = parts, price
        parts *= 2
    return found


def _in_parts(
    b: CudaBuilder,
    kernel: str,
    parts: int,
    x: View,
    y: View,
    threads: int,
    numbers: Mapping[str, Any],
    operands: Mapping[str, tuple[str, int]],
    variant: Mapping[str, Any],
) -> None:
    """Append the two launches of rows that ``parts`` blocks share."""
    rows, length = numbers["rows"], numbers["length"]
    step = threads * AT_ONCE
    chunk = step * -(-length // (parts * step))
    parts = -(-length // chunk)
    made = View(b.buffer(4 * rows * parts).name, 0, (4 * rows * parts,), (1,))
    share = {"threads": threads, "each": AT_ONCE}
    joining = {name: n for name, n in numbers.items() if name != "rows"} | {"chunk": chunk, "parts": parts}
    gathering = {name: n for name, n in joining.items() if name not in ("y0", "y1", "y2", "eps")}
    sums = (made.buffer, 0)
    untyped(b, f"{kernel}_part", share, [parts, rows], [threads], gathering,
           {"x": operands["x"], "made": sums}, [x], [made])  # fmt: skip
    untyped(b, f"{kernel}_join", {**share, **variant}, [parts, rows], [threads], joining,
           {**operands, "made": sums}, [x, made], [y])  # fmt: skip


def row_layer(b: CudaBuilder, layer: Layer, kernel: str, axis: int, **more: Any) -> None:
    """A layer that is a row kernel along ``axis`` of its input; for the rest see `row_step`."""
    x = b.read(layer.node.inputs[0], inner=axis)
    y, home = writable(b, layer.name, axis)
    row_step(b, kernel, x, y, axis, **more)
    if y is not home:
        b.copy(y, home)


def row_step(
    b: CudaBuilder,
    kernel: str,
    x: View,
    y: View,
    axis: int,
    variant: Mapping[str, Any] | None = None,
    scalars: Mapping[str, Any] | None = None,
    consts: Mapping[str, str | None] | None = None,
    places: Mapping[str, tuple[str, int]] | None = None,
    per: str = "share",
    parted: str | None = None,
) -> None:
    """Append a launch of a row kernel from x to y, views of one shape in which ``axis`` is contiguous.

    ``variant`` and ``scalars`` are those beyond what all row kernels have; so are ``consts`` (one that is
    None will not be looked at) and ``places``, which lie elsewhere. ``per``: whether the threads of a block
    share rows ("share"), are a row's ("row"), or have an element each ("element"). ``parted``: the kernels
    ``<parted>_part`` and ``<parted>_join`` take long rows over several blocks.
    """
    sizes, (xs, ys) = merged_axes(x.shape, [x.strides, y.strides], by=1, keep_last=axis)
    if len(sizes) - 1 > OUTER:  # the axes lie in two orders that do not merge: through plain order
        plain_x, plain_y = b.fresh(x.shape, axis, NO_HALO), b.fresh(y.shape, axis, NO_HALO)
        b.copy(x, plain_x)
        row_step(b, kernel, plain_x, plain_y, axis, variant, scalars, consts, places, per, parted)
        b.copy(plain_y, y)
        return
    length, rows = sizes[-1], size_of(tuple(sizes[:-1]))
    outer, (xs, ys) = padded(sizes[:-1], [xs[:-1], ys[:-1]], OUTER)
    numbers = {"rows": rows, "length": length, "n1": outer[1], "n2": outer[2], **(scalars or {})}
    numbers |= {f"x{i}": s for i, s in enumerate(xs)} | {f"y{i}": s for i, s in enumerate(ys)}
    operands = {"x": (x.buffer, x.offset), "y": (y.buffer, y.offset)}
    operands |= {role: (name, 0) if name else operands["x"] for role, name in (consts or {}).items()}
    operands |= places or {}
    shared = share(b, length)
    parts = row_parts(b.machine, rows, length, shared) if parted else 1
    if parted and parts > 1:
        _in_parts(b, parted, parts, x, y, shared.threads, numbers, operands, variant or {})
        return
    chosen: dict[str, Any] = {"threads": shared.threads}
    blocks = rows
    if per == "share":
        chosen |= shared._asdict()
        blocks = -(-rows // shared.rows)
    elif per == "element":
        blocks = -(-rows * length // shared.threads)
    untyped(b, kernel, {**chosen, **(variant or {})}, [blocks], [shared.threads], numbers, operands, [x], [y])
