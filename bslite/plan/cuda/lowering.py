"""Op name -> the function that turns one layer into launches. One entry per op; see the ``lower_*`` files."""

from __future__ import annotations

from collections.abc import Callable

from bslite.passes import Layer
from bslite.plan.cuda.builder import CudaBuilder

Lowering = Callable[[CudaBuilder, Layer], None]
LOWERINGS: dict[str, Lowering] = {}


def lowers(*names: str) -> Callable[[Lowering], Lowering]:
    """Register a lowering for these ops."""

    def register(function: Lowering) -> Lowering:
        for name in names:
            if name in LOWERINGS:
                raise RuntimeError(f"op {name!r} has two lowerings for GPUs")
            LOWERINGS[name] = function
        return function

    return register
