"""Layers that run on the way into a convolution on a GPU: which do, and that it changes no bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers import TINY, Array, rel_l2

import bslite
from bslite import GraphBuilder, ModelSpec, reference
from bslite.engines.cuda.simulated import SimulatedDriver
from bslite.explore.gpu import GpuMachine
from bslite.passes import simplify
from bslite.plan import Plan
from bslite.plan.cuda import build_plan

MACHINE = SimulatedDriver.machine
PRODUCTS = ("gemm", "gemm_pairs", "gemm_depthwise")


def noise(*shape: int, seed: int = 0) -> Array:
    return np.asarray(np.random.default_rng(seed).standard_normal(shape), np.float32)


class Model:
    """A graph with seeded parameters; methods take and give names of values."""

    def __init__(self, *shape: int) -> None:
        self.graph = GraphBuilder("model")
        self.x = self.graph.input("x", shape)
        self.count = 0

    def add(self, op: str, *inputs: str, params: dict[str, Array] | None = None, **attrs: Any) -> str:
        self.count += 1
        name = f"l{self.count}_{op}"
        keys = {role: f"{name}.{role}" for role in params or {}}
        self.graph.params.update({keys[role]: array for role, array in (params or {}).items()})
        return self.graph.add(op, name, *inputs, params=keys, **attrs)

    def conv(self, x: str, k: int, c: int, r: int = 1, bias: bool = True, **attrs: Any) -> str:
        each = c // attrs.get("groups", 1)
        weight = noise(k, each, r, r, seed=self.count) / np.float32(r * np.sqrt(each))
        params = {"weight": weight} | ({"bias": noise(k, seed=self.count + 1)} if bias else {})
        return self.add("conv2d", x, params=params, padding=attrs.pop("padding", r // 2), **attrs)

    def norm(self, x: str, c: int) -> str:
        names = ("weight", "bias", "running_mean", "running_var")
        params = {role: noise(c, seed=self.count + i) for i, role in enumerate(names)}
        params["running_var"] = np.abs(params["running_var"]) + np.float32(0.3)
        return self.add("batch_norm", x, params=params, eps=1e-5)


def plan_of(spec: ModelSpec, *shapes: tuple[int, ...], machine: GpuMachine = MACHINE, **how: Any) -> Plan:
    return build_plan(simplify(spec), list(shapes), machine, **how)


def prologues(plan: Plan) -> list[str]:
    """Of each product that has one, which."""
    found = []
    for step in plan.steps:
        if step.kernel == "gemm_depthwise":
            found.append("depthwise")
        elif step.kernel in PRODUCTS and step.args["variant"]["before"] != "none":
            found.append(step.args["variant"]["before"])
    return found


def check(spec: ModelSpec, *inputs: Array) -> list[str]:
    """Three-way; the same bits layer by layer; which prologues there were."""
    got = bslite.run(spec, list(inputs), backend="cuda")
    exact = reference.run(spec, list(inputs), np.float64)[0]
    peer = reference.run(spec, list(inputs), np.float32)[0]
    assert rel_l2(got, exact) <= 4 * rel_l2(peer, exact) + TINY
    alone = bslite.run(spec, list(inputs), backend="cuda", layerwise=True)
    assert got.tobytes() == alone.tobytes()
    shapes = [x.shape for x in inputs]
    assert prologues(plan_of(spec, *shapes, layerwise=True)) == []
    assert prologues(plan_of(spec, *shapes, keep_values=True)) == []
    return prologues(plan_of(spec, *shapes))


@pytest.mark.parametrize(("c", "act"), [(10, "relu"), (7, "sigmoid")])
@pytest.mark.parametrize("r", [1, 3])
def test_a_batch_norm_before_a_convolution(c: int, act: str, r: int) -> None:
    """As in DenseNet: of a slice of a wider buffer, into another; padding is zero after the batch norm."""
    m = Model(2, c, 5, 4)
    old = m.add("relu", m.x)
    y = m.conv(m.add(act, m.norm(old, c)), 6, c, r, bias=False)
    new = m.add("concat", old, y, axis=1)
    y = m.conv(m.add(act, m.norm(new, c + 6)), 8, c + 6, r, stride=2)
    assert check(m.graph.build(y), noise(2, c, 5, 4)) == ["affine", "affine"]


@pytest.mark.parametrize(("c", "act"), [(12, None), (9, "silu")])
def test_a_gate_before_a_projection(c: int, act: str | None) -> None:
    """As in EfficientNet: squeeze-and-excitation, then a projection with a residual."""
    m = Model(3, c, 4, 5)
    x = m.add("silu", m.x)
    gate = m.add("sigmoid", m.conv(m.add("adaptive_avg_pool2d", x, output_size=1), c, c))
    y = m.add("mul", gate, x)
    y = m.conv(m.add(act, y) if act else y, c, c)
    y = m.add("add", y, x)
    assert check(m.graph.build(y), noise(3, c, 4, 5)) == ["gate"]


CASES = [
    # images, channels, filters, rows, columns, taps, stride, padding
    (2, 8, 6, 5, 8, 3, 1, 1),
    (1, 34, 12, 7, 7, 3, 2, 1),
    (2, 6, 20, 9, 6, 5, 1, 2),
    (1, 12, 4, 11, 12, 5, 2, 2),
    (1, 4, 2, 6, 7, 4, 1, 0),
]


@pytest.mark.parametrize("case", CASES)
def test_a_depthwise_filter_before_a_projection(case: tuple[int, ...]) -> None:
    """As in MobileNet v2: expansion, depthwise filter, projection, and a residual where shapes allow it."""
    n, c, k, h, w, taps, stride, padding = case
    m = Model(n, k, h, w)
    x = m.add("tanh", m.x)
    y = m.add("relu6", m.conv(x, c, k))
    y = m.conv(y, c, c, taps, stride=stride, padding=padding, groups=c, bias=taps != 4)
    y = m.conv(m.add("relu6" if taps == 3 else "silu", y), k, c)
    if stride == 1 and 2 * padding == taps - 1:
        y = m.add("add", y, x)
    assert check(m.graph.build(m.add("relu", y)), noise(n, k, h, w)) == ["depthwise"]
