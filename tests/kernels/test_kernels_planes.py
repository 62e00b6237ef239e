"""Convolutions of planes of contiguous pixels: the bits of images, whatever the filter and the memory."""

from typing import Any

import numpy as np
import pytest
from support.check import Array
from support.graphs import Graph, one_op
from support.kernel_checks import check
from support.noise import noise

import bslite
from bslite.engines.cpu.detect import detect
from bslite.passes import plane_convs, simplify
from bslite.plan import build_plan
from bslite.spec import ModelSpec

SMALL = {"padding": 1}
Case = tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]]
CASES: list[Case] = [
    ("conv2d", (1, 20, 9, 40), (13, 20, 1, 1), {}),
    ("conv2d", (2, 40, 17, 23), (40, 5, 1, 1), {"groups": 8}),
    ("conv2d", (3, 6, 8, 8), (12, 1, 1, 1), {"groups": 6}),
    ("conv2d", (1, 8, 30, 200), (8, 1, 3, 3), {"groups": 8, **SMALL}),
    ("conv2d", (1, 3, 70, 75), (3, 1, 7, 7), {"groups": 3, "padding": 3}),
    ("conv2d", (2, 5, 12, 9), (5, 1, 2, 4), {"groups": 5, "padding": (1, 0)}),
    ("conv2d", (1, 6, 5, 4), (6, 1, 9, 9), {"groups": 6, "padding": 4}),
    ("conv2d", (1, 4, 33, 50), (8, 1, 5, 5), {"groups": 4, "stride": 2, "padding": 2}),
    ("conv2d", (1, 4, 40, 61), (4, 1, 3, 3), {"groups": 4, "stride": (1, 3), "dilation": (2, 2)}),
    ("conv2d", (1, 16, 25, 26), (16, 4, 3, 3), {"groups": 4, "dilation": 3, "padding": 3}),
    ("conv2d", (2, 12, 21, 33), (20, 12, 3, 3), SMALL),
    ("conv2d", (1, 3, 47, 90), (7, 3, 5, 3), {"stride": (2, 4), "padding": (2, 1)}),
    ("conv2d", (1, 2, 60, 61), (3, 2, 3, 3), {"stride": 5, "padding": 2}),
    ("conv2d", (1, 1, 300, 301), (1, 1, 11, 11), {"padding": 5}),
    ("conv2d", (1, 1, 40, 41), (2, 1, 33, 33), {"padding": 16}),
    ("conv2d", (1, 1, 24, 1500), (1, 1, 1, 21), {"padding": (0, 10)}),
    ("conv2d", (1, 130, 6, 40), (24, 130, 3, 3), SMALL),
    ("conv2d", (1, 2, 20, 30), (4, 2, 3, 3), {"padding": (0, 1)}),
    ("conv1d", (2, 24, 500), (24, 1, 9), {"groups": 24, "padding": 4}),
    ("conv1d", (1, 5, 333), (17, 5, 25), {"stride": 2, "dilation": 3, "padding": 20}),
    ("conv1d", (2, 6, 77), (9, 6, 1), {}),
    ("conv3d", (2, 9, 4, 6, 10), (11, 9, 1, 1, 1), {}),
    ("conv3d", (1, 3, 6, 14, 15), (8, 3, 3, 1, 1), {"padding": (1, 0, 0)}),
    ("conv3d", (1, 4, 7, 9, 18), (6, 2, 3, 3, 3), {"groups": 2, "stride": 2, "padding": 1}),
    ("conv3d", (2, 5, 5, 6, 40), (5, 1, 2, 3, 3), {"groups": 5, "padding": (0, 1, 1)}),
]  # fmt: skip


def kernels(spec: ModelSpec, *inputs: Array) -> list[str]:
    """Of the plan's steps."""
    return [s.kernel for s in build_plan(simplify(spec), [x.shape for x in inputs], detect(2)).steps]


@pytest.fixture
def planes(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """All convolutions that may take planes do, whatever that takes."""
    monkeypatch.setattr(plane_convs, "CLEARLY", 0.0)
    monkeypatch.setattr(plane_convs, "WIDE", 1 << 20)
    return monkeypatch


@pytest.mark.parametrize("activation", ["relu", "silu", ""])
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, (case[0], *case[1], *case[2]))))
def test_filters(planes: pytest.MonkeyPatch, case: Case, activation: str) -> None:
    op, shape, weight, attrs = case
    x, graph = noise(*shape), Graph()
    given = {"weight": noise(*weight, seed=1), "bias": noise(weight[0], seed=2)}
    made = graph(op, "conv", graph.input("x", shape), **given, **attrs)
    spec = graph.build(graph(activation, "act", made) if activation else made)
    assert kernels(spec, x) == ["conv_planes"]
    got = check(spec, x)
    planes.setattr(plane_convs, "CLEARLY", np.inf)
    images = graph.build(graph(activation, "act2", made) if activation else made)
    assert "conv_planes" not in kernels(images, x)
    np.testing.assert_array_equal(bslite.run(images, x), got)


def test_a_sum_in_the_store(planes: pytest.MonkeyPatch) -> None:
    x, graph = noise(2, 9, 14, 37), Graph()
    value = graph.input("x", x.shape)
    made = graph("conv2d", "conv", value, weight=noise(9, 9, 3, 3, seed=1), padding=1)
    spec = graph.build(graph("relu", "act", graph("add", "sum", made, value)))
    assert kernels(spec, x) == ["conv_planes"]
    check(spec, x)


@pytest.mark.parametrize("batch", [1, 5])
def test_batches(planes: pytest.MonkeyPatch, batch: int) -> None:
    graph = Graph()
    value = graph.input("x", ("N", 4, 12, 20), (1, 4, 12, 20))
    spec = graph.build(graph("conv2d", "conv", value, weight=noise(6, 2, 3, 3, seed=1), groups=2))
    x = noise(5, 4, 12, 20)[:batch]
    whole = bslite.run(spec, x)
    assert isinstance(whole, np.ndarray)
    assert whole.shape == (batch, 6, 10, 18)
    for i in range(batch):
        np.testing.assert_array_equal(bslite.run(spec, x[i : i + 1]), whole[i : i + 1])


@pytest.mark.parametrize("kind", ["rows", "columns", "repeated", "last"])
def test_inputs_that_lie_otherwise(planes: pytest.MonkeyPatch, kind: str) -> None:
    """Every second line or column of the caller's, one line for all, images with channels last."""
    graph = Graph()
    value = graph.input("x", (2, 5, 16, 24))
    spec = graph.build(graph("conv2d", "conv", value, weight=noise(7, 5, 1, 1, seed=1)))
    x = {
        "rows": noise(2, 5, 32, 24)[:, :, ::2],
        "columns": noise(2, 5, 16, 48)[..., ::2],
        "repeated": np.broadcast_to(noise(2, 5, 1, 24), (2, 5, 16, 24)),
        "last": noise(2, 16, 24, 5).transpose(0, 3, 1, 2),
    }[kind]
    np.testing.assert_array_equal(bslite.run(spec, x), bslite.run(spec, x.copy()))
    check(spec, x)


def test_numbers_that_are_not_finite_stay_where_they_are(planes: pytest.MonkeyPatch) -> None:
    """Each reaches the pixels whose windows it is in, and no other."""
    x = noise(1, 2, 11, 40)
    x[0, 0, 5, 20], x[0, 1, 0, 0] = np.nan, np.inf
    spec = one_op("conv2d", x, weight=noise(2, 1, 3, 3, seed=1), groups=2, padding=1)
    got = check(spec, x)
    bad = np.argwhere(~np.isfinite(got[0]))
    assert {tuple(at) for at in bad} == {
        *((0, i, j) for i in (4, 5, 6) for j in (19, 20, 21)), *((1, i, j) for i in (0, 1) for j in (0, 1))
    }  # fmt: skip
