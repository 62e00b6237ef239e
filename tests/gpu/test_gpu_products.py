"""Convolutions, linear layers, matmul, attention in small models: fused, cut in parts, sliced, odd."""

import numpy as np
import pytest
from support.check import Array
from support.layers import Model
from support.noise import noise

import bslite
from bslite import ModelSpec, reference
from bslite.arithmetic import Precision
from bslite.explore.gpu import GpuMachine
from bslite.passes import simplify_for_gpu
from bslite.plan import Plan
from bslite.plan.cuda import build_plan
from bslite.plan.cuda.tuning import Tuning

pytestmark = pytest.mark.simulator

MACHINE = GpuMachine(block_threads=32)  # as the simulator's


def check(spec: ModelSpec, *inputs: Array) -> Plan:
    """The engine's answer, fused and layer by layer, is the reference's in float64; twice the same bits."""
    given = list(inputs)
    exact = reference.run(spec, given, np.float64)

    def ran(layerwise: bool) -> list[Array]:
        made = bslite.run(spec, given, backend="cuda", layerwise=layerwise)
        return [made] if isinstance(made, np.ndarray) else list(made)

    for layerwise in (False, True):
        for got, again, want in zip(ran(layerwise), ran(layerwise), exact, strict=True):
            assert np.linalg.norm(got - want) <= 1e-6 * np.linalg.norm(want)
            assert got.tobytes() == again.tobytes()
    return build_plan(simplify_for_gpu(spec), [x.shape for x in given], MACHINE)


def kernels(plan: Plan) -> list[str]:
    return [step.kernel for step in plan.steps]


@pytest.mark.parametrize("c", [8, 7])
def test_a_residual_block(c: int) -> None:
    """Bias, sum and ReLU in one store; what lies between is ours, so even channels go in pairs."""
    m = Model(2, 3, 6, 5)
    x = m.add("relu", m.conv(m.x, c, 3, 3))
    y = m.add("relu", m.conv(x, c, c, 3))
    y = m.add("add", m.conv(y, c, c), x)
    plan = check(m.graph.build(m.add("relu", y)), noise(2, 3, 6, 5))
    found = [k for k in kernels(plan) if k.startswith("gemm")]
    assert found.count("gemm_pairs" if c == 8 else "gemm") >= 2
    residuals = [s for s in plan.steps if s.variant.constants().get("residual")]
    assert len(residuals) == 1


@pytest.mark.parametrize("act", ["relu", "silu"])
def test_a_sum_in_parts(act: str) -> None:
    """A long sum over few pixels: parts, then one launch that adds them, the bias and the residual."""
    m = Model(1, 40, 3, 4)
    x = m.add("relu", m.x)
    y = m.add(act, m.add("add", m.conv(x, 40, 40, 3), x))
    plan = check(m.graph.build(y), noise(1, 40, 3, 4))
    (at,) = [i for i, k in enumerate(kernels(plan)) if k == "gemm_join"]
    first, join = plan.steps[at - 1 : at + 1]
    assert first.grid[2] == join.record.numbers()["splits"] > 1
    assert (first.variant.constants()["residual"], join.variant.constants()["residual"]) == (0, 1)
    assert first.library.steps == 2


@pytest.mark.parametrize("widths", [(4, 6, 8), (3, 6, 5)])
def test_slices_of_a_concat(widths: tuple[int, ...]) -> None:
    """Outputs are channels of a wider buffer, from odd places on, too; and so are inputs."""
    m = Model(2, 4, 5, 4)
    x = m.add("relu", m.x)
    joined = m.add("concat", *(m.conv(x, k, 4, 1 + 2 * (i % 2)) for i, k in enumerate(widths)), axis=1)
    y = m.conv(m.add("slice", joined, axis=1, start=2, stop=8), 6, 6)
    check(m.graph.build(y), noise(2, 4, 5, 4))


@pytest.mark.parametrize("step", [2, -1])
def test_strided_views(step: int) -> None:
    """Every second line, and lines backwards, of another value."""
    m = Model(2, 4, 7, 4)
    start, stop = (0, 7) if step > 0 else (6, -8)
    x = m.add("slice", m.add("relu", m.x), axis=2, start=start, stop=stop, step=step)
    check(m.graph.build(m.conv(m.conv(x, 6, 4), 4, 6, 3)), noise(2, 4, 7, 4))


@pytest.mark.parametrize(("rows", "c", "k"), [(1, 1200, 20), (3, 64, 10), (8, 33, 7), (17, 24, 18)])
def test_an_mlp(rows: int, c: int, k: int) -> None:
    """Few rows go to a kernel of their own, in pairs where they are even, in parts where sums are long."""
    m = Model(rows, c)
    y = m.linear(m.add("relu", m.linear(m.x, k, c)), 9, k)
    plan = check(m.graph.build(y), noise(rows, c))
    assert any(name.startswith("gemv") for name in kernels(plan)) == (rows <= 8)
    assert ("gemm_join" in kernels(plan)) == (c == 1200)


@pytest.mark.parametrize("op", ["conv_transpose1d", "conv_transpose2d"])
def test_phases(op: str) -> None:
    """Residual and activation in the store of every phase, which writes every second pixel."""
    shape = (2, 4, *(3, 4)[: int(op[-2])])
    m = Model(*shape)
    x = m.add("relu", m.x)
    up = m.conv(x, 6, 4, 4, op=op, stride=2, padding=1)
    other = m.conv(x, 6, 4, 2, op=op, stride=2, padding=0)
    check(m.graph.build(m.add("relu", m.add("add", up, other))), noise(*shape))


def test_attention_between_layers() -> None:
    """Projections, heads by strides, both products' operands where they lie."""
    m, found = Model(2, 5, 8), []
    for _ in "qkv":
        heads = m.add("reshape", m.linear(m.x, 8, 8, bias=False), shape=(2, 5, 2, 4))
        found.append(m.add("permute", heads, order=(0, 2, 1, 3)))
    y = m.add("attention", *found)
    turned = m.add("permute", found[1], order=(0, 1, 3, 2))
    y = m.add("matmul", m.add("matmul", y, turned), found[2])
    assert "attention_pairs" in kernels(check(m.graph.build(y), noise(2, 5, 8)))


def test_gradients_of_attention() -> None:
    """The products that they are, as there is no kernel."""
    m = Model(2, 9, 8)
    y = m.add("attention", *(m.linear(m.x, 8, 8) for _ in "qkv"), is_causal=True)
    model = bslite.gradient(m.graph.build(y), ["x"])
    assert "attention_grad" in [node.op for node in model.nodes]
    check(model, noise(2, 9, 8), noise(2, 9, 8))


def test_attention_with_a_dropout() -> None:
    """Its products, too, and the gate of an attention that is written out."""
    m = Model(2, 9, 8)
    q, k, v = (m.linear(m.x, 8, 8) for _ in "qkv")
    gate = m.add("sigmoid", m.linear(m.x, 9, 8))
    y = m.add("attention", q, k, v, gate, dropped=True)
    scores = m.add("matmul", y, m.add("permute", k, order=(0, 2, 1)))
    weights = m.add("mul", m.add("softmax", scores, axis=-1), gate)
    plan = check(m.graph.build(m.add("matmul", weights, v)), noise(2, 9, 8))
    assert not {"attention", "attention_pairs"} & set(kernels(plan))


@pytest.mark.parametrize(("terms", "tensor"), [(24, 0), (31, 0), (32, 1), (576, 1)])
def test_short_sums_are_of_multiply_adds(terms: int, tensor: int) -> None:
    """Three products of parts make larger errors than a multiply-add, unless a sum has many terms."""
    from bslite.plan.cuda.gemm.tiles import Problem, choose

    assert choose(Problem(100352, 64, terms, 1, 2, 0), GpuMachine()).tile.tensor == tensor


@pytest.mark.parametrize("precision", ["float32", "ieee", "bfloat16"])
def test_multiply_adds_alone_if_asked_for(precision: str) -> None:
    """No tensor cores then, and no call of a library, which has ways of its own."""
    m = Model(4, 64, 28, 28)
    y = m.add("relu", m.conv(m.add("tanh", m.x), 64, 64, 3))
    tuning = Tuning(precision=Precision(precision))
    spec = m.graph.build(m.add("tanh", y))
    plan = build_plan(simplify_for_gpu(spec), [(4, 64, 28, 28)], GpuMachine(), tuning=tuning)
    (step,) = (s for s in plan.steps if s.kernel == "gemm_pairs")
    ieee = precision == "ieee"
    assert (step.variant.constants()["tensor"], step.library is None) == (int(not ieee), ieee)


@pytest.mark.parametrize(("tensor", "large"), [(0, (128, 128, 8, 8)), (1024, (96, 64, 6, 8))])
def test_the_planner_prices_tiles(tensor: int, large: tuple[int, ...]) -> None:
    """Large problems take large tiles, small ones small tiles or parts; all stay below the peak."""
    from bslite.plan.cuda.gemm.tiles import Problem, choose

    machine = GpuMachine(tensor_lanes=tensor)
    peak = machine.sms * machine.lanes * 2 * machine.clock
    for rows, cols, terms in ((401408, 256, 64), (3136, 64, 576), (49, 512, 4608), (128, 1000, 2048)):
        choice = choose(Problem(rows, cols, terms, 1, 2, 4 * rows * cols), machine)
        assert 2 * rows * cols * terms / choice.seconds < 0.9 * peak
        blocks = -(-rows // choice.tile.rows) * -(-cols // choice.tile.cols) * choice.parts
        assert blocks >= machine.sms / 2
        assert choice.chunk * choice.parts >= terms > choice.chunk * (choice.parts - 1)
    assert choose(Problem(401408, 256, 64, 1, 2, 0), machine).tile.constants == large
    assert choose(Problem(49, 512, 4608, 1, 2, 0), machine).parts > 1
