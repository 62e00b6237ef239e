"""Builds the CPU's plan of a ModelSpec for concrete shapes."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence

from bslite.errors import EngineError
from bslite.machine import Machine
from bslite.ops import Shape
from bslite.passes import Layer, by_level, fuse, most_alive
from bslite.passes.layouts import channels_second
from bslite.plan.core.bands import Crop
from bslite.plan.core.concats import place_concats
from bslite.plan.core.ends import copy_outputs, lie_as_images, place_inputs, place_outputs
from bslite.plan.core.lowering import CPU
from bslite.plan.core.memory import place_buffers, set_order
from bslite.plan.cpu.chains import without_chains
from bslite.plan.cpu.halos import halo_needs
from bslite.plan.cpu.on_tiles.split import in_one_part
from bslite.plan.cpu.ops.conv_input import runs_across
from bslite.plan.cpu.ops.move import widen_step
from bslite.plan.cpu.phases import images_of, in_phases
from bslite.plan.cpu.scratch import apart, scratch_of
from bslite.plan.cpu.stack_steps import lower_layers
from bslite.plan.cpu.stacks import Stack, choose_stacks, shown, threads_worth
from bslite.plan.cpu.step import CpuBuilder, CpuPlan, used_consts
from bslite.plan.cpu.stored_cells import without_float32
from bslite.plan.cpu.target import Cpu
from bslite.plan.cpu.tuning import Tuning
from bslite.plan.cpu.turned import turn_in_store
from bslite.plan.cpu.work import at_precision
from bslite.registry import load_modules
from bslite.spec import ModelSpec

load_modules("bslite.plan.shared.ops")
load_modules("bslite.plan.cpu.ops")


def build_plan(
    spec: ModelSpec,
    shapes: Sequence[Shape],
    machine: Machine,
    *,
    input_strides: Sequence[Shape] | None = None,
    layerwise: bool = False,
    keep_values: bool = False,
    tuning: Tuning | None = None,
) -> CpuPlan:
    """Plan a *simplified* spec (`bslite.passes.simplify`) for inputs of these shapes.

    ``input_strides``: in elements; row-major if not given. ``layerwise``: one layer at a time, nothing fused,
    nothing overlapped. ``keep_values``: every value keeps memory of its own, so that it can be read
    afterwards. ``tuning``: options of the planner, to measure one choice against another.
    """
    tuning = tuning or Tuning()
    machine = at_precision(machine, tuning.precision)
    all_shapes = spec.infer_shapes(shapes)
    layers = fuse(spec, enabled=not layerwise, sums=in_one_part(machine))
    unsupported = sorted({layer.node.op for layer in layers} - set(CPU))
    if unsupported:
        raise EngineError(f"the CPU engine has no kernel for {', '.join(unsupported)} (model {spec.name!r})")
    whole = layerwise or keep_values
    lie_so = lie_as_images(spec, shapes, input_strides)
    across = functools.partial(runs_across, machine, spec)
    second = channels_second(spec, all_shapes, lie_so, machine.lanes, across)
    images = None if whole else images_of(layers, spec, all_shapes, machine.threads)
    stacks: list[Stack] = []
    if images is not None:
        layers, runs = in_phases(layers, images, machine, spec.outputs)
        stacks = [Stack(*run) for run in runs]
    elif not whole:
        stacks = choose_stacks(layers, spec, all_shapes, second, machine, tuning.banding, tuning.runs)
    if tuning.chains:
        stacks = without_chains(stacks, layers, all_shapes, spec.dtypes, second)
    if not stacks and not layerwise:
        layers = _in_order(layers, all_shapes, machine)
    crop = Crop({}, all_shapes)
    places = place_concats(shown(layers, stacks, spec.outputs), all_shapes)
    halos = halo_needs(layers, places, spec, crop)
    target = Cpu(machine, dataclasses.replace(tuning, chains=tuning.chains and not whole))
    b = CpuBuilder(spec, all_shapes, target, places, halos, crop, second, layerwise=whole)
    place_inputs(b, shapes, input_strides)
    given = [b.values[i.name] for i in spec.inputs]
    for place in sorted(tuning.as_bytes):
        widen_step(b, spec.inputs[place].name)
    outputs, direct = place_outputs(b, layers)
    b.write_outputs_to(direct)
    lower_layers(b, layers, stacks, spec.outputs)
    if not whole:
        turn_in_store(b, outputs)
    copy_outputs(b, outputs)
    if not keep_values:
        without_float32(b, outputs)
    threads, in_region = threads_worth(layers, spec, all_shapes, machine)
    plan = CpuPlan(
        model=spec.name,
        shapes=tuple(map(tuple, shapes)),
        threads=threads,
        threads_in_region=in_region,
        steps=b.steps,
        buffers=b.buffers,
        consts=b.consts if keep_values else used_consts(b, outputs),
        values=b.values,
        inputs=given,
        as_bytes=tuning.as_bytes,
        outputs=outputs,
        flags=b.flags,
    )
    place_buffers(plan, reuse=not keep_values, shares=plan.threads)
    plan.scratch_size = apart(scratch_of(plan))
    set_order(plan, sequential=layerwise)
    return plan


def _in_order(layers: list[Layer], shapes: Mapping[str, Shape], machine: Machine) -> list[Layer]:
    """The layers by level, for threads that share them, where that does not push values out of the cache."""
    levels = by_level(layers)
    most = max(machine.l3 // 4, most_alive(layers, shapes))
    return levels if most_alive(levels, shapes) <= most else layers
