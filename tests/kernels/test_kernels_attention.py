"""Attention's softmax over many blocks of keys: largest scores that rise and fall, what is not finite."""

from collections.abc import Callable

import numpy as np
import pytest
from support.check import rel_l2
from support.graphs import one_op
from support.kernel_checks import check, ran
from support.noise import noise

from bslite import reference
from bslite.plan.cpu.ops.attention import LONGEST
from bslite.spec import Array

ROWS, KEYS, DEPTH = 45, 3 * LONGEST + 21, 12  # all with a rest in the last tile or block
LOWEST = np.finfo(np.float32).min


def heads() -> tuple[Array, Array, Array]:
    """Queries, keys and values of two heads."""
    return noise(2, ROWS, DEPTH, seed=1), noise(2, KEYS, DEPTH, seed=2), noise(2, KEYS, 9, seed=3)


@pytest.mark.parametrize("slope", [-0.1, 0.1])
@pytest.mark.parametrize("scale", [None, -0.5])
def test_largest_scores_rise_or_fall_from_block_to_block(slope: float, scale: float | None) -> None:
    q, k, v = heads()
    q, k = np.abs(q), k + slope * np.arange(KEYS, dtype=np.float32)[:, None]
    check(one_op("attention", q, k, v, scale=scale), q, k, v)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("block", range(4))
@pytest.mark.parametrize("role", ["q", "k", "v", "mask"])
def test_what_is_not_finite_keeps_to_its_rows(role: str, block: int, value: float) -> None:
    """A NaN or an infinity of one row of queries, or of one key of any block."""
    q, k, v = heads()
    mask = noise(ROWS, KEYS, seed=4)
    key = min(KEYS - 1, block * LONGEST + 20)
    place = {"q": (q, (1, 11 * block)), "k": (k, (0, key)), "v": (v, (1, key)), "mask": (mask, (7, key))}
    where, at = place[role]
    where[at] = value
    for taken in ((q, k, v), (q, k, v, mask)):
        made = check(one_op("attention", *taken), *taken)
    if role == "mask":
        assert np.isfinite(np.delete(made, 7, axis=1)).all()


@pytest.mark.parametrize("number", [LOWEST, np.float32(-1e30), np.float32(3e38)])
@pytest.mark.parametrize("covered", [lambda row: slice(None), lambda row: slice(row % 7, None, 7)])
def test_masks_by_numbers_beyond_all_scores(number: np.float32, covered: Callable[[int], slice]) -> None:
    """A row whose keys are all hidden by such a number is an average: adding it leaves no score apart."""
    q, k, v = heads()
    mask = np.zeros((ROWS, KEYS), np.float32)
    for row in range(0, ROWS, 2):
        mask[row, covered(row)] = number
    made = check(one_op("attention", q, k, v, mask), q, k, v, mask)
    assert np.isfinite(made).all()


@pytest.mark.parametrize("blocks", [1, 2, 3])
def test_rows_whose_first_keys_are_hidden(blocks: int) -> None:
    """No key takes part in whole blocks of them: of the first, and of the last."""
    q, k, v = heads()
    mask = np.zeros((ROWS, KEYS), np.float32)
    mask[::2, : blocks * LONGEST] = -np.inf
    mask[1::4, KEYS - blocks * LONGEST :] = -np.inf
    made = check(one_op("attention", q, k, v, mask), q, k, v, mask)
    assert np.isfinite(made).all()


@pytest.mark.parametrize("depth", [512, 1000, 2051])
def test_deep_heads(depth: int) -> None:
    """Their products are summed in parts: an error of a score is one of its exponential."""
    x = np.abs(noise(2, 40, depth, scale=0.6))
    spec = one_op("attention", x, x, x)
    assert rel_l2(ran(spec, x, x, x), reference.run(spec, [x, x, x], np.float64)[0]) < 4e-7
