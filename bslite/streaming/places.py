"""Where the time steps of a sequence lie in a value."""

from __future__ import annotations

import math
from dataclasses import dataclass

from bslite.ops import Shape


@dataclass(frozen=True)
class Steps:
    """Along ``axis``: element ``(b * T + t) * after + a`` of it belongs to step ``t``.

    ``before`` and ``after`` are 1 where the axis is time alone, not merged with others by a reshape.
    """

    axis: int
    before: int = 1
    after: int = 1


@dataclass(frozen=True)
class Rows:
    """As recurrent ops make them: the steps along axis 0, then ``states`` rows of the last state."""

    states: int


@dataclass(frozen=True)
class Last:
    """No step's own, but computed from the sequence so far: of the latest step, or of the last state."""


@dataclass(frozen=True)
class Held:
    """The same whatever the sequence: computed from constants and from inputs that are no sequence."""


Place = Steps | Rows | Last | Held


def reshaped(place: Steps, given: Shape, made: Shape, steps: int) -> Steps | None:
    """Where the steps are after a row-major reshape from ``given`` to ``made``; None if they are cut up."""
    before = math.prod(given[: place.axis]) * place.before
    after = math.prod(given[place.axis + 1 :]) * place.after
    for axis, size in enumerate(made):
        left, right = math.prod(made[:axis]), math.prod(made[axis + 1 :])
        if before % left or after % right:
            continue
        if before // left * steps * (after // right) == size:
            return Steps(axis, before // left, after // right)
    return None


def resized(shape: Shape, place: Place, steps: int) -> Shape:
    """``shape`` for another number of steps."""
    if not isinstance(place, Steps):
        return shape
    size = place.before * steps * place.after
    return (*shape[: place.axis], size, *shape[place.axis + 1 :])
