"""The CPU as a target of the planner: whole-vector loads, zeros beside images, pixels padded off a page."""

from collections.abc import Sequence
from dataclasses import dataclass

from bslite.kernels.contracts.activation import Activation
from bslite.kernels.contracts.record import Operand
from bslite.kernels.contracts.rows import GroupWork, RowWork
from bslite.machine import Machine
from bslite.plan.core.taps import Taps
from bslite.plan.core.views import View
from bslite.plan.cpu.elementwise import elementwise_step
from bslite.plan.cpu.group_norm import group_step
from bslite.plan.cpu.ops.move import copy_step, fill_step, halo_step
from bslite.plan.cpu.resize import resample_step, resize_step
from bslite.plan.cpu.rows import row_step
from bslite.plan.cpu.step import CpuBuilder
from bslite.plan.cpu.tuning import Tuning


@dataclass(frozen=True)
class Cpu:
    """The CPU described by ``machine``; see `plan.core.builder.Target`."""

    machine: Machine
    tuning: Tuning
    over_reads: bool = True

    @property
    def pixel_padding(self) -> int:
        """The padding of a pixel: one vector register."""
        return self.machine.lanes

    def copy(self, b: CpuBuilder, source: View, target: View) -> None:
        """Append a strided copy between views of equal logical shape."""
        copy_step(b, source, target)

    def fill(self, b: CpuBuilder, view: View, value: float) -> None:
        """Append steps that set every element of ``view``."""
        fill_step(b, view, value)

    def halo(self, b: CpuBuilder, view: View) -> None:
        """Append the zeros around the images of ``view``."""
        halo_step(b, view)

    def elementwise_step(
        self,
        b: CpuBuilder,
        function: str,
        operands: Sequence[View],
        y: View,
        act: Activation,
        flag: Operand | None,
    ) -> None:
        """Append ``y = act(function(*operands))``, the operands broadcast to y's shape."""
        elementwise_step(b, function, operands, y, act, flag)

    def row_step(self, b: CpuBuilder, work: RowWork, x: View, y: View, axis: int) -> None:
        """Append ``work`` on rows from x to y, views of one shape in which ``axis`` is contiguous."""
        row_step(b, work, x, y, axis)

    def group_step(self, b: CpuBuilder, work: GroupWork, x: View, y: View) -> bool:
        """Append a group norm from x to y; return False where the pixels lie along too many axes."""
        return group_step(b, work, x, y)

    def resample(self, b: CpuBuilder, x: View, y: View, axis: int, table: Taps) -> None:
        """Append a step that resizes one axis."""
        resample_step(b, x, y, axis, table)

    def resize_image(self, b: CpuBuilder, x: View, y: View, rows: Taps, cols: Taps) -> None:
        """Append a step that resizes rows, then columns."""
        resize_step(b, x, y, rows, cols)
