"""The planner's working state for a GPU: as on the CPU, without zeros around images and over-reading."""

from __future__ import annotations

from collections.abc import Mapping

from bslite.explore.gpu import GpuMachine
from bslite.machine import Machine
from bslite.ops import Shape
from bslite.plan.core.builder import Builder, Halo
from bslite.plan.core.concats import Place
from bslite.plan.core.views import NO_HALO, View
from bslite.spec import ModelSpec


class CudaBuilder(Builder):
    """Collects the launches of one plan. Images lie channels-last; values are dense unless they are slices
    of a concatenation; no halo: kernels test bounds.
    """

    machine: GpuMachine  # type: ignore[assignment]  # a GPU's lowerings meet no other

    def __init__(
        self,
        spec: ModelSpec,
        shapes: Mapping[str, Shape],
        machine: GpuMachine,
        places: Mapping[str, Place],
        layerwise: bool = False,
    ) -> None:
        super().__init__(spec, shapes, Machine(threads=1), {}, places, layerwise=layerwise)
        self.machine = machine

    def arranged(
        self, view: View, inner: int | None = None, halo: Halo = NO_HALO, exact: bool = True
    ) -> View:
        """``view``, or a copy of it with ``inner`` contiguous. Kernels read no element beyond it."""
        assert halo == NO_HALO, "GPU kernels test bounds"
        return super().arranged(view, inner, NO_HALO, exact=True)

    def pixel_padding(self) -> int:
        """None: shared memory has banks, L2 is hashed."""
        return 0

    def copy(self, source: View, target: View) -> None:
        """Append a strided copy between views of equal logical shape."""
        from bslite.plan.cuda.ops.move import copy_step

        copy_step(self, source, target)
