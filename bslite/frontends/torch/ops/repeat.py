"""Builders of roll, flip, repeat, tril and triu, and einsum."""

import math
from collections.abc import Sequence
from itertools import chain
from typing import Any

from bslite.errors import SpecError
from bslite.frontends.common.einsum import einsum as contract
from bslite.frontends.common.moves import permute, reshape
from bslite.frontends.common.unsupported import Unsupported, Varies
from bslite.frontends.torch.builders import aten
from bslite.frontends.torch.counting import spread
from bslite.frontends.torch.site import Site
from bslite.frontends.torch.values import Operand, expression_of


def plain(*sizes: Any) -> None:
    """Raise `Varies` unless all sizes are numbers."""
    if not all(isinstance(n, int) for n in sizes):
        raise Varies("its sizes depend on the batch")


@aten("roll")
def roll(s: Site, x: Operand, shifts: Sequence[int], axes: Sequence[int] = ()) -> Operand:
    plain(*shifts)
    if axes:
        return s.emit("roll", x, shifts=shifts, axes=axes)
    plain(*x.shape)
    line = reshape(s, x, (math.prod(x.shape),), last=False)
    return reshape(s, s.emit("roll", line, inner=line.shape, shifts=shifts, axes=(0,)), s.shape)


@aten("flip", "fliplr", "flipud")
def flip(s: Site, x: Operand, axes: Sequence[int] = ()) -> Operand:
    axes = axes or ((1,) if s.operation == "fliplr" else (0,) if s.operation == "flipud" else ())
    for axis in axes:
        x = s.emit("slice", x, inner=x.shape, axis=axis, start=-1, step=-1)
    return x


@aten("repeat", "tile")
def repeat(s: Site, x: Operand, repeats: Sequence[Any]) -> Operand:
    repeats = [*[1] * (len(x.shape) - len(repeats)), *repeats]  # torch.tile's rule
    aligned = (*(1,) * (len(repeats) - len(x.shape)), *x.shape)
    known = [n if isinstance(n, int) else 1 for n in repeats]
    free = [1 if isinstance(n, int) else expression_of(n) for n in repeats]
    some, tiled = set(free) != {1}, tuple(d * n for d, n in zip(aligned, known, strict=True))
    if set(known) != {1}:
        x = reshape(s, x, aligned, last=False)
        x = s.emit("tile", x, inner=tiled if some else None, repeats=known)
    if not some:
        return reshape(s, x, tiled, last=False)
    if all(1 in pair for pair in zip(free, tiled, strict=True)):
        return spread(s, x, s.shape)
    # What is repeated gets a new axis before it, along which it is spread, and which is merged with it.
    apart = [(1, d) if n != 1 else (d,) for n, d in zip(free, tiled, strict=True)]
    wide = [(n, d) if n != 1 else (d,) for n, d in zip(free, tiled, strict=True)]
    x = spread(s, reshape(s, x, tuple(chain(*apart)), last=False), tuple(chain(*wide)))
    return reshape(s, x, s.shape)


@aten("repeat_interleave.self_int")
def repeat_interleave(
    s: Site, x: Operand, repeats: int, axis: int | None = None, *, output_size: Any = None
) -> Operand:
    """A new axis is put after the one repeated, expanded, and merged with it."""
    plain(repeats)
    if axis is None:
        plain(*x.shape)
        x, axis = reshape(s, x, (math.prod(x.shape),), last=False), 0
    axis %= len(x.shape)
    x = reshape(s, x, (*x.shape[: axis + 1], 1, *x.shape[axis + 1 :]), last=False)
    wide = (*x.shape[: axis + 1], repeats, *x.shape[axis + 2 :])
    target = [repeats if a == axis + 1 else -1 for a in range(len(wide))]
    return reshape(s, s.emit("expand", x, inner=wide, shape=target), s.shape)


@aten("movedim", "moveaxis")
def movedim(s: Site, x: Operand, source: Any, destination: Any) -> Operand:
    rank = len(x.shape)
    froms, tos = (
        [a % rank for a in (axes if isinstance(axes, (list, tuple)) else [axes])]
        for axes in (source, destination)
    )
    order = [a for a in range(rank) if a not in froms]
    for to, axis in sorted(zip(tos, froms, strict=True)):
        order.insert(to, axis)
    return permute(s, x, order)


@aten("tril", "triu")
def trilu(s: Site, x: Operand, diagonal: int = 0) -> Operand:
    return s.emit("trilu", x, upper=s.operation == "triu", diagonal=diagonal)


@aten("einsum")
def einsum(s: Site, equation: str, xs: Sequence[Operand], *, path: Any = None) -> Operand:
    try:
        return contract(s, equation, xs)
    except SpecError as e:
        raise Unsupported(str(e)) from None
