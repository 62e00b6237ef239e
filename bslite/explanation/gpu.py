"""`explain` for a GPU: what the GPU engine will do with a model. Nothing runs."""

from collections.abc import Sequence
from typing import Any

from bslite.errors import EngineError, InputError
from bslite.explanation.data.gpu import GpuResult, gpu_rows
from bslite.explanation.views.gpu_text import table
from bslite.explore.gpu import GpuMachine
from bslite.ops import Shape
from bslite.passes import simplify
from bslite.plan.cuda import build_plan
from bslite.plan.cuda.price import FLOAT
from bslite.spec import ModelSpec


class GpuExplanation(GpuResult):
    """The plan of one model at one size for ``machine``, the GPU called ``device``. ``str()`` is a table.

    ``rows`` are the launches in order, each a `GpuRow`; layers without a launch stand between them.
    ``memory``: bytes by owner.
    """

    def __str__(self) -> str:
        return table(self)


def explain_on_gpu(
    spec: ModelSpec,
    shapes: Sequence[Shape],
    strides: Sequence[Shape] | None = None,
    machine: GpuMachine | None = None,
    device: int = 0,
) -> GpuExplanation:
    """The plan for inputs of these shapes, with strides in elements (row-major if not given).

    ``machine``: the GPU to plan for; by default GPU number ``device`` of this computer, and where there is
    none, a `GpuMachine` with its defaults. Raises InputError for a machine of another type.
    """
    if machine is not None and not isinstance(machine, GpuMachine):
        raise InputError(f"explain(): machine is a {type(machine).__name__}, expected a GpuMachine")
    driver, named = None, "a machine as described"
    if machine is None:
        machine, named, driver = _here(device)
    simple = simplify(spec)
    plan = build_plan(simple, shapes, machine, input_strides=strides)
    rows = gpu_rows(spec, simple, plan, machine, driver)
    ends = {
        kind: FLOAT * sum(b.size for b in plan.buffers.values() if b.kind == kind)
        for kind in ("input", "output")
    }
    weights = FLOAT * sum(p.size for p in simple.params.values())
    memory = {**ends, "weights": weights, "arena": FLOAT * plan.arena_size}
    return GpuExplanation(spec.name, plan.shapes, named, machine, tuple(rows), memory)


def _here(device: int) -> tuple[GpuMachine, str, Any]:
    """The machine, its name and its driver; without a GPU, the assumed machine and no driver."""
    from bslite.engines.cuda.devices import driver_for

    try:
        driver = driver_for(device)
    except EngineError:
        return GpuMachine(), "an H200 by its data sheet, assumed because there is no GPU here", None
    return driver.machine, driver.name, driver
