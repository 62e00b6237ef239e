"""Resizing: the tables against torch's rules, the kernels on odd shapes and in any layout."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.check import TINY, Array
from support.graphs import one_op
from support.kernel_checks import CHANNELS, check_in_every_layout, ran
from support.noise import noise

from bslite import reference
from bslite.ops.resized.resampling import linear_taps, nearest_taps
from bslite.plan.core.builder import Taps

SIZES = st.integers(1, 60)
SCALES = (0.2, 0.3, 0.5, 0.7, 1.0, 1.1, 1.3, 1.5, 2.0, 2.3, 3.0, 3.7, 4.0)


def torch_resized(x: Array, **options: Any) -> Array:
    """torch's result in x's precision, channels last: its planar kernels have rules of their own."""
    image = torch.from_numpy(x).contiguous(memory_format=torch.channels_last)
    return np.asarray(torch.nn.functional.interpolate(image, **options).numpy())


def along(values: Array) -> Array:
    """One row of pixels of three channels."""
    return np.broadcast_to(values, (1, 3, 1, len(values))).copy()


def assert_taps(row: Array, table: Taps, want: Array) -> None:
    """That is what the taps in ``row`` come to."""
    got = [sum(weight * row[line] for line, weight in taps) for taps in table]
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-12)


@pytest.mark.parametrize("align_corners", [False, True])
def test_linear_taps_to_a_size(align_corners: bool) -> None:
    for have, out in itertools.product(range(1, 30), range(1, 50)):
        x = along(noise(have).astype(np.float64))
        want = torch_resized(x, size=(1, out), mode="bilinear", align_corners=align_corners)[0, 0, 0]
        assert_taps(x[0, 0, 0], linear_taps(have, out, None, align_corners), want)


@pytest.mark.parametrize("scale", SCALES)
def test_linear_taps_by_a_scale(scale: float) -> None:
    for have in range(math.ceil(1 / scale), 60):
        x = along(noise(have).astype(np.float64))
        want = torch_resized(x, scale_factor=(1.0, scale), mode="bilinear", recompute_scale_factor=False)
        assert_taps(x[0, 0, 0], linear_taps(have, want.shape[3], scale, False), want[0, 0, 0])


def test_nearest_taps_to_a_size() -> None:
    for have, out in itertools.product(range(1, 60), range(1, 60)):
        got = torch_resized(along(np.arange(have, dtype=np.float32)), size=(1, out), mode="nearest")
        assert [t.line for (t,) in nearest_taps(have, out, None)] == got[0, 0, 0].tolist(), (have, out)


@pytest.mark.parametrize("scale", SCALES)
def test_nearest_taps_by_a_scale(scale: float) -> None:
    for have in range(math.ceil(1 / scale), 60):
        x = along(np.arange(have, dtype=np.float32))
        got = torch_resized(x, scale_factor=(1.0, scale), mode="nearest", recompute_scale_factor=False)
        assert [t.line for (t,) in nearest_taps(have, got.shape[3], scale)] == got[0, 0, 0].tolist(), have


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(CHANNELS), st.integers(1, 9), st.integers(1, 9), st.tuples(SIZES, SIZES), st.booleans()
)
def test_odd_shapes(c: int, h: int, w: int, size: tuple[int, int], align_corners: bool) -> None:
    size = (size[0] // 3 + 1, size[1] // 3 + 1)
    x = noise(2, c, h, w)
    spec = one_op("upsample", x, mode="nearest", size=size)
    np.testing.assert_array_equal(ran(spec, x), reference.run(spec, [x], np.float32)[0], strict=True)
    spec = one_op("upsample", x, mode="bilinear", size=size, align_corners=align_corners)
    exact = reference.run(spec, [x], np.float64)[0]
    # weights and products rounded: never far from the largest of the four pixels
    assert np.abs(ran(spec, x) - exact).max() <= 6 * TINY * np.abs(x).max()


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
@pytest.mark.parametrize("channels", [1, 5, 33])
def test_every_layout(channels: int, mode: str) -> None:
    check_in_every_layout(
        lambda g, v: g("upsample", "up", v, mode=mode, scale=(2, 1.5)), noise(2, channels, 4, 6)
    )


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_large_images_in_many_items(mode: str) -> None:
    x = noise(1, 24, 33, 35)
    spec = one_op("upsample", x, mode=mode, scale=(2, 3))
    assert np.abs(ran(spec, x) - reference.run(spec, [x], np.float64)[0]).max() <= 6 * TINY * np.abs(x).max()
