"""Images of few channels on tiles of one part: what float64 gives for rounded factors, wherever they lie."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from support.cells import WORD, nearest, planned, reach_of, steps_of
from support.check import assert_three_way
from support.graphs import one_op
from support.kernel_checks import MANY
from support.noise import noise
from support.tiles import tiles

import bslite
from bslite import reference
from bslite.engines.cpu.engine import prepare
from bslite.plan.cpu.tuning import Tuning
from bslite.spec import ModelSpec

pytestmark = pytest.mark.usefixtures("tiles", "images")
__all__ = ["tiles"]
CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "7x7, stride 2": ((2, 3, 31, 45), (64, 3, 7, 7), {"stride": 2, "padding": 3}),
    "11x11, stride 4": ((3, 3, 47, 59), (40, 3, 11, 11), {"stride": 4, "padding": 2}),
    "3x3": ((1, 3, 17, 70), (33, 3, 3, 3), {"padding": 1}),
    "3x3, stride 2, no zeros": ((2, 3, 20, 21), (32, 3, 3, 3), {"stride": 2}),
    "uneven zeros and strides": ((2, 3, 13, 40), (16, 3, 3, 5), {"stride": (2, 3), "padding": (0, 3, 2, 1)}),
    "one channel": ((2, 1, 28, 28), (32, 1, 5, 5), {"padding": 2}),
    "two channels": ((1, 2, 9, 33), (48, 2, 3, 3), {"padding": 1}),
    "four channels": ((1, 4, 9, 16), (31, 4, 3, 3), {"padding": 1}),
    "rows apart": ((1, 3, 24, 19), (32, 3, 4, 4), {"dilation": (3, 1), "padding": (4, 1, 5, 2)}),
    "narrower than a block of terms": ((2, 3, 40, 2), (32, 3, 3, 2), {}),
}


def picture(name: str) -> tuple[ModelSpec, Any]:
    shape, filters, attributes = CASES[name]
    how = {"stride": 1, "padding": 0} | attributes
    x = noise(*shape)
    return one_op(
        "conv2d", ("N", *shape[1:]), weight=noise(*filters, seed=1), bias=noise(filters[0]), **how
    ), x


@pytest.mark.parametrize("name", CASES)
def test_convolutions(name: str) -> None:
    """The same bits cut otherwise, layer by layer, and of pixels that lie channels last."""
    spec, x = picture(name)
    for threads in (1, 2):
        plan = planned(spec, x, threads)
        assert "picture" in {s.kernel for s in steps_of(plan)}
        reached = reach_of(plan)
        assert reached
        assert all(end <= size for end, size in reached)
    made = bslite.run(spec, x, threads=1, precision=WORD)
    rounded = dataclasses.replace(
        spec, params={key: nearest(a) if a.ndim > 1 else a for key, a in spec.params.items()}
    )
    exact, peer = (reference.run(rounded, [nearest(x)], kind)[0] for kind in (np.float64, np.float32))
    assert_three_way(made, peer, exact, least=1e-7)
    turned = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    for given in (x, turned):
        for how in ({"threads": 2}, {"threads": MANY}, {"threads": 2, "layerwise": True}):
            np.testing.assert_array_equal(bslite.run(spec, given, precision=WORD, **how), made)
    for n in range(x.shape[0]):
        np.testing.assert_array_equal(bslite.run(spec, x[n : n + 1], precision=WORD)[0], made[n])


@pytest.mark.parametrize("name", CASES)
def test_what_memory_held_before_is_no_matter(name: str) -> None:
    """Blocks of terms end behind a row of a window: on pixels beside it, or on zeros."""
    spec, x = picture(name)
    usual = bslite.run(spec, x, threads=2, precision=WORD)
    session = prepare(spec, [x], 2, False, tuning=Tuning(precision=WORD))
    workspace = session.acquire()
    workspace.arena[...] = np.nan
    session.release(workspace)
    made = np.empty_like(usual)
    session.run([x], [made])
    np.testing.assert_array_equal(made, usual)


@pytest.mark.parametrize("planted", [np.inf, -np.inf, np.nan, 3.4e38])
def test_numbers_that_are_not_finite(planted: float) -> None:
    """The run is done again by float32."""
    spec, x = picture("7x7, stride 2")
    for place in ((0, 0, 0, 0), (1, 2, 30, 44)):
        given = x.copy()
        given[place] = planted
        made, ieee = (bslite.run(spec, given, precision=word) for word in (WORD, "ieee"))
        np.testing.assert_array_equal(made, ieee)
