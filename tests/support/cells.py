"""Plans whose steps store their results as cells of bfloat16, and what is said of them."""

from typing import Any

import bslite
from bslite.engines.cpu.engine import prepare
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


def bits(made: Any) -> list[bytes]:
    """Those of all outputs."""
    return [y.tobytes() for y in (made if isinstance(made, (list, tuple)) else [made])]
