"""Steps of a CPU plan: a kernel over independent items of work, each done by one thread."""

from collections.abc import Sequence
from dataclasses import dataclass

from bslite.kernels.contracts.record import StepRecord
from bslite.machine import Machine
from bslite.plan.core.builder import Builder
from bslite.plan.core.plan import Const, Plan, Step, accesses
from bslite.plan.core.views import View
from bslite.plan.cpu.tuning import Tuning


@dataclass(frozen=True)
class End:
    """Links a buffer of a stack's plan to memory outside: image n's starts at ``offset + n * image``."""

    inner: str
    outer: str
    offset: int  # elements
    image: int  # elements


@dataclass(frozen=True)
class Band:
    """One work item of a stack for each image: plan number ``plan`` of the step, between these ends."""

    plan: int
    ends: tuple[End, ...]


@dataclass(kw_only=True)
class CpuStep(Step):
    """``items`` independent items of work, which threads claim in any order.

    ``scratch``: elements of memory that a thread needs for an item. ``plans`` and ``bands``: for a "stack"
    step, the plans that one thread runs from end to end, and their bands of an image. ``tiled``: the step is
    a chain of elementwise layers, its bands are tiles, and its images are equal parts of the values.
    """

    record: StepRecord
    items: int
    scratch: int = 0
    plans: "tuple[CpuPlan, ...]" = ()
    bands: tuple[Band, ...] = ()
    tiled: bool = False

    @property
    def tile(self) -> str:
        """The register tile as ``rows x vector registers``, where the kernel has one."""
        return str(self.record.tile)

    @property
    def work(self) -> str:
        """The step's items, the steps that come before, and its tile, in words."""
        return f"items {self.items:5d} after {self.after:4d} tile {self.tile or '-':>5}"

    @property
    def cut(self) -> str:
        """The bands of a stack, or the tiles of a chain, in words."""
        if self.tiled:
            return f"in {self.items} tile(s)"
        return f"in {len(self.bands)} band(s) of an image"

    @property
    def inner(self) -> "CpuPlan | None":
        """The plan of the middle band of a "stack" step."""
        return self.plans[self.bands[len(self.bands) // 2].plan] if self.bands else None


CpuPlan = Plan[CpuStep]
CpuBuilder = Builder[Machine, Tuning, CpuStep]


def used_consts(b: CpuBuilder, outputs: Sequence[View]) -> dict[str, Const]:
    """The constants that a step reads, or that are an output: others were packed in another form."""
    read = {operand.buffer for step in b.steps for operand in step.operands.values()}
    read |= {end.outer for step in b.steps for band in step.bands for end in band.ends}
    read |= {view.buffer for view in outputs}
    return {name: const for name, const in b.consts.items() if name in read}


def step(
    b: CpuBuilder,
    record: StepRecord,
    items: int,
    reads: Sequence[View] = (),
    writes: Sequence[View] = (),
    scratch: int = 0,
) -> CpuStep:
    """Append a step of the current layer, which uses ``scratch`` elements of its thread's own memory."""
    made = CpuStep(
        record=record,
        layers=b.layer,
        items=items,
        reads=accesses(reads),
        writes=accesses(writes),
        scratch=scratch,
    )
    b.steps.append(made)
    return made
