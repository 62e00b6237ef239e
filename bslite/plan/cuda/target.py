"""A GPU as a target of the planner: kernels test bounds, so images need no borders of zeros."""

from dataclasses import dataclass

from bslite.explore.gpu import GpuMachine
from bslite.kernels.contracts.rows import RowWork
from bslite.ops.resized.resampling import Taps
from bslite.plan.core.views import View
from bslite.plan.cuda.elementwise import elementwise_step
from bslite.plan.cuda.group_norm import group_step
from bslite.plan.cuda.launch import CudaBuilder
from bslite.plan.cuda.ops.move import copy_step, fill_step
from bslite.plan.cuda.resize import resample_step, resize_step
from bslite.plan.cuda.rows import row_step
from bslite.plan.cuda.tuning import Tuning


@dataclass(frozen=True)
class Gpu:
    """The GPU described by ``machine``; see `plan.core.builder.Target`."""

    machine: GpuMachine
    tuning: Tuning
    over_reads: bool = False
    any_order: bool = False  # neighbouring threads take neighbouring elements
    resizes_planes: bool = False  # neighbouring threads take neighbouring channels
    pixel_padding: int = 0  # none: shared memory has banks, and L2 is hashed

    copy = staticmethod(copy_step)
    fill = staticmethod(fill_step)
    elementwise_step = staticmethod(elementwise_step)
    row_step = staticmethod(row_step)
    group_step = staticmethod(group_step)
    resample = staticmethod(resample_step)
    resize_image = staticmethod(resize_step)

    def in_lanes(self, work: RowWork) -> bool:
        """Return False: a block walks rows."""
        return False

    def lane_step(self, b: CudaBuilder, work: RowWork, x: View, y: View, axis: int, inner: int) -> None:
        """Unused, as no work is `in_lanes`."""
        raise AssertionError(f"{work} along axis {axis}")

    def resize_planes(self, b: CudaBuilder, x: View, y: View, rows: Taps, cols: Taps) -> None:
        """Unused, as no planes are resized as they lie."""
        raise AssertionError(f"planes of {y}")

    def halo(self, b: CudaBuilder, view: View) -> None:
        """Unused: kernels test bounds, and no lowering asks for zeros around an image."""
        raise AssertionError(f"zeros around {view}")
