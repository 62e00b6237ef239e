"""Layer norm, group norm and local response norm: odd shapes, any layout, means far from zero."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.check import TINY, Array, rel_l2
from support.graphs import Graph, one_op
from support.kernel_checks import check, check_in_every_layout, pixels, ran
from support.noise import noise
from support.plans import plan_of

from bslite import ModelSpec, reference


def affine(*shape: int) -> dict[str, Array]:
    return {"weight": noise(*shape, seed=3, shift=1.0), "bias": noise(*shape, seed=4)}


@pytest.mark.parametrize("length", [2, 3, 17, 33, 64, 65, 768, 5000])
def test_layer_norm_rows(length: int) -> None:
    x = noise(7, length)
    for params in ({}, affine(length), {"bias": affine(length)["bias"]}):
        check(one_op("layer_norm", x, **params, normalized_shape=(length,)), x)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=5), st.data())
def test_layer_norm_over_any_trailing_axes(shape: list[int], data: st.DataObject) -> None:
    sizes = tuple(shape[-data.draw(st.integers(1, len(shape))) :])
    x = noise(*shape)
    check(one_op("layer_norm", x, **affine(*sizes), normalized_shape=sizes, eps=0.1), x)


def test_a_row_of_zeros_has_no_direction() -> None:
    """Also for an eps whose reciprocal is no float32, or that is none itself: zeros stay zeros."""
    x = noise(3, 37)
    x[1] = 0.0
    for eps in (1e-12, 1e-40, 1e-60):
        y = ran(one_op("normalize", x, axis=-1, eps=eps), x)
        np.testing.assert_array_equal(y[1], 0.0)
        np.testing.assert_allclose(np.linalg.norm(y[[0, 2]], axis=1), 1.0, rtol=1e-6)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_layer_norm_in_every_layout(axes: int) -> None:
    x = noise(2, 5, 6, 7)
    sizes = x.shape[-axes:]
    given = {**affine(*sizes), "normalized_shape": sizes}
    check_in_every_layout(lambda g, v: g("layer_norm", "norm", v, **given), x)


def test_layer_norm_over_channels_of_permuted_images() -> None:
    """As ConvNeXt has it: the channels made last, normalised, and put back."""
    x = noise(2, 33, 5, 7)
    graph = Graph()
    value = graph("permute", "last", graph.input("x", x.shape), order=(0, 2, 3, 1))
    value = graph("layer_norm", "norm", value, **affine(33), normalized_shape=(33,))
    check(graph.build(graph("permute", "back", value, order=(0, 3, 1, 2))), x)


GROUPS = [(1, 1), (3, 3), (3, 1), (17, 17), (33, 11), (33, 3), (64, 32), (130, 2), (130, 65), (256, 32)]


@pytest.mark.parametrize(("channels", "groups"), GROUPS)
@pytest.mark.parametrize("image", [(1, 2), (7, 5), (40, 33)])
def test_group_norm(channels: int, groups: int, image: tuple[int, int]) -> None:
    x = noise(2, channels, *image)
    for lies in (x, pixels(x)):  # of many groups, as rows and as an image
        check(one_op("group_norm", x, **affine(channels), num_groups=groups), lies)
        check(one_op("group_norm", x, num_groups=groups), lies)


@pytest.mark.parametrize("rest", [(), (1,), (6,), (1021,), (2, 3), (3, 4, 5), (2, 3, 2, 3)])
def test_group_norm_of_any_rank(rest: tuple[int, ...]) -> None:
    x = noise(3, 12, *rest)
    check(one_op("group_norm", x, **affine(12), num_groups=3), x)


@pytest.mark.parametrize("groups", [1, 2, 12])
def test_group_norm_in_every_layout(groups: int) -> None:
    check_in_every_layout(
        lambda g, v: g("group_norm", "norm", v, **affine(12), num_groups=groups), noise(2, 12, 6, 7)
    )


@pytest.mark.parametrize("role", ["weight", "bias"])
def test_group_norm_of_planes_that_are_only_scaled_or_shifted(role: str) -> None:
    x = noise(2, 16, 5, 9)
    check(one_op("group_norm", x, **{role: affine(16)[role]}, num_groups=8), x)


@pytest.mark.parametrize("activation", ["relu", "relu6", "leaky_relu", "silu", "gelu", "softplus"])
@pytest.mark.parametrize("image", [(6, 90), (3, 4, 5)], ids=["image", "volume"])
@pytest.mark.parametrize("channels", [6, 40])
def test_group_norm_with_an_activation(channels: int, image: tuple[int, ...], activation: str) -> None:
    """In the store, as an image and as rows; and with zeros around what is written, which a filter reads."""
    x, axes = noise(2, channels, *image, scale=4.0), len(image)
    graph = Graph()
    norm = graph("group_norm", "norm", graph.input("x", x.shape), **affine(channels), num_groups=2)
    act = graph(activation, "act", norm)
    for lies in (x, pixels(x)) if axes == 2 else (x,):
        check(graph.build(act), lies)
    filtered = graph(f"conv{axes}d", "conv", act, weight=noise(4, channels, *(3,) * axes), padding=1)
    spec = graph.build(filtered)
    check(spec, x)
    steps = [step for step in plan_of(spec, 2).steps if "act" in step.layers]
    assert {step.layers for step in steps} == {("norm", "act")}


def test_group_norm_of_axes_that_do_not_merge() -> None:
    x = noise(2, 6, 4, 6, 8)
    graph = Graph()
    value = graph.input("x", x.shape)
    for axis in (2, 3, 4):
        value = graph("slice", "every second", value, axis=axis, step=2)
    check(graph.build(graph("group_norm", "norm", value, num_groups=2)), x)


def near_float64(x: Array, groups: tuple[int, ...], **attrs: Any) -> None:
    """Group norms and the layer norm of all but the batch, by what rounding the result alone may do."""
    specs = [one_op("group_norm", x, num_groups=n, **attrs) for n in groups]
    for spec in (*specs, one_op("layer_norm", x, normalized_shape=x.shape[1:], **attrs)):
        assert rel_l2(ran(spec, x), reference.run(spec, [x], np.float64)[0]) < 4 * TINY


@pytest.mark.parametrize("shift", [0.0, 30.0, 1e4])
def test_means_far_from_zero(shift: float) -> None:
    """The input's own rounding aside, a shift must not show in the result."""
    near_float64(noise(2, 32, 20, 20, shift=shift), (4, 32))


def test_a_spread_of_a_few_units_in_the_last_place() -> None:
    """Where the mean lies between two floats, its rounding is a good part of the deviation."""
    near_float64(noise(3, 40, 9, 9, scale=1e-3, shift=1e4), (4,), eps=1e-12)


@pytest.mark.parametrize("value", [0.0, 1.3])
def test_values_that_are_mostly_equal(value: float) -> None:
    """The roundings of a chain of equal terms do not cancel out: chains are short."""
    x = noise(2, 8, 2048)
    x = np.where(np.abs(x) > 2.6, x, np.float32(value))
    spec = one_op("group_norm", x, num_groups=2)
    assert rel_l2(ran(spec, x), reference.run(spec, [x], np.float64)[0]) < 2e-7


@pytest.mark.parametrize("value", [0.0, 0.1, -12345.678])
def test_constant_input_gives_the_bias(value: float) -> None:
    x = np.full((2, 12, 9, 9), value, np.float32)
    y = ran(one_op("group_norm", x, **affine(12), num_groups=3), x)
    assert np.abs(y - affine(12)["bias"][:, None, None]).max() <= 1e-5
    y = ran(one_op("layer_norm", x, **affine(9), normalized_shape=(9,)), x)
    assert np.abs(y - affine(9)["bias"]).max() <= 1e-5


def poisoned(spec: ModelSpec, x: Array, at: Any, value: float, reached: Any) -> None:
    """``value`` in one place makes NaN in all that it reaches, and changes no bit elsewhere."""
    clean, x = ran(spec, x), x.copy()
    x[at] = value
    y = ran(spec, x)
    touched = np.zeros(x.shape, bool)
    touched[reached] = True
    assert np.isnan(y[touched]).all()
    np.testing.assert_array_equal(y[~touched], clean[~touched])


@pytest.mark.parametrize("op", ["group_norm", "layer_norm"])
def test_nan_stays_in_its_group(op: str) -> None:
    attrs: dict[str, Any] = {"num_groups": 3} if op == "group_norm" else {"normalized_shape": (4,)}
    x = noise(2, 6, 3, 4)
    reached = (1, slice(2, 4)) if op == "group_norm" else (1, 2, 1)
    for value in (np.nan, np.inf):
        poisoned(one_op(op, x, **attrs), x, (1, 2, 1, 1), value, reached)


@pytest.mark.parametrize("beta", [0.0, 0.5, 0.75, 1.0, 0.6, 2.0])
@pytest.mark.parametrize(("channels", "size"), [(1, 5), (3, 2), (17, 5), (33, 4), (64, 5), (96, 1), (20, 70)])
def test_lrn(channels: int, size: int, beta: float) -> None:
    x = noise(2, channels, 4, 3, scale=2)
    check(one_op("lrn", x, size=size, alpha=0.7, beta=beta, k=1.5), x)


@pytest.mark.parametrize("rest", [(5,), (2, 3, 4)])
def test_lrn_of_any_rank(rest: tuple[int, ...]) -> None:
    check(one_op("lrn", (2, 9, *rest), size=3, alpha=1.0), noise(2, 9, *rest))


@pytest.mark.parametrize("beta", [0.75, 0.6])
def test_lrn_in_every_layout(beta: float) -> None:
    check_in_every_layout(lambda g, v: g("lrn", "lrn", v, size=4, alpha=1.0, beta=beta), noise(2, 6, 5, 7))


def test_lrn_nan_reaches_as_far_as_its_window() -> None:
    x = noise(1, 40, 2, 2)
    spec = one_op("lrn", x, size=5, alpha=1.0)
    poisoned(spec, x, (0, 20, 0, 1), np.nan, (0, slice(18, 23), 0, 1))
