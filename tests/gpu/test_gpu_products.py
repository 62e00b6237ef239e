"""Convolutions, linear layers, matmul, attention in small models: fused, cut in parts, sliced, odd."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.noise import noise

import bslite
from bslite import GraphBuilder, ModelSpec, reference
from bslite.explore.gpu import GpuMachine
from bslite.plan import Plan
from bslite.plan.cuda import build_plan

pytestmark = pytest.mark.simulator

Array = np.ndarray[Any, Any]
MACHINE = GpuMachine(block_threads=32)  # as the simulator's


def model(make: Callable[[GraphBuilder, str], str], *shape: int) -> ModelSpec:
    graph = GraphBuilder("model")
    return graph.build(make(graph, graph.input("x", shape)))


def conv(g: GraphBuilder, x: str, name: str, k: int, c: int, r: int, op: str = "conv2d", **attrs: Any) -> str:
    axes = int(op[-2])
    shape = (c, k) if "transpose" in op else (k, c)
    g.params[f"{name}.w"] = noise(*shape, *(r,) * axes, seed=len(g.params)) / np.float32(r * np.sqrt(c))
    g.params[f"{name}.b"] = noise(k, seed=len(g.params))
    return g.add(op, name, x, params={"weight": f"{name}.w", "bias": f"{name}.b"}, **attrs)


def check(spec: ModelSpec, *inputs: Array) -> Plan:
    """The engine's answer, fused and layer by layer, is the reference's in float64; twice the same bits."""
    given = list(inputs)
    exact = reference.run(spec, given, np.float64)[0]
    for layerwise in (False, True):
        got = bslite.run(spec, given, backend="cuda", layerwise=layerwise)
        assert isinstance(got, np.ndarray)
        assert np.linalg.norm(got - exact) <= 1e-6 * np.linalg.norm(exact)
        again = bslite.run(spec, given, backend="cuda", layerwise=layerwise)
        assert isinstance(again, np.ndarray)
        assert got.tobytes() == again.tobytes()
    return build_plan(spec, [x.shape for x in given], MACHINE)


def kernels(plan: Plan) -> list[str]:
    return [step.kernel for step in plan.steps]


@pytest.mark.parametrize("c", [8, 7])
def test_a_residual_block(c: int) -> None:
    """Bias, sum and ReLU in one store; what lies between is ours, so even channels go in pairs."""

    def make(g: GraphBuilder, x: str) -> str:
        x = g.add("relu", "in", conv(g, x, "first", c, 3, 3, padding=1))
        y = g.add("relu", "mid", conv(g, x, "second", c, c, 3, padding=1))
        y = g.add("add", "sum", conv(g, y, "third", c, c, 1), x)
        return g.add("relu", "out", y)

    spec = model(make, 2, 3, 6, 5)
    plan = check(spec, noise(2, 3, 6, 5))
    found = [k for k in kernels(plan) if k.startswith("gemm")]
    assert found.count("gemm_pairs" if c == 8 else "gemm") >= 2
    residuals = [s for s in plan.steps if s.variant.constants().get("residual")]
    assert len(residuals) == 1


@pytest.mark.parametrize("act", ["relu", "silu"])
def test_a_sum_in_parts(act: str) -> None:
    """A long sum over few pixels: parts, then one launch that adds them, the bias and the residual."""

    def make(g: GraphBuilder, x: str) -> str:
        y = g.add("add", "sum", conv(g, x, "long", 40, 40, 3, padding=1), x)
        return g.add(act, "out", y)

    spec = model(lambda g, x: make(g, g.add("relu", "in", x)), 1, 40, 3, 4)
    plan = check(spec, noise(1, 40, 3, 4))
    (at,) = [i for i, k in enumerate(kernels(plan)) if k == "gemm_join"]
    first, join = plan.steps[at - 1 : at + 1]
    assert first.grid[2] == join.record.numbers()["splits"] > 1
    assert (first.variant.constants()["residual"], join.variant.constants()["residual"]) == (0, 1)
    assert first.library.steps == 2


@pytest.mark.parametrize("widths", [(4, 6, 8), (3, 6, 5)])
def test_slices_of_a_concat(widths: tuple[int, ...]) -> None:
    """Outputs are channels of a wider buffer, from odd places on, too; and so are inputs."""

    def make(g: GraphBuilder, x: str) -> str:
        x = g.add("relu", "in", x)
        parts = [conv(g, x, f"part{i}", k, 4, 1 + 2 * (i % 2), padding=i % 2) for i, k in enumerate(widths)]
        joined = g.add("concat", "join", *parts, axis=1)
        return conv(g, g.add("slice", "cut", joined, axis=1, start=2, stop=8), "last", 6, 6, 1)

    check(model(make, 2, 4, 5, 4), noise(2, 4, 5, 4))


@pytest.mark.parametrize("step", [2, -1])
def test_strided_views(step: int) -> None:
    """Every second line, and lines backwards, of another value."""

    def make(g: GraphBuilder, x: str) -> str:
        x = g.add("relu", "in", x)
        start, stop = (0, 7) if step > 0 else (6, -8)
        x = g.add("slice", "cut", x, axis=2, start=start, stop=stop, step=step)
        return conv(g, conv(g, x, "one", 6, 4, 1), "three", 4, 6, 3, padding=1)

    check(model(make, 2, 4, 7, 4), noise(2, 4, 7, 4))


@pytest.mark.parametrize(("rows", "c", "k"), [(1, 600, 20), (3, 64, 10), (8, 33, 7), (17, 24, 18)])
def test_an_mlp(rows: int, c: int, k: int) -> None:
    """Few rows go to a kernel of their own, in pairs where they are even, in parts where sums are long."""

    def linear(g: GraphBuilder, x: str, name: str, out: int, width: int) -> str:
        g.params |= {f"{name}.w": noise(out, width, seed=1), f"{name}.b": noise(out, seed=2)}
        return g.add("linear", name, x, params={"weight": f"{name}.w", "bias": f"{name}.b"})

    def make(g: GraphBuilder, x: str) -> str:
        return linear(g, g.add("relu", "act", linear(g, x, "one", k, c)), "two", 9, k)

    plan = check(model(make, rows, c), noise(rows, c))
    assert any(name.startswith("gemv") for name in kernels(plan)) == (rows <= 8)
    assert ("gemm_join" in kernels(plan)) == (c == 600)


@pytest.mark.parametrize("op", ["conv_transpose1d", "conv_transpose2d"])
def test_phases(op: str) -> None:
    """Residual and activation in the store of every phase, which writes every second pixel."""

    def make(g: GraphBuilder, x: str) -> str:
        x = g.add("relu", "in", x)
        up = conv(g, x, "up", 6, 4, 4, op, stride=2, padding=1)
        other = conv(g, x, "other", 6, 4, 2, op, stride=2)
        return g.add("relu", "out", g.add("add", "sum", up, other))

    shape = (2, 4, *(3, 4)[: int(op[-2])])
    check(model(make, *shape), noise(*shape))


def test_attention_between_layers() -> None:
    """Projections, heads by strides, both products' operands where they lie."""

    def make(g: GraphBuilder, x: str) -> str:
        found = []
        for i, name in enumerate("qkv"):
            g.params[name] = noise(8, 8, seed=i)
            y = g.add("linear", f"{name}.of", x, params={"weight": name})
            y = g.add("reshape", f"{name}.cut", y, shape=(2, 5, 2, 4))
            found.append(g.add("permute", f"{name}.heads", y, order=(0, 2, 1, 3)))
        y = g.add("attention", "mix", *found)
        turned = g.add("permute", "turned", found[1], order=(0, 1, 3, 2))
        return g.add("matmul", "out", g.add("matmul", "scores", y, turned), found[2])

    plan = check(model(make, 2, 5, 8), noise(2, 5, 8))
    assert "attention_pairs" in kernels(plan)


def test_the_planner_prices_tiles() -> None:
    """Large problems take large tiles, small ones small tiles or parts; all stay below the peak."""
    from bslite.plan.cuda.gemm.tiles import Problem, choose

    machine = GpuMachine()
    peak = machine.sms * machine.lanes * 2 * machine.clock
    for rows, cols, terms in ((401408, 256, 64), (3136, 64, 576), (49, 512, 4608), (128, 1000, 2048)):
        choice = choose(Problem(rows, cols, terms, 1, 2, 4 * rows * cols), machine)
        assert 2 * rows * cols * terms / choice.seconds < 0.9 * peak
        blocks = -(-rows // choice.tile.rows) * -(-cols // choice.tile.cols) * choice.parts
        assert blocks >= machine.sms / 2
        assert choice.chunk * choice.parts >= terms > choice.chunk * (choice.parts - 1)
    assert choose(Problem(401408, 256, 64, 1, 2, 0), machine).tile.constants == (128, 128, 8, 8)
    assert choose(Problem(49, 512, 4608, 1, 2, 0), machine).parts > 1
