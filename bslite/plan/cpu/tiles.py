"""Cuts merged axes into tiles of a few thousand elements, which a step takes one by one."""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

from bslite.machine import Machine
from bslite.plan.cpu.sharing import item_count

LEAST, MOST = 2048, 4096  # elements of a tile: enough to outweigh a call, few enough to stay near a core
BANDS = 256  # tiles at most whose places are listed one by one


class Tiles(NamedTuple):
    """Tiles along ``axis``, with all of the axes after it, for each index of those before.

    ``lengths``: those along the axis; there are at most two. ``bands``: for each tile of the first image, the
    number of its length and the first element of each operand. From image to image, of ``images``, operands
    move by ``strides``.
    """

    axis: int
    lengths: tuple[int, ...]
    bands: tuple[tuple[int, tuple[int, ...]], ...]
    images: int
    strides: tuple[int, ...]


def tiles(
    sizes: Sequence[int],
    runs: Sequence[Sequence[int]],
    machine: Machine,
    cycles: float,
    operands: int,
    whole: int = 0,
) -> Tiles | None:
    """The cut of axes of these sizes, with the operands' strides ``runs``; None where no regular one is near.

    ``cycles`` are those of a register of elements through all of the work. ``whole``: axes, counted from the
    last, that no cut goes through.
    """
    total = math.prod(sizes)
    fits = machine.l1 // (4 * (operands + 2))  # with two values within the tile
    items = item_count(machine, cycles * total / machine.lanes)
    most = min(MOST, fits) if fits >= LEAST else MOST  # beyond L1 in any case
    want = min(most, max(LEAST, -(-total // items)))
    axis = len(sizes) - 1 - whole
    after = math.prod(sizes[axis + 1 :])
    while axis and after * sizes[axis] <= want:
        after *= sizes[axis]
        axis -= 1
    size = sizes[axis]
    count = -(-size // max(1, min(size, want // after)))
    even = next((n for n in range(count, min(size, 2 * count) + 1) if size % n == 0), None)
    outer, steps = list(sizes[:axis]), [list(run[:axis]) for run in runs]
    if even is not None:
        length = size // even
        lengths: tuple[int, ...] = (length,)
        cuts = [(0, 0)]
        outer.append(even)
        for moves, run in zip(steps, runs, strict=True):
            moves.append(length * run[axis])
    else:
        count = min(count, BANDS)
        length = -(-size // count)
        count = -(-size // length)
        rest = size - (count - 1) * length
        lengths = (length, rest)[: 1 + (rest != length)]
        cuts = [(int(i == count - 1 and rest != length), i * length) for i in range(count)]
    image = max(range(len(outer)), key=lambda a: outer[a], default=None)
    images, strides = 1, (0,) * len(runs)
    if image is not None:
        images, strides = outer.pop(image), tuple(moves.pop(image) for moves in steps)
    if math.prod(outer) * len(cuts) > BANDS:
        return None
    bands = tuple(
        (
            number,
            tuple(
                start * run[axis] + sum(map(math.prod, zip(index, moves, strict=True)))
                for run, moves in zip(runs, steps, strict=True)
            ),
        )
        for index in itertools.product(*map(range, outer))
        for number, start in cuts
    )
    return Tiles(axis, lengths, bands, images, strides)
