"""Layers that work along one axis: its rows made contiguous, the axes around it merged into three."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from bslite.passes import Layer
from bslite.plan.cuda.builder import CudaBuilder
from bslite.plan.cuda.launch import launch
from bslite.plan.loops import merged_axes, padded
from bslite.plan.rows import writable
from bslite.plan.views import NO_HALO, View, size_of

OUTER = 3  # axes around the rows
THREADS = 256
HELD = 16  # elements of a row that a thread keeps at most
AT_ONCE = 8  # that it loads at once of rows that are not kept


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
) -> None:
    """Append a launch of a row kernel from x to y, views of one shape in which ``axis`` is contiguous.

    ``variant`` and ``scalars`` are those beyond what all row kernels have; so are ``consts`` (one that is
    None will not be looked at) and ``places``, which lie elsewhere. ``per``: whether the threads of a block
    share rows ("share"), are a row's ("row"), or have an element each ("element").
    """
    sizes, (xs, ys) = merged_axes(x.shape, [x.strides, y.strides], by=1, keep_last=axis)
    if len(sizes) - 1 > OUTER:  # the axes lie in two orders that do not merge: through plain order
        plain_x, plain_y = b.fresh(x.shape, axis, NO_HALO), b.fresh(y.shape, axis, NO_HALO)
        b.copy(x, plain_x)
        row_step(b, kernel, plain_x, plain_y, axis, variant, scalars, consts, places, per)
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
    chosen: dict[str, Any] = {"threads": shared.threads}
    blocks = rows
    if per == "share":
        chosen |= shared._asdict()
        blocks = -(-rows // shared.rows)
    elif per == "element":
        blocks = -(-rows * length // shared.threads)
    launch(b, kernel, {**chosen, **(variant or {})}, [blocks], [shared.threads], numbers, operands, [x], [y])
