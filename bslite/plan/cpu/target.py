"""The CPU as a target of the planner: whole-vector loads, zeros beside images, pixels padded off a page."""

from dataclasses import dataclass

from bslite.machine import Machine
from bslite.plan.cpu.elementwise import elementwise_step
from bslite.plan.cpu.group_norm import group_step
from bslite.plan.cpu.ops.move import copy_step, fill_step, halo_step
from bslite.plan.cpu.resize import resample_step, resize_planes, resize_step
from bslite.plan.cpu.rows import in_lanes, lane_step, row_step
from bslite.plan.cpu.tuning import Tuning


@dataclass(frozen=True)
class Cpu:
    """The CPU described by ``machine``; see `plan.core.builder.Target`."""

    machine: Machine
    tuning: Tuning
    over_reads: bool = True
    any_order: bool = True
    resizes_planes: bool = True

    @property
    def pixel_padding(self) -> int:
        """The padding of a pixel: one vector register."""
        return self.machine.lanes

    copy = staticmethod(copy_step)
    fill = staticmethod(fill_step)
    halo = staticmethod(halo_step)
    elementwise_step = staticmethod(elementwise_step)
    row_step = staticmethod(row_step)
    in_lanes = staticmethod(in_lanes)
    lane_step = staticmethod(lane_step)
    group_step = staticmethod(group_step)
    resample = staticmethod(resample_step)
    resize_image = staticmethod(resize_step)
    resize_planes = staticmethod(resize_planes)
