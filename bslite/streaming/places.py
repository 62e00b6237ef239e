"""Where the time steps of a sequence lie in a value."""

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
    """The steps lie along axis 0, then come ``states`` rows of the last state, as recurrent ops make them."""

    states: int


@dataclass(frozen=True)
class Last:
    """The value belongs to no step; it is computed from the latest step or from the last state."""


@dataclass(frozen=True)
class Held:
    """The value is the same for every sequence: computed from constants and from inputs that are held."""


Place = Steps | Rows | Last | Held


def reshaped(place: Steps, given: Shape, made: Shape, steps: int) -> Steps | None:
    """Where the steps lie after a row-major reshape from ``given`` to ``made``; None if it cuts them up."""
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
