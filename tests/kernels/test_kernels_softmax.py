"""Softmax kernels: any axis, any length, any layout, extreme values."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.check import TINY, Array
from support.graphs import Graph, one_op
from support.kernel_checks import check, check_in_every_layout, ran
from support.noise import noise

from bslite.machine import Machine
from bslite.plan import build_plan

OPS = ("softmax", "log_softmax")
LENGTHS = (1, 2, 3, 15, 16, 17, 33, 63, 64, 65, 130, 1000)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("op", OPS)
def test_rows(op: str, length: int) -> None:
    x = noise(5, length, scale=3)
    check(one_op(op, x), x)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(1, 7), min_size=1, max_size=5), st.data())
def test_any_axis_of_any_rank(shape: list[int], data: st.DataObject) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    for op in OPS:
        check(one_op(op, shape, axis=axis), noise(*shape))


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
@pytest.mark.parametrize("op", OPS)
def test_every_layout(op: str, axis: int) -> None:
    check_in_every_layout(lambda g, v: g(op, "op", v, axis=axis), noise(2, 5, 6, 7))


@pytest.mark.parametrize("op", OPS)
def test_axes_that_do_not_merge(op: str) -> None:
    """Steps in every axis of five: more loops than the kernel has, so through copies."""
    x = noise(4, 6, 4, 6, 8)
    graph = Graph()
    value = graph.input("x", x.shape)
    for axis in range(5):
        value = graph("slice", "every second", value, axis=axis, step=2)
    value = graph("permute", "turn", value, order=(3, 0, 4, 2, 1))
    check(graph.build(graph(op, "op", value, axis=2)), x)


@pytest.mark.parametrize("axis", [0, 1], ids=["lanes", "rows"])
def test_they_sum_to_one_however_large_or_long(axis: int) -> None:
    for scale in (1.0, 1e4, 3e37):
        x = np.moveaxis(noise(7, 1000, scale=scale), 1, axis).copy()
        y = ran(one_op("softmax", x, axis=axis), x)
        assert np.abs(y.astype(np.float64).sum(axis) - 1).max() < 1e-6
    y = ran(one_op("softmax", (1, 300_001)), noise(1, 300_001, scale=0.1))
    assert abs(float(y.astype(np.float64).sum()) - 1) < 1e-6


def test_minus_infinity_is_a_probability_of_zero() -> None:
    x = noise(35, 35)
    x[::3, ::3] = -np.inf
    for axis in (0, 1):
        assert (ran(one_op("softmax", x, axis=axis), x)[::3, ::3] == 0).all()
        assert np.isneginf(ran(one_op("log_softmax", x, axis=axis), x)[::3, ::3]).all()


@pytest.mark.parametrize("axis", [0, 1], ids=["lanes", "rows"])
@pytest.mark.parametrize("op", OPS)
def test_those_without_a_maximum_are_nan_and_leave_the_others_alone(op: str, axis: int) -> None:
    def of(x: Array) -> Array:
        x = np.moveaxis(x, 1, axis).copy()
        return np.moveaxis(ran(one_op(op, x, axis=axis), x), axis, 1)

    x = noise(6, 21)
    clean = of(x)
    x[0], x[1, 20], x[2, 3] = -np.inf, np.inf, np.nan
    y = of(x)
    assert np.isnan(y[:3]).all()
    np.testing.assert_array_equal(y[3:], clean[3:])


def test_log_of_long_rows() -> None:
    x = noise(2, 100_003)
    y = ran(one_op("log_softmax", x), x).astype(np.float64)
    assert np.abs(np.exp(y).sum(1) - 1).max() < 32 * TINY


def test_lanes_where_the_value_lies_so() -> None:
    """A view of another value lies in any order: it is copied into rows, by the model alone."""
    for turned, kernel in ((False, "softmax_lanes"), (True, "softmax")):
        graph = Graph()
        value = graph.input("x", ("N", 12, 9, 20), (1, 12, 9, 20))
        if turned:
            value = graph("permute", "turned", value, order=(0, 1, 3, 2))
        spec = graph.build(graph("softmax", "softmax", value, axis=2))
        kernels = {step.kernel for step in build_plan(spec, [(1, 12, 9, 20)], Machine()).steps}
        assert {name for name in kernels if "softmax" in name} == {kernel}
        check(spec, noise(1, 12, 9, 20))
