"""Tables of lowerings: op name -> the function that turns one layer into steps, for each target."""

from collections.abc import Callable
from typing import Any

from bslite.passes import Layer
from bslite.registry import Registry

Lowering = Callable[[Any, Layer], None]
#: The lowerings for CPUs, and those for GPUs.
CPU: Registry[Lowering] = Registry("CPU lowering of op")
CUDA: Registry[Lowering] = Registry("GPU lowering of op")


def lowers(*names: str) -> Callable[[Lowering], Lowering]:
    """Register a lowering for both targets."""

    def register(function: Lowering) -> Lowering:
        return CUDA.register(*names)(CPU.register(*names)(function))

    return register
