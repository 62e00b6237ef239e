"""The CPU as a target of the planner: whole-vector loads, zeros beside images, pixels padded off a page."""

from __future__ import annotations

from dataclasses import dataclass

from bslite.machine import Machine
from bslite.plan.core.views import View
from bslite.plan.cpu.ops.move import copy_step, halo_step
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
        """One vector register."""
        return self.machine.lanes

    def copy(self, b: CpuBuilder, source: View, target: View) -> None:
        """Append a strided copy between views of equal logical shape."""
        copy_step(b, source, target)

    def halo(self, b: CpuBuilder, view: View) -> None:
        """Append the zeros around the images of ``view``."""
        halo_step(b, view)
