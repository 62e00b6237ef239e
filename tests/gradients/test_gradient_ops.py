"""The gradient of every op that has one: torch's, in float64; the engine's by the three-way rule."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from support.check import all_cases, assert_three_way, single_op_spec
from support.torch_oracle import ORACLE

import bslite
from bslite import reference
from bslite.errors import UnsupportedError
from bslite.ops import Case, Op
from bslite.spec import Array, GraphBuilder, ModelSpec

#: Ops without a gradient yet, and those that lack it for some attributes.
WITHOUT = [
    "batch_norm_grad",
    "int_conv1d",
    "int_conv2d",
    "int_conv3d",
    "int_linear",
    "grid_sample",
    "block_linear",
    "grouped_linear",
    "gru_deltas",
    "lstm_deltas",
    "lstm_rounded",
    "max_pool_places",
    "pool_grad",
    "rnn_deltas",
]
#: Linear ops whose judge in torch goes through NumPy, which has no gradient.
TRANSPOSED = ["fold", "resize"]
PARTLY = [
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
    "batch_sums",
    "gather_nd",
    "gru_steps",
    "lstm",
    "lstm_steps",
    "scatter_elements",
    "scatter_nd",
]


def floats(spec: ModelSpec) -> list[str]:
    """The inputs and parameters of float32; statistics are constants."""
    named = {i.name: i.dtype for i in spec.inputs} | {k: p.dtype.name for k, p in spec.params.items()}
    return [name for name, dtype in named.items() if dtype == "float32" and not name.startswith("running_")]


def lacks(op: Op, spec: ModelSpec) -> bool:
    """Whether an op that has a gradient has none for these attributes."""
    attrs, made = spec.nodes[0].attrs, spec.infer_shapes([i.example for i in spec.inputs])["op_under_test"]
    if "pool" in op.name:
        sizes = spec.inputs[0].example
        return any(size % m for size, m in zip(sizes[2:], made[2:], strict=True))  # windows of several sizes
    if op.name == "batch_sums":
        return bool(attrs["through"] != "identity")
    if op.name == "lstm":
        return not {"weight_hr", "peephole"}.isdisjoint(spec.nodes[0].params)
    if op.name.endswith("_steps"):
        return bool(attrs["keeps"])
    if op.name == "gather_nd":
        return bool(attrs["batch_dims"])
    return attrs["reduction"] == "mul"


def torchs(op: Op, spec: ModelSpec, given: list[Array], seed: Array, wrt: list[str]) -> dict[str, Array]:
    """The gradients by torch in float64; zeros where nothing depends."""

    def tensor(name: str, x: Array) -> torch.Tensor:
        wide = torch.from_numpy(np.array(x, np.float64 if x.dtype.kind == "f" else x.dtype))
        return wide.requires_grad_(name in wrt)

    values = {i.name: tensor(i.name, x) for i, x in zip(spec.inputs, given, strict=True)}
    params = {key: tensor(key, p) for key, p in spec.params.items()}
    node = spec.nodes[0]
    roles = {role: params[key] for role, key in node.params.items()}
    y = ORACLE[op.name](*(values[i] for i in node.inputs), **roles, **node.attrs)
    if len(spec.nodes) > 1:  # the sum that gives a constant company
        y = y + values["x0"]
    if y.requires_grad:
        y.backward(torch.from_numpy(seed.astype(np.float64)))
    found = values | params
    return {n: np.zeros(x.shape) if x.grad is None else x.grad.numpy() for n, x in found.items() if n in wrt}


@pytest.mark.parametrize(("op", "case"), all_cases())
def test_gradient(op: Op, case: Case) -> None:
    spec, given = single_op_spec(op, case)
    wrt = floats(spec)
    if spec.dtypes[spec.outputs[0]] != "float32" or not wrt:
        return
    if op.name in WITHOUT or (op.name in PARTLY and lacks(op, spec)):
        with pytest.raises(UnsupportedError, match=f"layer 'op_under_test': op {op.name!r}"):
            bslite.gradient(spec, wrt)
        return
    backward = bslite.gradient(spec, wrt)
    assert backward.labels == (*spec.labels, *(f"d/{name}" for name in wrt))
    rng = np.random.default_rng(7)
    seeds = [rng.standard_normal(i.example).astype(np.float32) for i in backward.inputs[len(spec.inputs) :]]
    given = [*given, *seeds]
    exact, peer = (reference.run(backward, given, d)[1:] for d in (np.float64, np.float32))
    if op.name not in TRANSPOSED:
        judge = torchs(op, spec, given[: len(spec.inputs)], seeds[0] if seeds else np.ones(()), wrt)
        for name, ours in zip(wrt, exact, strict=True):
            theirs = judge[name]
            # numbers in formulas are kept in float32
            assert np.linalg.norm(ours - theirs) <= 2.0**-23 * np.linalg.norm(theirs) + 1e-12, name
    least = 2.0**-24 if op.name == "fourier" else 0.0  # numpy's transforms of float32 are float64's, rounded
    for ours, near, truth in zip(list(bslite.run(backward, given))[1:], peer, exact, strict=True):
        assert_three_way(ours, near, truth, least=least)


@pytest.mark.parametrize(("op", "case"), all_cases(names=TRANSPOSED))
def test_gradient_of_a_linear_op_is_its_transpose(op: Op, case: Case) -> None:
    """``<f(x) - f(0), y> = <x, grad>``; factors of `resize` are kept in float32."""
    spec, (x,) = single_op_spec(op, case)
    backward = bslite.gradient(spec, ["x0"])
    seed = np.random.default_rng(1).standard_normal(backward.inputs[1].example)
    y, grad = reference.run(backward, [x, seed])
    y = y - reference.run(spec, [np.zeros_like(x)])
    close = 2.0**-23 * np.linalg.norm(y) * np.linalg.norm(seed) if op.name == "resize" else 0.0
    assert np.vdot(y, seed) == pytest.approx(np.vdot(x, grad), rel=1e-12, abs=close)


@pytest.mark.parametrize(
    ("op", "attrs", "function"),
    [
        ("gelu", {}, F.gelu),
        ("gelu", {"approximate": "tanh"}, lambda x: F.gelu(x, approximate="tanh")),
        ("silu", {}, F.silu),
        ("logcumsumexp", {"axis": 0}, lambda x: torch.logcumsumexp(x, 0)),
    ],
)
def test_second_derivatives(op: str, attrs: dict, function: Any) -> None:
    """Of ``sum(g f(x))`` by x, g of both signs: torch's in float64; the engine's."""
    x = np.concatenate([np.linspace(-9, 9, 37), [1e12, -1e12] if op == "gelu" else []])
    g, u = np.random.default_rng(0).standard_normal((2, len(x)))
    graph = GraphBuilder("smooth")
    spec = graph.build(graph.add(op, "y", graph.input("x", x.shape), **attrs))
    once = bslite.gradient(spec, ["x"])
    twice = bslite.gradient(once.replace(labels=("y", "g")), ["x"], of=["g"])
    values = torch.tensor(x, requires_grad=True)
    (slope,) = torch.autograd.grad(function(values), values, torch.tensor(g), create_graph=True)
    (want,) = torch.autograd.grad(slope, values, torch.tensor(u))
    exact = reference.run(twice, [x, g, u], np.float64)[-1]
    assert np.linalg.norm(exact - want.numpy()) <= 1e-6 * np.linalg.norm(want.numpy())
    made = bslite.run(twice, [v.astype(np.float32) for v in (x, g, u)])[-1]
    assert np.linalg.norm(made - exact) <= 1e-6 * np.linalg.norm(exact)


def test_gradient_of_a_resized_vector() -> None:
    graph = GraphBuilder("vector")
    x = graph.input("x", (6,))
    spec = graph.build(graph.add("resize", "y", x, axes=(0,), mode="linear", sizes=(3,)))
    _, made = bslite.run(bslite.gradient(spec, ["x"]), [np.arange(6.0, dtype="f4"), np.ones(3, "f4")])
    np.testing.assert_array_equal(made, np.full(6, 0.5))


def test_a_crop_beyond_the_image_has_no_gradient() -> None:
    """With what lies outside left out, no element has a weight there."""
    graph = GraphBuilder("crop")
    crop = {"coordinates": "tf_crop_and_resize", "roi": (-2.0, -2.0, 1.5, 1.5), "extrapolation": 7.5}
    made = graph.add(
        "resize", "y", graph.input("x", (1, 1, 6, 7)), axes=(2, 3), mode="linear", sizes=(5, 9),
        exclude_outside=True, **crop,
    )  # fmt: skip
    spec, x = graph.build(made), np.random.default_rng(0).standard_normal((1, 1, 6, 7)).astype(np.float32)
    y = bslite.run(spec, x)
    np.testing.assert_allclose(y, reference.run(spec, [x])[0], rtol=1e-6)
    outside = (y == 7.5).astype(np.float32)
    assert 0 < outside.sum() < outside.size
    assert not bslite.run(bslite.gradient(spec, ["x"]), [x, outside])[1].any()
