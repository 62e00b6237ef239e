"""A GPU for the engine that runs the PTX of the kernels, and watches each step of a plan: it may read what
the plan says it reads, write what the plan says it writes, and touches nothing else. The arena is shared out
by what steps say.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from bslite.engines.cuda import engine, program, session
from bslite.engines.cuda.driver import Cells, Memory
from bslite.engines.cuda.simulated import SimulatedDriver
from bslite.explore.gpu import GpuMachine
from bslite.kernels.cuda import KERNELS
from bslite.kernels.cuda.runtime.kernel import DTYPES, Kernel
from bslite.plan import Plan, Step
from bslite.plan.core.plan import Access
from support.ptx.compiler import program_of
from support.ptx.machine import Counted, Region, launch


class PtxDriver(SimulatedDriver):
    """Plans are those for a large GPU. ``counted``: what each step did, in the order they ran."""

    name = "PTX on the CPU"
    machine = GpuMachine()

    def __init__(self) -> None:
        super().__init__()
        self.counted: list[tuple[Step, Counted]] = []
        self.seed: int | None = None  # in which order blocks and warps run

    def function(self, kernel: str, variant: Mapping[str, Any]) -> Any:
        """A kernel and its variant, to be compiled when it starts."""
        return KERNELS[kernel], dict(variant)

    def bind(
        self,
        function: Any,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        arguments: Sequence[Cells | np.generic],
    ) -> Any:
        """A launch."""
        return _Launch(self, *function, grid, block, arguments)


def three(sizes: Sequence[int]) -> tuple[int, int, int]:
    """A grid or block with all its axes."""
    x, y, z = (*map(int, sizes), 1, 1)[:3]
    return x, y, z


def table(kernel: Kernel, given: Mapping[str, Any]) -> list[Any]:
    """Arguments as numba-cuda's kernels take them: an array is seven."""
    made: list[Any] = []
    for name, kind in kernel.arrays.items():
        size, cells = np.dtype(DTYPES[kind]).itemsize, given[name]
        made += [0, 0, cells.count, size, cells.address, cells.count, size]
    for name, kind in kernel.scalars.items():
        made.append(float(given[name]) if kind[0] == "f" else int(given[name]))
    return made


class _Launch:
    def __init__(
        self, driver: PtxDriver, kernel: Any, variant: Any, grid: Any, block: Any, arguments: Any
    ) -> None:
        self._driver, self._kernel, self._variant = driver, kernel, variant
        self._grid, self._block, self._arguments = three(grid), three(block), list(arguments)

    def watch(
        self, plan: Plan, step: Step, bases: Mapping[str, int], constants: Mapping[str, Memory]
    ) -> None:
        """The step this is."""
        self._plan, self._step, self._bases, self._constants = plan, step, bases, constants

    def point(self, argument: int, address: int) -> None:
        old = self._arguments[argument]
        self._arguments[argument] = Cells(address, old.dtype, old.count)

    def start(self, stream: int) -> None:
        names = [*self._kernel.arrays, *self._kernel.scalars]
        given = dict(zip(names, self._arguments, strict=True))
        # A buffer of the caller's begins where an argument that lies in it says.
        bases = dict(self._bases)
        for name, (buffer, offset) in self._step.operands.items():
            if buffer not in bases and buffer not in self._constants:
                bases[buffer] = given[name].address - 4 * offset

        def region(a: Access, writable: bool) -> Region:
            base = bases[a.buffer]
            return Region(base + 4 * a.lo, 4 * (a.hi - a.lo), writable, base, a.period, a.first, a.last)

        reads = [region(a, False) for a in self._step.reads if a.buffer in bases]
        writes = [region(a, True) for a in self._step.writes]
        for buffer, _ in self._step.operands.values():
            if buffer in self._constants:
                constant = self._constants[buffer]
                reads.append(Region(constant.address, constant.size, False))
        counted = launch(
            program_of(self._kernel.name, self._variant), self._grid, self._block,
            table(self._kernel, given), [r for r in (*reads, *writes) if r.size],
            together=bool(self._variant.get("together")), dynamic_shared=self._kernel.dynamic(self._variant),
            seed=self._driver.seed,
        )  # fmt: skip
        self._driver.counted.append((self._step, counted))


def watched(plan: Plan, driver: Any, bases: Mapping[str, int], constants: Mapping[str, Memory]) -> list[Any]:
    """As `launches`, each of which knows its step."""
    made = program.launches(plan, driver, bases, constants)
    for step, one in zip(plan.steps, made, strict=True):
        one.bound.watch(plan, step, bases, constants)  # type: ignore[attr-defined]
    return made


@pytest.fixture
def ptx(monkeypatch: pytest.MonkeyPatch) -> PtxDriver:
    """``backend="cuda"`` is this GPU."""
    driver = PtxDriver()
    monkeypatch.setattr(engine, "driver_for", lambda device=0: driver)
    monkeypatch.setattr(session, "launches", watched)
    return driver
