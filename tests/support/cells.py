"""Plans whose steps store their results as cells of bfloat16, and what is said of them."""

from typing import Any

import numpy as np

import bslite
from bslite.engines.cpu.engine import prepare
from bslite.kernels.contracts.cpu.tiles import Reads, SplitConv
from bslite.plan import Plan
from bslite.plan.cpu.tuning import Tuning
from bslite.spec import ModelSpec
from support.graphs import Graph
from support.noise import noise

WORD = bslite.Precision.BFLOAT16
ONLY, TOO = "stores its results rounded to bfloat16", "stores its results rounded to bfloat16, too"


def planned(spec: ModelSpec, x: Any, threads: int = 1, layerwise: bool = False) -> Plan[Any]:
    """The plan in one part of bfloat16."""
    return prepare(spec, [x], threads, layerwise, tuning=Tuning(precision=WORD)).plan


def steps_of(plan: Plan[Any]) -> list[Any]:
    """Steps, those of stacks included."""
    return [x for s in plan.steps for x in (s, *(y for p in s.plans for y in steps_of(p)))]


def said(spec: ModelSpec, x: Any, layerwise: bool = False) -> dict[str, str]:
    """What is said of the layers that store or read cells."""
    steps = steps_of(planned(spec, x, layerwise=layerwise))
    return {s.layers[0]: s.record.beside for s in steps if "rounded" in s.record.beside}


def conv(
    g: Graph, name: str, x: str, depth: int, channels: int, size: int = 1, groups: int = 1, **how: Any
) -> str:
    """A convolution of pixels that keep their number, unless ``padding`` is given."""
    weight = noise(channels, depth // groups, size, size, seed=len(g.params)) / (size * size * depth) ** 0.5
    how = {"padding": size // 2, "groups": groups} | how
    return g("conv2d", name, x, weight=weight, bias=noise(channels), **how)


def nearest(x: Any) -> Any:
    """Numbers rounded to bfloat16, of two nearest the even one."""
    bits = x.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def reach_of(plan: Plan[Any]) -> list[tuple[int, int]]:
    """Bytes from the beginning of their buffers that tiles reach in cells that they read, and its size."""
    found = [reach for s in plan.steps for p in s.plans for reach in reach_of(p)]
    for s in plan.steps:
        r = s.record
        if not isinstance(r, SplitConv) or r.reads is not Reads.IN_PLACE:
            continue
        offsets = dict(plan.consts[r.offsets.buffer].args)["values"]
        between = (r.lines - 1) * (r.run or r.pitch * r.pixel)
        first = 4 * r.x.at + (r.images // r.planes - 1) * r.x_image + (r.planes - 1) * r.x_plane
        last = first + between + (r.pixels - r.short - 1 + 15) * r.pixel + max(offsets)
        end = last + (r.groups - 1) * r.depth * 2 + 64
        found.append((end, 4 * plan.buffers[r.x.buffer].size))
    return found


def bits(made: Any) -> list[bytes]:
    """Those of all outputs."""
    return [y.tobytes() for y in (made if isinstance(made, (list, tuple)) else [made])]
