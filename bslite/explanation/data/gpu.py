"""The plan of a model for a GPU, launch by launch, each with its price. Nothing runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bslite.explanation.data.fusions import Fusion, fusions
from bslite.explanation.data.work import work
from bslite.explore.gpu import GpuMachine
from bslite.ops import Shape
from bslite.plan.cuda.launch import CudaPlan, Launch
from bslite.plan.cuda.price import footprint, price_of
from bslite.spec import ModelSpec

#: Kernels that only bring data into place for the one that computes, or join its sums.
HELPERS = ("copy", "copy_pairs", "transpose", "gemm_join")
OUTPUTS = Fusion("outputs", "copy", "", (), (), ("brings outputs to where they are wanted",), "")


@dataclass(frozen=True)
class GpuRow:
    """One launch; or a layer without a launch; or a layer within the stack above it.

    ``seconds``, as the planner predicts them, and ``bytes`` read and written are 0 for a layer without a
    launch of its own. ``flops`` of a layer count at the launch that computes it. ``library``: torch's call
    that may replace the launch, with both times if they were measured on this device.
    """

    name: str
    op: str
    nodes: tuple[str, ...]
    shape: Shape
    kernel: str
    tile: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    flops: int
    bytes: int
    seconds: float
    bound: str
    library: str
    holds: tuple[str, ...]
    apart: str
    stack: int | None = None  # counted from 1
    inside: bool = False


def gpu_rows(
    original: ModelSpec, spec: ModelSpec, plan: CudaPlan, machine: GpuMachine, driver: Any
) -> list[GpuRow]:
    """The launches in order; layers without a launch stand where the model has them.

    ``plan`` is made of ``spec``: ``original`` as simplified. ``driver`` is that of the GPU; None without one.
    """
    found = fusions(original, spec, plan, norms=False)
    home = {node: f for f in found for node in f.members}
    shapes, params = spec.infer_shapes(plan.shapes), {key: p.shape for key, p in spec.params.items()}
    whole = footprint(plan, params)
    owners = [_layers(step, home) for step in plan.steps]
    computing = _computing(plan, owners)
    placed: list[tuple[float, GpuRow]] = []
    stacks = 0
    for i, (step, layers) in enumerate(zip(plan.steps, owners, strict=True)):
        held = [f for f in layers if computing[f.value] == i]
        flops = work(spec, shapes, plan, held).flops if held else 0
        price = price_of(plan, step, machine, params, flops, whole)
        row = _layer_row(layers[-1] if layers else OUTPUTS, shapes)
        row = replace(
            row, nodes=tuple(n for f in held for n in f.nodes), kernel=step.kernel, tile=_tile(step),
            grid=step.grid, block=step.block, flops=flops, bytes=price.bytes,
            seconds=price.seconds, bound=price.bound, library=_library(plan, i, driver),
        )  # fmt: skip
        if not held and layers:
            names = row.name if len(layers) == 1 else f"{layers[0].name} to {row.name}"
            row = replace(row, name=layers[0].name, op=layers[0].op, holds=(f"part of {names}",), apart="")
        if len(layers) < 2 or not held:
            placed.append((i, row))
            continue
        stacks += 1
        name = f"stack of {len(layers)}: {layers[0].name} to {layers[-1].name}"
        what = (f"{len(layers)} layers, depth-first: one launch, nothing between them is in memory",)
        placed.append((i, replace(row, name=name, op="stack", holds=what, stack=stacks)))
        for f in layers:
            alone = work(spec, shapes, plan, [f]).flops
            placed.append((i, replace(_layer_row(f, shapes), flops=alone, stack=stacks, inside=True)))
    place = -0.5
    for f in found:
        mine = [i for i, layers in enumerate(owners) if f in layers]
        if mine:
            place = mine[-1] + 0.5
        else:
            placed.append((place, _layer_row(f, shapes)))
    return [row for _, row in sorted(placed, key=lambda pair: pair[0])]


def _layers(step: Launch, home: dict[str, Fusion]) -> list[Fusion]:
    """The layers of a launch, each once, in order; none if it only moves outputs."""
    return list({home[n].value: home[n] for n in step.layers if n in home}.values())


def _computing(plan: CudaPlan, owners: Sequence[Sequence[Fusion]]) -> dict[str, int]:
    """The value of each layer -> the launch that computes it: the last one that does more than move data."""
    found: dict[str, int] = {}
    for i, (step, layers) in enumerate(zip(plan.steps, owners, strict=True)):
        for f in layers:
            if f.value not in found or step.kernel not in HELPERS:
                found[f.value] = i
    return found


def _layer_row(f: Fusion, shapes: Mapping[str, Shape]) -> GpuRow:
    """The row of a layer without a launch."""
    shape = shapes.get(f.value, ())
    return GpuRow(f.name, f.op, f.nodes, shape, "", "", (), (), 0, 0, 0.0, "", "", f.holds, f.apart)


def _tile(step: Launch) -> str:
    """Rows and columns of a block's tile, and whether by tensor cores; or those of a thread's in a stack."""
    constants = step.variant.constants()
    tile, by = constants.get("tile"), " tf32" if constants.get("tensor") else ""
    return f"{tile[0]}x{tile[1]}{by}" if isinstance(tile, (list, tuple)) else step.tile


def _library(plan: CudaPlan, number: int, driver: Any) -> str:
    """Torch's call that makes the same as a step, with measured times if there are any; none where the step
    touches the caller's memory.
    """
    steps = plan.steps[number:]
    form = steps[0].library
    if form is None or any(plan.buffers[view.buffer].kind != "arena" for view in form.views):
        return ""
    library = getattr(driver, "library", None)
    known = library.seconds(steps[: form.steps]) if library is not None else None
    if known is None:
        return f"or {form.op}"
    ours, theirs = (f"{1e6 * s:,.1f} µs" for s in known)
    return f"{form.op} {theirs}, ours {ours}"
