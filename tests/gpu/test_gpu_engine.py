"""Whole models through the GPU engine: in the simulator, or on a GPU where there is one."""

import numpy as np
import pytest

import bslite
from bslite import GraphBuilder, ModelSpec
from bslite.engines.cuda import engine
from bslite.engines.cuda.simulated import SimulatedDriver
from bslite.kernels.cuda.runtime.device import SIMULATED
from bslite.plan.cuda import build_plan
from bslite.plan.cuda.tuning import Tuning

RNG = np.random.default_rng(0)


def chain(*ops: str, shape: tuple[int, ...]) -> ModelSpec:
    """A model of ops without parameters, one after the other."""
    graph = GraphBuilder("chain")
    x = graph.input("x", shape)
    for i, op in enumerate(ops):
        x = graph.add(op, f"{op}{i}", x)
    return graph.build(x)


#: Relative. On a GPU the functions are CUDA's: exp and tanh within 2 units in the last place by its manual,
#: so that a sigmoid in a chain with a tanh is within 7; here they are NumPy's, rounded once.
NEAR = 3e-7 if SIMULATED else 8e-7


def same(spec: ModelSpec, *inputs: np.ndarray) -> None:
    """The engine's answer is the reference's, to the last bits of a function."""
    given = list(inputs)
    got = bslite.run(spec, given, backend="cuda")
    want = bslite.run(spec, given, backend="reference")
    for g, w in zip(*(y if isinstance(y, list) else [y] for y in (got, want)), strict=True):
        assert g.dtype == w.dtype
        np.testing.assert_allclose(g, w, rtol=NEAR, atol=1e-37)


@pytest.mark.parametrize("shape", [(2, 5, 3, 4), (3, 7), (11,), (2, 3, 4, 2, 2)])
def test_activations(shape: tuple[int, ...]) -> None:
    same(chain("relu", "sigmoid", "tanh", "relu6", shape=shape), RNG.standard_normal(shape, np.float32))


@pytest.mark.parametrize(
    ("shape", "order"),
    [
        ((2, 9, 8, 3), (0, 1, 2, 3)),
        ((2, 9, 8, 3), (0, 2, 3, 1)),
        ((2, 9, 8, 3), (3, 2, 1, 0)),
        ((17, 12), (1, 0)),
        ((3, 2, 8, 2, 9), (4, 0, 3, 2, 1)),
        ((2, 3, 2, 3, 2, 3), (5, 3, 1, 4, 2, 0)),
        ((2, 2, 2, 2, 2, 2, 2), (6, 4, 2, 0, 5, 3, 1)),
    ],
)
def test_permute(shape: tuple[int, ...], order: tuple[int, ...]) -> None:
    graph = GraphBuilder("permute")
    x = graph.input("x", shape)
    y = graph.add("permute", "p", graph.add("relu", "r", x), order=order)
    same(graph.build(graph.add("sigmoid", "s", y)), RNG.standard_normal(shape, np.float32))


def test_moves() -> None:
    """Slices (backwards too), a reshape that has to copy, flatten, concatenations within each other."""
    graph = GraphBuilder("moves")
    x = graph.input("x", (2, 8, 6, 4))
    a = graph.add("relu", "a", x)
    b = graph.add("slice", "b", a, axis=1, start=1, stop=7, step=2)
    c = graph.add("tanh", "c", b)
    joined = graph.add("concat", "joined", c, a, b, axis=1)
    flat = graph.add("flatten", "flat", joined, start_axis=2)
    again = graph.add("reshape", "again", joined, shape=(2, 14, 4, 6))
    spec = graph.build(graph.add("sigmoid", "end", flat), again, b, x)
    same(spec, RNG.standard_normal((2, 8, 6, 4), np.float32))


@pytest.mark.parametrize("how", ["channels_last", "backwards", "every second", "transposed"])
def test_strided_inputs(how: str) -> None:
    x = RNG.standard_normal((2, 4, 6, 4), np.float32)
    x = {
        "channels_last": lambda: np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2),
        "backwards": lambda: x[:, ::-1],
        "every second": lambda: np.repeat(x, 2, 3)[..., ::2],
        "transposed": lambda: x.transpose(3, 1, 2, 0).copy().transpose(3, 1, 2, 0),
    }[how]()
    same(chain("relu", "tanh", shape=(2, 4, 6, 4)), x)


def test_plan_prints() -> None:
    from bslite.explore.gpu import GpuMachine

    spec = chain("relu", "sigmoid", shape=(2, 16, 8, 8))
    plan = build_plan(spec, [(2, 16, 8, 8)], GpuMachine())
    assert "relu0 + sigmoid1" in str(plan)
    assert "32 blocks of 64" in str(plan)


def test_copies_beyond_32_bits() -> None:
    """What spreads over more elements than kernels count goes in parts."""
    tuning = Tuning(copied_at_once=200)
    graph = GraphBuilder("permute")
    x = graph.input("x", (5, 9, 4, 3))
    spec = graph.build(graph.add("permute", "p", x, order=(3, 0, 2, 1)))
    assert len(build_plan(spec, [(5, 9, 4, 3)], SimulatedDriver.machine, tuning=tuning).steps) > 2
    x = RNG.standard_normal((5, 9, 4, 3), np.float32)
    np.testing.assert_array_equal(engine.run(spec, [x], tuning=tuning)[0], x.transpose(3, 0, 2, 1))


def test_random_moves() -> None:
    """Slices of either direction, permutations and joins of them, against NumPy."""
    for seed in range(12):
        rng = np.random.default_rng(seed)
        shape = tuple(int(n) for n in rng.integers(1, 11, int(rng.integers(1, 6))))
        graph = GraphBuilder("moves")
        name, size = graph.input("x", shape), list(shape)
        for i in range(4):
            axis = int(rng.integers(len(size)))
            if rng.random() < 0.5:
                order = [int(a) for a in rng.permutation(len(size))]
                name = graph.add("permute", f"p{i}", name, order=tuple(order))
                size = [size[a] for a in order]
            elif rng.random() < 0.5 and size[axis] > 2:
                step = int(rng.integers(1, 3))
                name = graph.add("slice", f"s{i}", name, axis=axis, start=1, stop=size[axis], step=step)
                size[axis] = -(-(size[axis] - 1) // step)
            else:
                name = graph.add("concat", f"c{i}", name, name, axis=axis)
                size[axis] *= 2
        same(graph.build(name), rng.standard_normal(shape, np.float32))
