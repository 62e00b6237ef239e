"""Plans of models, simplified, for the CPU and for a GPU."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from bslite import ModelSpec
from bslite.engines.cpu.detect import detect
from bslite.engines.cpu.engine import prepare
from bslite.explore.gpu import GpuMachine
from bslite.passes import simplify, simplify_for_gpu
from bslite.plan import Plan, build_plan, cuda
from bslite.plan.cpu.tuning import Tuning
from support.graphs import Graph
from support.noise import noise

MACHINE = GpuMachine()
BESIDE = 4096  # elements around an output that nothing may write


def plan_of(spec: ModelSpec, at: int | tuple[int, ...], threads: int = 2, **options: Any) -> Plan:
    """For this machine's CPU; ``at``: the shape of the one input, or the batch of all example inputs."""
    shapes = [(at, *i.example[1:]) for i in spec.inputs] if isinstance(at, int) else [at]
    return build_plan(simplify(spec), shapes, detect(threads), **options)


def open_in_the_middle() -> ModelSpec:
    """Outputs from within a run of layers, a residual from before it, a broadcast, a constant, an input of
    the model in a concat.
    """
    g, w = Graph(), noise(3, 3, 3, 3)
    x = g.input("x", ("N", 3, "H", "W"), (1, 3, 40, 20))
    c = g("constant", "c", value=noise(1, 3, 1, 1))
    first = g("conv2d", "first", x, weight=w, padding=1)
    shifted = g("mul", "shifted", first, c)
    second = g("conv2d", "second", shifted, weight=w, padding=1)
    summed = g("relu", "act", g("add", "residual", second, first))
    third = g("conv2d", "third", summed, weight=w, padding=(0, 1, 2, 1), stride=(2, 1))
    joined = g("concat", "joined", summed, x, shifted, axis=1)
    return g.build(joined, first, third, summed, g("flatten", "flat", shifted))


def gpu_plan_of(spec: ModelSpec, *shapes: tuple[int, ...], machine: GpuMachine = MACHINE, **how: Any) -> Plan:
    """For a GPU, a large one unless told."""
    return cuda.build_plan(simplify_for_gpu(spec), list(shapes), machine, **how)


def run_tuned(
    spec: ModelSpec, inputs: list[npt.NDArray[Any]], threads: int, tuning: Tuning
) -> list[npt.NDArray[Any]]:
    """All outputs, by a plan made with these options, which writes nothing beside them."""
    session = prepare(spec, inputs, threads, False, tuning=tuning)
    views = session.plan.outputs
    memory = [np.full(2 * BESIDE + math.prod(view.shape), 7, np.float32) for view in views]
    pairs = zip(memory, views, strict=True)
    outputs = [whole[BESIDE : whole.size - BESIDE].reshape(view.shape) for whole, view in pairs]
    session.run(inputs, outputs)
    for whole in memory:
        assert (whole[:BESIDE] == 7).all(), "written in front of an output"
        assert (whole[whole.size - BESIDE :] == 7).all(), "written behind an output"
    return outputs
