"""Rows normalised side by side: the bits of each are those of the row alone."""

import numpy as np
import pytest
from support.graphs import Graph, one_op
from support.kernel_checks import check, ran
from support.noise import noise

from bslite import ModelSpec
from bslite.kernels.cpu.rows.norm_tile import BLOCK, TILES
from bslite.kernels.cpu.vector.simd import LANES

ROWS = 11  # tiles of every height, and rows that remain
LONGEST = [longest for _, longest in TILES[:-1]]
LENGTHS = [1, LANES - 1, LANES, 3 * LANES + 1, BLOCK * LANES - 1, BLOCK * LANES, BLOCK * LANES + 1]
LENGTHS += [size + more for size in LONGEST for more in (0, 1)] + [2 * max(LONGEST) + 5]


def model(op: str, rows: int, length: int) -> ModelSpec:
    weight, bias = noise(length, seed=3, shift=1.0), noise(length, seed=4)
    if op == "layer_norm":
        return one_op(op, (rows, length), weight=weight, bias=bias, normalized_shape=(length,))
    if op == "rms_norm":
        return one_op(op, (rows, length), weight=weight, normalized_shape=(length,))
    return one_op(op, (rows, length), axis=1)


@pytest.mark.parametrize("op", ["layer_norm", "rms_norm", "normalize"])
@pytest.mark.parametrize("length", sorted(set(LENGTHS)))
def test_rows_alone_and_side_by_side(op: str, length: int) -> None:
    x = noise(ROWS, length)
    together = check(model(op, ROWS, length), x)
    for row in range(ROWS):
        alone = ran(model(op, 1, length), x[row : row + 1])
        np.testing.assert_array_equal(alone[0], together[row])


@pytest.mark.parametrize("op", ["layer_norm", "rms_norm", "normalize"])
@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf, 3e38, 1e-42])
def test_a_special_row_leaves_its_neighbours_alone(op: str, special: float) -> None:
    x = noise(ROWS, 100)
    without = ran(model(op, ROWS, 100), x)
    x[5, 70] = special
    others = np.arange(ROWS) != 5
    with np.errstate(all="ignore"):
        together = check(model(op, ROWS, 100), x) if np.isfinite(special) else ran(model(op, ROWS, 100), x)
    np.testing.assert_array_equal(together[others], without[others])
    assert np.isnan(together[5, 70]) or np.isfinite(special)


@pytest.mark.parametrize("op", ["layer_norm", "rms_norm", "normalize"])
def test_rows_of_several_axes(op: str) -> None:
    """Rows equally far apart are few where the axes around them do not merge."""
    x = noise(3, 5, 7, 40)
    given = {"axis": 3} if op == "normalize" else {"normalized_shape": (40,), "weight": noise(40, seed=3)}
    graph = Graph()
    value = graph.input("x", x.shape)
    for axis in (1, 2):
        value = graph("slice", "every second", value, axis=axis, step=2)
    part = np.ascontiguousarray(x[:, ::2, ::2])
    apart = check(graph.build(graph(op, "norm", value, **given)), x)
    np.testing.assert_array_equal(apart, ran(one_op(op, part, **given), part))
