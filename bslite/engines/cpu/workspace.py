"""The memory of runs: blocks that all plans of a model share, and what a plan keeps for a run at a time."""

from typing import NamedTuple

import numpy as np

from bslite.engines.cpu.constants import SLACK, room
from bslite.engines.cpu.job import Job
from bslite.engines.cpu.program import Program
from bslite.errors import EngineError
from bslite.plan.cpu.step import CpuPlan
from bslite.spec import Array
from bslite.spec.machine import machine_memory


class Block(NamedTuple):
    """Memory for the values of a run, float32 that start on a cache line at ``address``."""

    data: Array
    address: int


class Memory:
    """Blocks that wait for a run: as many as there were runs at a time, each as large as the largest of them.

    Threads may share it.
    """

    def __init__(self) -> None:
        self._free: list[Block] = []  # `append` and `pop` are atomic

    def take(self, size: int) -> Block:
        """A block of ``size`` elements or more, which no other run uses."""
        try:
            block: Block | None = self._free.pop()
        except IndexError:
            block = None
        if block is None or block.data.size < size + SLACK:
            check_room(4 * size)
            del block  # before there is another one
            data = room(size)
            block = Block(data, data.ctypes.data)
        return block

    def give(self, block: Block) -> None:
        """Let other runs use a block."""
        self._free.append(block)

    def held(self) -> int:
        """Bytes that wait for a run."""
        return sum(block.data.nbytes for block in list(self._free))


class Workspace:
    """What one run at a time of a plan uses: its base addresses and counters, and meanwhile a block of memory
    for arena and scratch.
    """

    def __init__(self, plan: CpuPlan, program: Program) -> None:
        self._scratch_at = plan.arena_size + SLACK  # elements
        self.size = self._scratch_at + plan.scratch_size * plan.threads
        self.bases = program.bases.copy()
        self.flags = np.zeros((len(plan.flags), 2), np.int64)
        if plan.flags:
            self.bases[program.index["flags"]] = self.flags.ctypes.data
        self.job = Job(program.records, self.bases, plan.scratch_size * 4, plan.threads)
        self._block: Block | None = None
        self._address = 0  # of the last block

    @property
    def arena(self) -> Array:
        """The values between layers, during a run and until the block is given back."""
        assert self._block is not None
        return self._block.data

    def enter(self, memory: Memory) -> None:
        """Take a block for a run."""
        block = self._block = memory.take(self.size)
        if block.address != self._address:
            self._address = block.address
            self.bases[0] = block.address
            self.job.scratch_at(block.address + 4 * self._scratch_at)

    def leave(self, memory: Memory) -> None:
        """Give the block back."""
        block, self._block = self._block, None
        if block is not None:
            memory.give(block)


def check_room(size: int) -> None:
    """Raise EngineError if the machine has fewer than ``size`` bytes of memory."""
    if size > machine_memory():
        raise EngineError(
            f"running this model at this size takes {size / 2**30:,.1f} GB for values between layers; "
            f"the machine has {machine_memory() / 2**30:,.1f} GB"
        )
