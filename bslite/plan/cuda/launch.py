"""A launch of a kernel, as a step of a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bslite.errors import EngineError
from bslite.plan.core.views import View, size_of
from bslite.plan.cuda.builder import CudaBuilder

#: The most blocks along x, y and z.
MOST_BLOCKS = (2**31 - 1, 65535, 65535)
#: Elements of a view: kernels compute places in 32 bits.
MOST_ELEMENTS = 2**31 - 1
#: Keys of a step's arguments that are not the kernel's numbers.
OWN = ("variant", "grid", "block", "library", "seconds")


def launch(
    b: CudaBuilder,
    kernel: str,
    variant: Mapping[str, Any],
    grid: Sequence[int],
    block: Sequence[int],
    scalars: Mapping[str, int | float],
    operands: Mapping[str, tuple[str, int]],
    reads: Sequence[View] = (),
    writes: Sequence[View] = (),
) -> None:
    """Append a launch of ``kernel`` (its name) by the current layer.

    ``variant`` are its compile-time constants: ints, names of activations, tuples of these. ``scalars`` and
    ``operands``, (buffer or constant, first element), are its parameters by name; "seconds" among the scalars
    is what the planner thinks it takes. ``reads`` and ``writes`` are what it touches: the arena is shared out
    by that. A launch of no blocks is left out.

    Raises EngineError if there are more blocks than a GPU takes.
    """
    if not size_of(tuple(grid)):
        return
    shape = tuple(map(int, grid))
    if any(n > most for n, most in zip(shape, MOST_BLOCKS, strict=False)):
        raise EngineError(f"layer {b.layer[-1]!r}: {shape} blocks; a GPU takes at most {MOST_BLOCKS}")
    args = {"variant": dict(variant), "grid": shape, "block": tuple(map(int, block)), **scalars}
    b.step(kernel, size_of(shape), args, dict(operands), reads, writes)
