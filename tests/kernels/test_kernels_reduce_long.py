"""Reductions of much, which threads share: the same bits for any number of them, alone or in a batch."""

import numpy as np
import pytest
from support.check import Array
from support.graphs import one_op
from support.kernel_checks import check, ran
from support.noise import noise

from bslite.engines.cpu.detect import detect
from bslite.plan import build_plan
from bslite.plan.cpu.ops.reduce import LONG, PARTS
from bslite.spec import ModelSpec


def model(op: str, shape: tuple[int, ...], axes: list[int]) -> ModelSpec:
    return one_op(op, shape, axes=axes, keepdim=False)


@pytest.mark.parametrize("op", PARTS)
@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((1 << 16,), [0]),
        ((3 * 5 * 7 * 11 * 64,), [0]),
        ((65_537,), [0]),  # a prime
        ((300, 400), [0, 1]),
        ((2, 1 << 15), [1]),
        ((4, 64, 40, 30), [0, 1, 2, 3]),
        ((3, 64, 40, 30), [1, 2, 3]),
        ((40, 3, 64, 33), [0, 2, 3]),
    ],
)
def test_long_reductions(op: str, shape: tuple[int, ...], axes: list[int]) -> None:
    x = noise(*shape)
    check(model(op, shape, axes), np.abs(x) + np.float32(0.1) if op == "log_sum" else x)


@pytest.mark.parametrize("op", PARTS)
def test_alone_as_in_a_batch(op: str) -> None:
    x: Array = np.abs(noise(5, 24, 40, 40))
    whole = ran(model(op, x.shape, [1, 2, 3]), x)
    for i in range(len(x)):
        one = ran(model(op, (1, *x.shape[1:]), [1, 2, 3]), x[i : i + 1])
        np.testing.assert_array_equal(one, whole[i : i + 1], strict=True)


def test_they_are_shared() -> None:
    for op, shared in (("sum", True), ("var", False)):  # a variance needs the mean of all
        plan = build_plan(model(op, (LONG,), [0]), [(LONG,)], detect(2))
        assert (plan.steps[0].items > 1) == shared
