"""A Plan as a flat integer program: one record of int64 cells per step, operands as (base, byte offset)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from bslite.errors import EngineError
from bslite.plan import Plan

Program = npt.NDArray[np.int64]


def kernel_of(reference: Any) -> Any:
    """The kernel that a plan names as ``["gemm_sweep", rows, vecs]`` and the like."""
    from bslite.kernels.cpu.activation import activation
    from bslite.kernels.cpu.sweep import depthwise_sweep, gemm_sweep

    name, *variant = reference
    return {"gemm_sweep": gemm_sweep, "depthwise_sweep": depthwise_sweep, "activation": activation}[name](
        *variant
    )


def kernels(plan: Plan) -> list[Any]:
    """Every kernel the plan calls, each once, in order of first use."""
    from bslite.kernels.cpu import STEP_KERNELS

    found: dict[str, Any] = {}
    for step in plan.steps:
        for kernel in (
            *(kernel_of(v) for v in step.args.values() if isinstance(v, (list, tuple))),
            STEP_KERNELS[step.kernel],
        ):
            found.setdefault(kernel.name, kernel)
    return list(found.values())


def base_index(plan: Plan) -> dict[str, int]:
    """Buffer or constant name -> its place in the table of base addresses; arena buffers share the first."""
    index = {name: 0 for name, buffer in plan.buffers.items() if buffer.kind == "arena"}
    for name, buffer in plan.buffers.items():
        if buffer.kind != "arena":
            index[name] = 1 + len(index.keys() - {n for n, i in index.items() if i == 0})
    for name in plan.consts:
        index[name] = 1 + max(index.values(), default=0)
    return index


def encode(plan: Plan) -> Program:
    """The program, with the addresses of this process's kernels, compiled or loaded here if need be."""
    from bslite.kernels.cpu import STEP_KERNELS
    from bslite.kernels.cpu.walk import CELLS

    bases = base_index(plan)
    program = np.zeros((len(plan.steps), CELLS), np.int64)
    for record, step in zip(program, plan.steps, strict=True):
        kernel = STEP_KERNELS[step.kernel]
        cells: Mapping[str, int] = {name: i for i, name in enumerate(kernel.fields)}
        if len(cells) > CELLS:
            raise EngineError(
                f"the record of kernel {step.kernel!r} has {len(cells)} cells; there is room for {CELLS}"
            )
        given = {"kernel": kernel.address, "items": step.items, "after": step.after}
        for name, (buffer, offset) in step.operands.items():
            start = offset + plan.places.get(buffer, 0)
            width = 8 if buffer in plan.consts and plan.consts[buffer].recipe == "offsets" else 4
            given |= {name: bases[buffer], f"{name}_at": width * start}
        for name, value in step.args.items():
            given[name] = _cell(value)
        missing = set(cells) - set(given)
        unknown = set(given) - set(cells)
        if missing or unknown:
            raise EngineError(
                f"step {step.kernel!r}: cells not given {sorted(missing)}, not known {sorted(unknown)}"
            )
        for name, value in given.items():
            if name in cells:
                record[cells[name]] = value
    return program


def _cell(value: Any) -> int:
    """One argument as a cell: a float as its float32 bits in the low half, a kernel as its address."""
    if isinstance(value, (list, tuple)):
        return int(kernel_of(value).address)
    if isinstance(value, float):
        return int(np.float32(value).view(np.uint32))
    return int(value)
