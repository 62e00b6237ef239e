"""The planner for GPUs: from a ModelSpec and concrete shapes to a Plan."""

from collections.abc import Sequence

from bslite.errors import EngineError
from bslite.explore.gpu import GpuMachine
from bslite.ops import Shape
from bslite.passes import fuse
from bslite.passes.layouts import channels_second
from bslite.plan.core.concats import place_concats
from bslite.plan.core.ends import copy_outputs, lie_as_images, place_inputs, place_outputs
from bslite.plan.core.lowering import CUDA
from bslite.plan.core.memory import place_buffers, set_order
from bslite.plan.cuda.gemm.prologues import choose_prologues
from bslite.plan.cuda.launch import CudaBuilder, CudaPlan
from bslite.plan.cuda.stack.choose import choose_stacks, lower_stacked
from bslite.plan.cuda.target import Gpu
from bslite.plan.cuda.tuning import Tuning
from bslite.registry import load_modules
from bslite.spec import ModelSpec

load_modules("bslite.plan.shared.ops")
load_modules("bslite.plan.cuda.ops")

ALIGN = 64  # elements: buffers begin on multiples of 256 bytes, as the driver's own allocations do


def build_plan(
    spec: ModelSpec,
    shapes: Sequence[Shape],
    machine: GpuMachine,
    *,
    input_strides: Sequence[Shape] | None = None,
    channels_last: bool = False,
    layerwise: bool = False,
    keep_values: bool = False,
    tuning: Tuning | None = None,
) -> CudaPlan:
    """Plan a *simplified* spec (`bslite.passes.simplify`) for inputs of these shapes on this GPU.

    ``input_strides`` are in elements, row-major by default. ``channels_last``: so lie outputs that are
    images, else all outputs are row-major. ``layerwise`` fuses no layers. ``keep_values`` gives every value
    memory of its own. Raises EngineError naming all ops that have no GPU kernel.
    """
    all_shapes = spec.infer_shapes(shapes)
    missing = unsupported_ops(spec)
    if missing:
        raise EngineError(f"the GPU engine has no kernel for {', '.join(missing)} (model {spec.name!r})")
    layers = fuse(spec, enabled=not layerwise, norms=False)
    target = Gpu(machine, tuning or Tuning())
    second = channels_second(spec, all_shapes, lie_as_images(spec, shapes, input_strides))
    places = place_concats(layers, all_shapes)
    b = CudaBuilder(spec, all_shapes, target, places, second=second, layerwise=layerwise)
    place_inputs(b, shapes, input_strides)
    outputs, direct = place_outputs(b, layers, channels_last)
    b.write_outputs_to(direct)
    whole = layerwise or keep_values
    stacks = [] if whole else choose_stacks(b, layers, spec.outputs)
    stacked = {name for stack in stacks for name in stack.names}
    prologues = [] if whole else choose_prologues(b, layers, spec.outputs, stacked)
    lower_stacked(b, layers, stacks, prologues)
    copy_outputs(b, outputs)
    plan = CudaPlan(
        model=spec.name,
        shapes=tuple(map(tuple, shapes)),
        threads=1,
        steps=b.steps,
        buffers=b.buffers,
        consts=b.consts,
        values=b.values,
        inputs=[b.values[i.name] for i in spec.inputs],
        outputs=outputs,
        flags=b.flags,
    )
    place_buffers(plan, reuse=not keep_values, align=ALIGN)
    set_order(plan, sequential=True)  # launches of a stream run one after the other
    return plan


def unsupported_ops(spec: ModelSpec) -> list[str]:
    """Return the ops of a simplified spec that have no GPU kernel, in alphabetical order."""
    return sorted({node.op for node in spec.nodes} - set(CUDA))
