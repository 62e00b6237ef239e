"""What windows hand back to the elements under them, in slices and sums: no column of windows is made."""

import itertools
import math
from collections.abc import Callable, Sequence

from bslite.ops.values import Shape, Value


def under_taps(x: Value, kernel: Shape, stride: Shape, dilation: Shape, out: Shape) -> list[Value]:
    """For every tap the elements of ``x [N, C, ...]`` that it meets in ``out`` windows."""
    found = []
    for taps in itertools.product(*map(range, kernel)):
        value = x
        for axis, (k, s, d, m) in enumerate(zip(taps, stride, dilation, out, strict=True), start=2):
            value = value.op("slice", axis=axis, start=k * d, stop=k * d + (m - 1) * s + 1, step=s)
        found.append(value)
    return found


def largest(x: Value, most: Value, kernel: Shape, stride: Shape, dilation: Shape) -> Value:
    """The tap that met the largest element of each window, of equals the first; a NaN is the largest.

    ``most``: what a max pool makes. Of uint8 where there are so few taps: all that need be saved.
    """
    met = under_taps(x, kernel, stride, dilation, most.shape[2:])
    found = x.tape.constant(0.0).expand(most.shape)
    for tap, value in reversed(list(enumerate(met))):
        first = value.op("equal", most).op("or", value.op("isnan"))
        found = first.where(float(tap), found)
    return found.op("cast", to="uint8" if len(met) < 256 else "int64")


def spread(
    terms: Sequence[Value], of_tap: Callable[[int, Sequence[Value]], Value], kernel: Shape, stride: Shape
) -> Value:
    """Elements of which every window adds ``of_tap(tap, terms)`` to the one under that tap.

    ``terms [N, C, windows...]``: what a tap's share is made of; `of_tap` is given them at shifted places,
    with zeros beyond the windows. The elements are those under windows, and some up to a multiple of stride.
    """
    tape, shape = terms[0].tape, terms[0].shape
    reach = [-(-k // s) - 1 for k, s in zip(kernel, stride, strict=True)]  # windows further that still meet
    sizes = [m + j for m, j in zip(shape[2:], reach, strict=True)]
    around = (0, 0, *reach)
    padded = [term.padded(around, around, _beyond(term, kernel)) for term in terms]
    phases = {}
    for phase in itertools.product(*map(range, stride)):
        total: Value | None = None
        for taps in itertools.product(
            *(range(r, k, s) for r, k, s in zip(phase, kernel, stride, strict=True))
        ):
            tap = 0
            shifted = list(padded)
            for axis, (k, s, j, size) in enumerate(zip(taps, stride, reach, sizes, strict=True), start=2):
                tap = tap * kernel[axis - 2] + k
                start = j - k // s
                shifted = [v.sliced(axis, start, start + size) for v in shifted]
            share = of_tap(tap, shifted)
            total = share if total is None else total + share
        phases[phase] = tape.constant(0.0).expand((*shape[:2], *sizes)) if total is None else total
    return _interleaved(phases, stride, sizes)


def _beyond(term: Value, kernel: Shape) -> float:
    """What stands for no window: no tap's number among integers."""
    return 0.0 if term.dtype == "float32" else float(math.prod(kernel))


def _interleaved(phases: dict[Shape, Value], stride: Shape, sizes: Sequence[int]) -> Value:
    """Elements of all phases, ``stride`` apart, as one value; with channels last, where that is free."""
    n, c = next(iter(phases.values())).shape[:2]
    axes = len(stride)
    order = (0, *range(2, 2 + axes), 1)
    parts = {phase: value.permute(*order) for phase, value in phases.items()}
    length = c
    for axis in reversed(range(axes)):
        joined: dict[Shape, Value] = {}
        for phase in dict.fromkeys(key[:axis] for key in parts):
            each = [parts[phase + (r,)] for r in range(stride[axis])]  # noqa: RUF005
            whole = each[0].op("concat", *each[1:], axis=axis + 2) if len(each) > 1 else each[0]
            length_now = stride[axis] * sizes[axis] * length
            joined[phase] = whole.reshape(n, *sizes[:axis], length_now)
        length, parts = length_now, joined
    made = parts[()].reshape(n, *(m * s for m, s in zip(sizes, stride, strict=True)), c)
    return made.permute(0, axes + 1, *range(1, axes + 1))
