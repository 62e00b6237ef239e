"""A Plan as a flat integer program: one record of int64 cells per step, operands as (base, byte offset)."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from bslite.errors import EngineError
from bslite.kernels.contracts.cpu.sweep import GemmSweep
from bslite.kernels.contracts.record import Variant
from bslite.machine import Machine
from bslite.plan import Const
from bslite.plan.cpu.ops.move import AXES
from bslite.plan.cpu.scratch import bases_of, own_scratch, stack_arena_at
from bslite.plan.cpu.step import CpuPlan, CpuStep
from bslite.plan.cpu.tiling import WIDTHS, max_rows

Array = npt.NDArray[Any]


def kernels(plan: CpuPlan) -> list[Any]:
    """Every kernel the plan calls, each once, in order of first use."""
    from bslite.kernels.cpu import STEP_KERNELS
    from bslite.kernels.cpu.runtime.compile import kernel_of

    found: dict[str, Any] = {}
    for step in plan.steps:
        for kernel in (
            *(kernel for plan_ in step.plans for kernel in kernels(plan_)),
            *map(kernel_of, step.record.variants()),
            STEP_KERNELS[step.kernel],
        ):
            found.setdefault(kernel.name, kernel)
    return list(found.values())


#: Whether a plan calls one of these depends on sizes and layouts, not on the model alone.
BY_SHAPE = ("copy", "halo", "interleave", "stack", "transpose")


def kernels_for_any_shape(plan: CpuPlan, machine: Machine) -> list[Any]:
    """The kernels of the plan, and those that plans of the same model for other batches and sizes may call.

    They are made ready together, so that no other input compiles anything once a model has run.
    """
    from bslite.kernels.cpu import STEP_KERNELS
    from bslite.kernels.cpu.runtime.compile import kernel_of

    found = {kernel.name: kernel for kernel in kernels(plan)}
    more = [STEP_KERNELS[name] for name in BY_SHAPE]
    if any(len(view.shape) > AXES for view in plan.values.values()):
        more.append(STEP_KERNELS["copy_axes"])
    if "conv" in found:
        more += [kernel_of(GemmSweep(vecs, max_rows(machine, vecs))) for vecs in range(1, max(WIDTHS) + 1)]
    return list(found.values()) + [kernel for kernel in more if kernel.name not in found]


class Program:
    """A plan encoded: ``records`` of int64 cells, and ``bases``, the table of base addresses.

    The addresses of constants are filled in, and those of kernels, compiled or loaded here if need be.
    """

    def __init__(self, plan: CpuPlan, constant: Callable[[Const], Array]) -> None:
        from bslite.kernels.cpu.runtime.compile import CELLS

        self.index = {name: 0 for name, buffer in plan.buffers.items() if buffer.kind == "arena"}
        # What a run takes and makes comes first and in order, so that its addresses are written at once.
        ends = [f"input{i}" for i in range(len(plan.inputs))] + [
            f"output{i}" for i in range(len(plan.outputs))
        ]
        outside = [n for n, buffer in plan.buffers.items() if buffer.kind != "arena"]
        elsewhere = dict.fromkeys([*(n for n in ends if n in plan.buffers), *outside, *plan.consts])
        self.index |= {name: 1 + i for i, name in enumerate(elsewhere)}
        self.bases = np.zeros(bases_of(plan), np.int64)
        self._kept: list[Any] = []  # keeps the arrays alive whose addresses are in the records
        for name, const in plan.consts.items():
            data = constant(const)
            self._kept.append(data)
            self.bases[self.index[name]] = data.ctypes.data
        self.records = np.zeros((len(plan.steps), CELLS), np.int64)
        for record, step in zip(self.records, plan.steps, strict=True):
            given: dict[str, Any] = {"items": step.items, "after": step.after, **step.record.numbers()}
            if step.bands:
                given |= self._stack(step, plan.places, constant)
            for name, (buffer, offset) in step.operands.items():
                width = 8 if buffer in plan.consts and plan.consts[buffer].recipe == "offsets" else 4
                given |= {
                    name: self.index[buffer],
                    f"{name}_at": width * (offset + plan.places.get(buffer, 0)),
                }
            _fill(record, step.kernel, given)

    def _stack(
        self, step: CpuStep, places: Mapping[str, int], constant: Callable[[Const], Array]
    ) -> dict[str, int]:
        """The cells of a "stack" step: a table of its bands, each with its program and its ends."""
        inner = [Program(plan, constant) for plan in step.plans]
        table = np.zeros((len(step.bands), 8), np.int64)  # columns: `kernels.cpu.runtime.stack.BAND`
        for row, band in zip(table, step.bands, strict=True):
            program = inner[band.plan]
            ends = [
                (
                    program.index[e.inner],
                    self.index[e.outer],
                    4 * (e.offset + places.get(e.outer, 0)),
                    4 * e.image,
                )
                for e in band.ends
            ]
            tied = np.array(ends, np.int64)
            self._kept.append(tied)
            plan, records, bases = step.plans[band.plan], program.records, program.bases
            row[:] = (
                records.ctypes.data, len(records), bases.ctypes.data, len(bases), tied.ctypes.data, len(tied),
                4 * stack_arena_at(plan), 4 * own_scratch(plan),
            )  # fmt: skip
        self._kept += [inner, table]
        return {"table": table.ctypes.data, "bands": len(table)}


def _fill(record: Any, name: str, given: dict[str, Any]) -> None:
    """Write the cells of one step, all of them and no others."""
    from bslite.kernels.cpu import STEP_KERNELS

    kernel = STEP_KERNELS[name]
    given["kernel"] = kernel.address
    if len(kernel.fields) > len(record):
        raise EngineError(f"kernel {name!r} has {len(kernel.fields)} cells; a record has {len(record)}")
    if set(given) != set(kernel.fields):
        wrong = sorted(set(given) ^ set(kernel.fields))
        raise EngineError(f"step {name!r}: cells {wrong} are given but not known, or known but not given")
    cells = [_cell(given[field]) for field in kernel.fields]
    try:
        record[: len(cells)] = cells
    except OverflowError:
        wide = [f"{field} is {given[field]}" for field in kernel.fields if not _fits(given[field])]
        raise EngineError(f"step {name!r}: {', '.join(wide)}, beyond 64 bits") from None


def _cell(value: Any) -> int:
    """One argument as a cell: a float as its float32 bits in the low half, a kernel as its address."""
    if type(value) is int:
        return value
    if value is None:
        return 0
    if isinstance(value, Variant):
        from bslite.kernels.cpu.runtime.compile import kernel_of

        return int(kernel_of(value).address)
    if isinstance(value, float):
        return int(np.float32(value).view(np.uint32))
    return int(value)


def _fits(value: Any) -> bool:
    return -(2**63) <= _cell(value) < 2**63
