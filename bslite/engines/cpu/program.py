"""A Plan as a flat integer program: one record of int64 cells per step, operands as (base, byte offset)."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from bslite.errors import EngineError
from bslite.kernels.contracts.cpu.stack import Stacked
from bslite.kernels.contracts.cpu.sweep import DepthwiseSweep, GemmSweep, Narrow, Widen
from bslite.kernels.contracts.cpu.tiles import PARTS, TileSweep
from bslite.kernels.contracts.record import Operand, StepRecord, Variant
from bslite.machine import Machine
from bslite.plan import Const
from bslite.plan.cpu.ops.move import AXES
from bslite.plan.cpu.scratch import bases_of, own_scratch, stack_arena_at
from bslite.plan.cpu.step import CpuPlan, CpuStep
from bslite.plan.cpu.tiling import WIDTHS, sweep
from bslite.spec import Array

#: Whether a plan calls one of these depends on sizes and layouts, not on the model alone.
BY_SHAPE = ("copy", "halo", "interleave", "stack", "transpose")
#: Kernels that compute the same, by multiply-adds and on tiles of bfloat16.
TWINS = (("conv", "split_conv"), ("attention", "split_attention"))
#: The same, by dot products of bfloat16 in the place of tiles.
DOT_TWINS = ("attention", "rounded_attention")


def kernels_for_any_shape(plan: CpuPlan, machine: Machine, own: Mapping[str, Any]) -> list[Any]:
    """The kernels of the plan, ``own`` by name, and those that plans of the same model for other batches and
    sizes may call.

    They are made ready together, so that no other input compiles anything once a model has run.
    """
    from bslite.kernels.cpu import STEP_KERNELS
    from bslite.kernels.cpu.runtime.compile import kernel_of

    more = [STEP_KERNELS[name] for name in BY_SHAPE]
    if any(len(view.shape) > AXES for view in plan.values.values()):
        more.append(STEP_KERNELS["copy_axes"])
    multiply = [name for pair in TWINS if set(pair) & own.keys() for name in pair]
    called = {v for p in _within(plan) for s in p.steps for v in s.record.variants()}
    if machine.tile_cycles and multiply:
        # Other sizes, and numbers without exact parts, take the other one.
        more += [STEP_KERNELS[name] for name in multiply]
        usual = TileSweep(machine.tile_products, PARTS[machine.tile_products])
        more += map(kernel_of, {v for v in called if isinstance(v, TileSweep)} or {usual})
    if multiply:
        found = {(False, Narrow.NO)} | {(v.dots, v.narrow) for v in called if isinstance(v, GemmSweep)}
        found |= {(False, v.narrow) for v in called if isinstance(v, Widen)}  # for fewer pixels
        if any(dots for dots, _ in found):
            twins = DOT_TWINS if own.keys() & set(DOT_TWINS) else ()
            more += [STEP_KERNELS[name] for name in ("rounded", *twins)]
            more += [kernel_of(replace(v, cells=True)) for v in called if isinstance(v, DepthwiseSweep)]
        for dots, narrow in found:
            widths = range(1, max(WIDTHS) + 1)
            more += [kernel_of(sweep(machine, vecs, dots, narrow=narrow)) for vecs in widths]
    return [*own.values(), *(kernel for kernel in more if kernel.name not in own)]


def _within(plan: CpuPlan) -> list[CpuPlan]:
    """A plan and those of its stacks."""
    return [plan, *(inner for step in plan.steps for p in step.plans for inner in _within(p))]


class Program:
    """A plan encoded: ``records`` of int64 cells, and ``bases``, the table of base addresses.

    The addresses of constants are filled in, and those of ``kernels``, by name in order of first use, which
    are compiled or loaded here if need be.
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
        self.kernels: dict[str, Any] = {}
        self.steps, self.tables = len(plan.steps), 0  # and bytes of tables, with those of the plans within
        for name, const in plan.consts.items():
            data = constant(const)
            self._kept.append(data)
            self.tables += 0 if const.keys else data.nbytes
            self.bases[self.index[name]] = data.ctypes.data
        self._starts = {name: (base, 4 * plan.places.get(name, 0), 4) for name, base in self.index.items()}
        for name, const in plan.consts.items():
            if const.recipe == "offsets":
                self._starts[name] = self.index[name], 0, 8
        self.records = np.zeros((len(plan.steps), CELLS), np.int64)
        for place, step in enumerate(plan.steps):
            self._write(place, step, self._stack(step, constant) if step.bands else step.record)

    def _stack(self, step: CpuStep, constant: Callable[[Const], Array]) -> Stacked:
        """The record of a "stack" step: a table of its bands, each with its program and its ends."""
        rows = []  # for each plan, what the rows of its bands begin and end with
        for plan in step.plans:
            program = Program(plan, constant)
            self._kept.append(program)
            self.steps += program.steps
            self.tables += program.tables
            self.kernels = program.kernels | self.kernels
            records, bases = program.records, program.bases
            first = records.ctypes.data, len(records), bases.ctypes.data, len(bases)
            rows.append((program.index, first, (4 * stack_arena_at(plan), 4 * own_scratch(plan))))
        ends = np.empty((sum(len(band.ends) for band in step.bands), 4), np.int64)
        table = np.empty((len(step.bands), 8), np.int64)  # columns: `kernels.cpu.runtime.stack.BAND`
        tied: list[tuple[int, int, int, int]] = []
        bands: list[tuple[int, ...]] = []
        start = ends.ctypes.data
        for band in step.bands:
            index, first, last = rows[band.plan]
            bands.append((*first, start + 32 * len(tied), len(band.ends), *last))
            for end in band.ends:
                base, place, width = self._starts[end.outer]
                tied.append((index[end.inner], base, place + width * end.offset, 4 * end.image))
        if tied:
            ends[:] = tied
        table[:] = bands
        self._kept += [ends, table]
        return Stacked(table.ctypes.data, len(table))

    def _write(self, place: int, step: CpuStep, record: StepRecord) -> None:
        """Write the cells of one step."""
        from bslite.kernels.cpu import STEP_KERNELS
        from bslite.kernels.cpu.runtime.compile import kernel_of

        kernel = STEP_KERNELS[step.kernel]
        cells = [kernel.address, step.items, step.after]
        add = cells.append
        for value in record.arguments():
            kind = type(value)
            if kind is int:
                add(value)
            elif kind is Operand:
                base, start, width = self._starts[value.buffer]
                add(base)
                add(start + width * value.at)
            elif value is None:
                add(0)
            elif isinstance(value, float):  # of NumPy, too
                add(int(np.float32(value).view(np.uint32)))  # its bits, in the low half
            elif isinstance(value, Variant):
                called = kernel_of(value)
                self.kernels.setdefault(called.name, called)
                add(called.address)
            else:
                add(int(value))
        self.kernels.setdefault(kernel.name, kernel)
        if len(kernel.fields) > self.records.shape[1]:
            raise EngineError(
                f"kernel {step.kernel!r} has {len(kernel.fields)} cells; a record has {self.records.shape[1]}"
            )
        if len(cells) != len(kernel.fields):
            raise EngineError(
                f"step {step.kernel!r} has {len(cells)} cells; its kernel has {len(kernel.fields)}"
            )
        try:
            self.records[place, : len(cells)] = cells
        except OverflowError:
            named = zip(kernel.fields, cells, strict=True)
            wide = [f"{field} is {cell}" for field, cell in named if not -(2**63) <= cell < 2**63]
            raise EngineError(f"step {step.kernel!r}: {', '.join(wide)}, beyond 64 bits") from None
