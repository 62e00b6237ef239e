"""Gathers and scatters of elements whose indices are one for each slice become those of slices."""

from typing import Any

import numpy as np
import pytest
from support.check import Array
from support.graphs import Graph
from support.kernel_checks import check, ran
from support.noise import noise

from bslite.ops.index import REDUCTIONS
from bslite.passes import simplify
from bslite.spec import ModelSpec

ROWS, PLACES = 9, 40  # many indices go to one place


def indices(count: int, among: int) -> Array:
    """Places counted from the front and from the back."""
    return np.random.default_rng(0).integers(-among, among, count)


def model(
    op: str, x: Array, expanded: tuple[int, ...], updates: Array | None = None, **attrs: Any
) -> ModelSpec:
    """``op`` of x and of an input of one index for each slice along the axis, expanded to these sizes."""
    graph = Graph()
    axis = attrs["axis"] % x.ndim
    shape = [expanded[axis] if a == axis else 1 for a in range(x.ndim)]
    values = [graph.input("x", x.shape)]
    each = graph("reshape", "each", graph.input("i", (expanded[axis],), dtype="int64"), shape=tuple(shape))
    values.append(graph("expand", "expanded", each, shape=expanded))
    if updates is not None:
        values.append(graph.input("u", updates.shape))
    return graph.build(graph(op, "layer", *values, **attrs))


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("rest", [(8,), (64,), (37,), (2, 19), (130,)])
def test_scattered_rows(reduction: str, rest: tuple[int, ...]) -> None:
    x, u, i = noise(ROWS, *rest), noise(PLACES, *rest, seed=1), indices(PLACES, ROWS)
    spec = model("scatter_elements", x, (PLACES, *rest), u, axis=0, reduction=reduction)
    assert [n.op for n in simplify(spec).nodes][-1] == "scatter_nd"
    check(spec, x, i, u)


@pytest.mark.parametrize(
    ("shape", "axis", "op"),
    [
        ((5, 6, 17), 0, "gather"),
        ((5, 6, 17), 1, "gather"),
        ((5, 6, 8), -2, "gather"),
        ((5, 7), 0, "gather_elements"),  # short ones stay
        ((5, 6, 7), 1, "gather_elements"),
        ((5, 6, 17), 2, "gather_elements"),
    ],
)
def test_gathered_slices(shape: tuple[int, ...], axis: int, op: str) -> None:
    x = noise(*shape)
    i, expanded = indices(11, x.shape[axis]), list(shape)
    expanded[axis] = 11
    spec = model("gather_elements", x, tuple(expanded), axis=axis)
    assert [n.op for n in simplify(spec).nodes][-1] == op
    np.testing.assert_array_equal(ran(spec, x, i), np.take(x, i, axis))


@pytest.mark.parametrize(
    ("shape", "expanded", "axis"),
    [
        ((ROWS, 8), (PLACES, 5), 0),  # to the first columns only
        ((8, ROWS), (8, PLACES), 1),  # along another axis
        ((ROWS, 7), (PLACES, 7), 0),  # short ones
    ],
)
def test_others_stay(shape: tuple[int, ...], expanded: tuple[int, ...], axis: int) -> None:
    x, u, i = noise(*shape), noise(*expanded, seed=1), indices(PLACES, ROWS)
    spec = model("scatter_elements", x, expanded, u, axis=axis, reduction="add")
    assert [n.op for n in simplify(spec).nodes][-1] == "scatter_elements"
    check(spec, x, i, u)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_reductions_of_special_numbers(reduction: str) -> None:
    """The lanes of a register reduce as single numbers do: signs of zeros, NaN in either."""
    special = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1.0], np.float32)
    x = np.repeat(special, 6)[None].repeat(2, 0)
    u = np.tile(special, 6)[None].repeat(3, 0)
    i = np.array([0, 1, 0])
    spec = model("scatter_elements", x, u.shape, u, axis=0, reduction=reduction)
    lines = model("scatter_elements", x.T.copy(), u.T.shape, u.T.copy(), axis=1, reduction=reduction)
    assert [n.op for n in simplify(spec).nodes][-1] == "scatter_nd"
    with np.errstate(all="ignore"):
        rows, columns = ran(spec, x, i, u), ran(lines, x.T.copy(), i, u.T.copy())
    np.testing.assert_array_equal(rows, columns.T)
    numbers = ~np.isnan(rows)
    np.testing.assert_array_equal(np.signbit(rows[numbers]), np.signbit(columns.T[numbers]))
