"""A kernel launch as a step of a plan."""

from collections.abc import Sequence
from dataclasses import dataclass

from bslite.errors import EngineError
from bslite.explore.gpu import GpuMachine
from bslite.kernels.contracts.launch import LaunchRecord, LaunchVariant
from bslite.plan.core.builder import Builder
from bslite.plan.core.plan import Plan, Step, accesses
from bslite.plan.core.views import View, size_of
from bslite.plan.cuda.library import LibraryCall
from bslite.plan.cuda.tuning import Tuning

#: The most blocks along x, y and z.
MOST_BLOCKS = (2**31 - 1, 65535, 65535)
#: The largest number of elements of a view: kernels compute places in 32 bits.
MOST_ELEMENTS = 2**31 - 1


@dataclass(kw_only=True)
class Launch(Step):
    """A grid of blocks of a kernel. ``variant`` is compiled in; ``record`` holds the kernel's parameters.

    ``seconds`` is the planner's prediction, where a price chose the launch. ``library`` is the torch call
    that computes the same; the engine measures against it.
    """

    record: LaunchRecord
    variant: LaunchVariant
    grid: tuple[int, ...]
    block: tuple[int, ...]
    seconds: float | None = None
    library: LibraryCall | None = None

    @property
    def tile(self) -> str:
        """The rows and columns that a thread of a stack takes at a time, as ``rows x columns``."""
        constants = self.variant.constants()
        return f"{constants['turn']}x{constants['columns']}" if "columns" in constants else ""

    @property
    def work(self) -> str:
        """The number of blocks, and of threads per block."""
        return f"{size_of(self.grid):7d} blocks of {'x'.join(map(str, self.block)):<7}"


CudaPlan = Plan[Launch]
CudaBuilder = Builder[GpuMachine, Tuning, Launch]


def launch(
    b: CudaBuilder,
    record: LaunchRecord,
    variant: LaunchVariant,
    grid: Sequence[int],
    block: Sequence[int],
    reads: Sequence[View] = (),
    writes: Sequence[View] = (),
    seconds: float | None = None,
) -> Launch | None:
    """Append a launch by the current layer. A launch of no blocks is left out.

    ``reads`` and ``writes`` are the views that the launch touches; the arena is allocated by them. Raises
    EngineError if there are more blocks than a GPU takes.
    """
    if not size_of(tuple(grid)):
        return None
    shape = tuple(map(int, grid))
    if any(n > most for n, most in zip(shape, MOST_BLOCKS, strict=False)):
        raise EngineError(f"layer {b.layer[-1]!r}: {shape} blocks; a GPU takes at most {MOST_BLOCKS}")
    made = Launch(
        record=record,
        variant=variant,
        grid=shape,
        block=tuple(map(int, block)),
        layers=b.layer,
        reads=accesses(reads),
        writes=accesses(writes),
        seconds=seconds,
    )
    b.steps.append(made)
    return made
