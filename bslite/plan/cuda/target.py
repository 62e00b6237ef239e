"""A GPU as a target of the planner: kernels test bounds, so images need no borders of zeros."""

from collections.abc import Sequence
from dataclasses import dataclass

from bslite.explore.gpu import GpuMachine
from bslite.kernels.contracts.activation import Activation
from bslite.kernels.contracts.record import Operand
from bslite.kernels.contracts.rows import GroupWork, RowWork
from bslite.plan.core.taps import Taps
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
    pixel_padding: int = 0  # none: shared memory has banks, and L2 is hashed

    def copy(self, b: CudaBuilder, source: View, target: View) -> None:
        """Append a strided copy between views of equal logical shape."""
        copy_step(b, source, target)

    def fill(self, b: CudaBuilder, view: View, value: float) -> None:
        """Append a copy of a number to every element of ``view``."""
        fill_step(b, view, value)

    def halo(self, b: CudaBuilder, view: View) -> None:
        """Unused: kernels test bounds, and no lowering asks for zeros around an image."""
        raise AssertionError(f"zeros around {view}")

    def elementwise_step(
        self,
        b: CudaBuilder,
        function: str,
        operands: Sequence[View],
        y: View,
        act: Activation,
        flag: Operand | None,
    ) -> None:
        """Append ``y = act(function(*operands))``, the operands broadcast to y's shape."""
        elementwise_step(b, function, operands, y, act, flag)

    def row_step(self, b: CudaBuilder, work: RowWork, x: View, y: View, axis: int) -> None:
        """Append ``work`` on rows from x to y, views of one shape in which ``axis`` is contiguous."""
        row_step(b, work, x, y, axis)

    def group_step(self, b: CudaBuilder, work: GroupWork, x: View, y: View) -> bool:
        """Append a group norm from x to y; False where the pixels lie along too many axes."""
        return group_step(b, work, x, y)

    def resample(self, b: CudaBuilder, x: View, y: View, axis: int, table: Taps) -> None:
        """Append a resizing along one axis."""
        resample_step(b, x, y, axis, table)

    def resize_image(self, b: CudaBuilder, x: View, y: View, rows: Taps, cols: Taps) -> None:
        """Append a resizing along rows, then columns."""
        resize_step(b, x, y, rows, cols)
