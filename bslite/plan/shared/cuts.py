"""Copies with a known source index for each index of an axis, cut into pieces that are strided views."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from bslite.plan.core.builder import AnyBuilder
from bslite.plan.core.views import NO_HALO, View, channel_axis, size_of

MOST = 64  # copies of one value; if there are more, the axes are copied one after the other


class Piece(NamedTuple):
    """``size`` elements of an axis from ``at`` on: they come from ``start`` on, ``step`` apart."""

    at: int
    start: int
    size: int
    step: int


def pieces(sources: Sequence[int]) -> list[Piece]:
    """``sources``, a source index for each index of an axis, as evenly spaced runs."""
    found: list[Piece] = []
    at = 0
    while at < len(sources):
        stop = at + 1
        step = sources[stop] - sources[at] if stop < len(sources) else 1
        while stop < len(sources) and sources[stop] - sources[stop - 1] == step:
            stop += 1
        found.append(Piece(at, sources[at], stop - at, step))
        at = stop
    return found


def mapped_copy(b: AnyBuilder, x: View, y: View, sources: Sequence[Sequence[int] | None]) -> None:
    """Append steps for ``y[i, j, ...] = x[sources[0][i], sources[1][j], ...]``; None: i or j itself."""
    runs = [
        pieces(s) if s is not None else [Piece(0, 0, n, 1)] for s, n in zip(sources, x.shape, strict=True)
    ]
    if size_of(tuple(map(len, runs))) > MOST:
        axis = max(range(len(runs)), key=lambda a: len(runs[a]))
        rest = [s if a != axis else None for a, s in enumerate(sources)]
        if any(s is not None for s in rest):
            shape = (*y.shape[:axis], x.shape[axis], *y.shape[axis + 1 :])
            between = b.fresh(shape, channel_axis(len(shape)), NO_HALO)
            mapped_copy(b, x, between, rest)
            x, runs = between, [[Piece(0, 0, n, 1)] for n in shape]
            runs[axis] = pieces(sources[axis] or ())
    for chosen in itertools.product(*runs):
        b.copy(_part(x, [(p.start, p.size, p.step) for p in chosen]),
               _part(y, [(p.at, p.size, 1) for p in chosen]))  # fmt: skip


def _part(view: View, spans: Sequence[tuple[int, int, int]]) -> View:
    """``count`` elements from ``start`` on, ``step`` apart, along each axis."""
    offset = view.offset + sum(start * s for (start, _, _), s in zip(spans, view.strides, strict=True))
    shape = tuple(count for _, count, _ in spans)
    strides = tuple(step * s for (_, _, step), s in zip(spans, view.strides, strict=True))
    return View(view.buffer, offset, shape, strides)
