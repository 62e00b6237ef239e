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
from support.graphs import Graph, one_op
from support.kernel_checks import CHANNELS, check, check_in_every_layout, pixels, ran
from support.noise import noise

from bslite import ModelSpec, reference
from bslite.ops.resized.resampling import linear_taps, nearest_taps
from bslite.plan.core.builder import Taps

SIZES = st.integers(1, 60)
SCALES = (0.2, 0.3, 0.5, 0.7, 1.0, 1.1, 1.3, 1.5, 2.0, 2.3, 3.0, 3.7, 4.0)


def torch_resized(x: Array, **options: Any) -> Array:
    """torch's result in x's precision, channels last: its planar kernels have rules of their own."""
    image = torch.from_numpy(x).contiguous(memory_format=torch.channels_last)
    return np.asarray(torch.nn.functional.interpolate(image, **options).numpy())


def resized(x: Array, as_images: bool, op: str = "upsample", **attrs: Any) -> tuple[ModelSpec, list[Array]]:
    """A model that resizes ``x``, and its inputs: planes, or images, to which it adds images of -0."""
    planes = one_op(op, x, **attrs)
    if not as_images:
        return planes, [x]
    shape = planes.infer_shapes([x.shape])["layer"]
    graph = Graph()
    names = graph.input("x", x.shape), graph.input("nothing", shape)
    spec = graph.build(graph("add", "out", graph(op, "layer", names[0], **attrs), names[1]))
    return spec, [x, pixels(np.full(shape, -0.0, np.float32))]


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
    st.sampled_from(CHANNELS), st.integers(1, 9), SIZES, st.tuples(SIZES, SIZES), st.booleans(), st.booleans()
)
def test_odd_shapes(
    c: int, h: int, w: int, size: tuple[int, int], align_corners: bool, as_images: bool
) -> None:
    size = (size[0] // 3 + 1, size[1])
    x = noise(2, c, h, w)
    spec, inputs = resized(x, as_images, mode="nearest", size=size)
    want = reference.run(spec, inputs, np.float32)[0]
    np.testing.assert_array_equal(ran(spec, *inputs), want, strict=True)
    spec, inputs = resized(x, as_images, mode="bilinear", size=size, align_corners=align_corners)
    exact = reference.run(spec, inputs, np.float64)[0]
    # weights and products rounded: never far from the largest of the four pixels
    assert np.abs(ran(spec, *inputs) - exact).max() <= 6 * TINY * np.abs(x).max()


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_planes_and_images_have_the_same_bits(mode: str) -> None:
    for have, out in ((3, 5), (15, 40), (16, 32), (17, 17), (33, 16), (40, 9), (70, 3), (9, 100)):
        x = noise(2, 5, 4, have)
        planes, images = (resized(x, lies, mode=mode, size=(7, out)) for lies in (False, True))
        np.testing.assert_array_equal(ran(planes[0], *planes[1]), ran(images[0], *images[1]), strict=True)


@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_planes_by_many_taps(mode: str, antialias: bool) -> None:
    """Wide windows come from several registers; the axis that shrinks more may be either."""
    for have, out in ((6, 13), (16, 31), (40, 33), (50, 20), (100, 7)):
        for size in ((out, 9), (9, out)):
            x = noise(1, 3, have if size[1] == 9 else 11, have if size[0] == 9 else 11)
            spec, inputs = resized(
                x, False, "resize", mode=mode, axes=(2, 3), sizes=size, antialias=antialias
            )
            check(spec, *inputs)


def test_planes_of_integers_and_crops() -> None:
    whole = np.arange(2 * 3 * 5 * 40, dtype=np.int64).reshape(2, 3, 5, 40) - (1 << 30)
    spec = one_op("resize", whole, mode="nearest", axes=(3, 2), sizes=(21, 8))
    np.testing.assert_array_equal(ran(spec, whole), reference.run(spec, [whole], np.float32)[0], strict=True)
    x = noise(1, 3, 6, 20)
    spec = one_op(
        "resize", x, mode="linear", axes=(2, 3), sizes=(9, 30), coordinates="tf_crop_and_resize",
        roi=(-0.2, 0.1, 0.8, 1.3), extrapolation=7.0,
    )  # fmt: skip
    assert (check(spec, x) == 7.0).any()


@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_planes_and_numbers_that_are_none(poison: float) -> None:
    """They reach the pixels that they reach in images, those of weight zero among them."""
    x = noise(1, 2, 5, 20)
    x[0, 0, 2, 17] = poison
    planes, images = (resized(x, lies, mode="bilinear", size=(10, 40)) for lies in (False, True))
    got = ran(planes[0], *planes[1])
    assert not np.isfinite(got).all()
    np.testing.assert_array_equal(got, ran(images[0], *images[1]), strict=True)


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
@pytest.mark.parametrize("channels", [1, 5, 33])
def test_every_layout(channels: int, mode: str) -> None:
    check_in_every_layout(
        lambda g, v: g("upsample", "up", v, mode=mode, scale=(2, 1.5)), noise(2, channels, 4, 6)
    )


@pytest.mark.parametrize("as_images", [False, True])
@pytest.mark.parametrize("channels", [1, 24])
@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_large_images_in_many_items(mode: str, channels: int, as_images: bool) -> None:
    x = noise(1, channels, 33, 35)
    spec, inputs = resized(x, as_images, mode=mode, scale=(2, 3))
    exact = reference.run(spec, inputs, np.float64)[0]
    assert np.abs(ran(spec, *inputs) - exact).max() <= 6 * TINY * np.abs(x).max()
