"""Builders of reshapes and permutations in which free sizes stay free."""

from collections.abc import Sequence
from typing import Any

from bslite.frontends.common.site import Site
from bslite.frontends.common.unsupported import Unsupported, Varies
from bslite.frontends.common.values import Dims


def reshape(s: Site, x: Any, shape: Dims, last: bool = True) -> Any:
    """``x`` in another shape; the operation's result if ``last``."""
    if x.shape == shape:
        return x
    inner, have = None if last else shape, x.shape
    alike = next((i for i, (a, b) in enumerate(zip(have, shape, strict=False)) if a != b), len(have))
    start = min(alike, len(shape) - 1)
    tail = len(shape) - 1 - start
    if len(have) > len(shape) and start > 0 and have[len(have) - tail :] == shape[start + 1 :]:
        return s.emit("flatten", x, inner=inner, start_axis=start, end_axis=len(have) - 1 - tail)
    try:
        target = _target(have, shape)
    except Varies:
        axes = _dropped(have, shape)
        if not axes:
            raise
        return _without(s, x, axes, last)
    return s.emit("reshape", x, inner=inner, shape=target)


def _dropped(have: Dims, want: Dims) -> list[int]:
    """The axes of size 1 without which ``have`` is ``want``; none if that is not all."""
    found, place = [], 0
    for axis, size in enumerate(have):
        if place < len(want) and want[place] == size:
            place += 1
        elif size == 1:
            found.append(axis)
        else:
            return []
    return found if place == len(want) > 0 else []


def _without(s: Site, x: Any, axes: Sequence[int], last: bool) -> Any:
    """``x`` without axes of size 1, each flattened with its neighbour: so all other sizes may be free."""
    for axis in reversed(axes):
        shape = (*x.shape[:axis], *x.shape[axis + 1 :])
        start, inner = max(0, axis - 1), None if last and axis == axes[0] else shape
        x = s.emit("flatten", x, inner=inner, start_axis=start, end_axis=start + 1)
    return x


def _target(have: Dims, want: Dims) -> tuple[int, ...]:
    """The reshape op's spelling: 0 keeps a free size in its place, one other is inferred."""
    made = []
    for i, d in enumerate(want):
        if not isinstance(d, int):
            d = 0 if i < len(have) and have[i] == d else -1
        elif d < 1:
            raise Unsupported(f"its result {list(want)} is empty")
        made.append(d)
    if made.count(-1) > 1:  # sizes of the input may be copied from other places
        made = [
            -2 - have.index(want[i]) if d == -1 and not isinstance(want[i], int) and want[i] in have else d
            for i, d in enumerate(made)
        ]
    if made.count(-1) > 1:
        raise Varies(f"from {list(have)} to {list(want)}: two sizes depend on free ones")
    return tuple(made)


def permute(s: Site, x: Any, order: Sequence[int], last: bool = True) -> Any:
    """``x`` with its axes in another order; the operation's result if ``last``."""
    if list(order) == sorted(order):
        return x
    inner = None if last else tuple(x.shape[a] for a in order)
    return s.emit("permute", x, inner=inner, order=tuple(order))


def in_front(axes: Sequence[int], rank: int) -> list[int]:
    """The order that brings ``axes`` to the front and keeps the order of the others."""
    return [*axes, *(a for a in range(rank) if a not in axes)]
