"""Pooling kernels: odd shapes, every window geometry, every way the image may lie in memory.

Where a pool is the whole model, planes are pooled as they lie, and images whose channels are last as images.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.check import TINY, Array
from support.graphs import Graph, one_op
from support.kernel_checks import CHANNELS, check, check_in_every_layout, pixels, ran
from support.noise import noise

from bslite import reference
from bslite.errors import SpecError
from bslite.machine import Machine
from bslite.plan import build_plan
from bslite.plan.cpu.ops.pool import Run, longest_run, strip_count
from bslite.plan.cpu.sharing import share_image
from bslite.plan.shared.spans import Span, adaptive_spans, window_spans

SIZES = st.integers(1, 13)
WIDTHS = st.integers(1, 37)
Lies = Callable[[Array], Array]
LIES = st.sampled_from([np.ascontiguousarray, pixels])
in_both_layouts = pytest.mark.parametrize("lies", [np.ascontiguousarray, pixels], ids=["planes", "pixels"])


@st.composite
def windows(draw: st.DrawFn, dilated: bool) -> dict[str, Any]:
    kernel = draw(st.tuples(st.integers(1, 5), st.integers(1, 5)))
    attrs: dict[str, Any] = {
        "kernel": kernel,
        "stride": draw(st.none() | st.tuples(st.integers(1, 4), st.integers(1, 4))),
        "padding": tuple(draw(st.integers(0, kernel[axis] // 2)) for axis in (0, 1, 0, 1)),
        "ceil_mode": draw(st.booleans()),
    }
    if dilated:
        attrs["dilation"] = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    else:
        attrs["count_include_pad"] = draw(st.booleans())
        attrs["divisor_override"] = draw(st.none() | st.integers(1, 30))
    return attrs


@settings(deadline=None, max_examples=120)
@given(st.integers(1, 3), st.sampled_from(CHANNELS), SIZES, WIDTHS, windows(dilated=True), LIES)
def test_max_pool_is_exact(n: int, c: int, h: int, w: int, attrs: dict[str, Any], lies: Lies) -> None:
    x = lies(noise(n, c, h, w))
    try:
        spec = one_op("max_pool2d", x, **attrs)
    except SpecError:
        assume(False)
    np.testing.assert_array_equal(ran(spec, x), reference.run(spec, [x], np.float32)[0], strict=True)


@settings(deadline=None, max_examples=120)
@given(st.integers(1, 3), st.sampled_from(CHANNELS), SIZES, WIDTHS, windows(dilated=False), LIES)
def test_avg_pool_rounds_a_few_times(
    n: int, c: int, h: int, w: int, attrs: dict[str, Any], lies: Lies
) -> None:
    x = lies(noise(n, c, h, w))
    try:
        spec = one_op("avg_pool2d", x, **attrs)
    except SpecError:
        assume(False)
    exact = reference.run(spec, [x], np.float64)[0]
    size = reference.run(spec, [np.abs(x)], np.float64)[0]
    assert (np.abs(ran(spec, x) - exact) <= (sum(attrs["kernel"]) + 1) * TINY * size).all()


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(CHANNELS), SIZES, WIDTHS, st.tuples(SIZES, SIZES), LIES)
def test_adaptive_pools(c: int, h: int, w: int, size: tuple[int, int], lies: Lies) -> None:
    x = lies(noise(2, c, h, w))
    spec = one_op("adaptive_max_pool2d", x, output_size=size)
    np.testing.assert_array_equal(ran(spec, x), reference.run(spec, [x], np.float32)[0], strict=True)
    spec = one_op("adaptive_avg_pool2d", x, output_size=size)
    exact, of_size = (reference.run(spec, [v], np.float64)[0] for v in (x, np.abs(x)))
    assert (np.abs(ran(spec, x) - exact) <= (h + w + 1) * TINY * of_size).all()


@pytest.mark.parametrize("shape", [(1, 2048, 7, 7), (1, 3, 112, 113), (2, 130, 1, 65), (1, 1000, 1, 1)])
@pytest.mark.parametrize("op", ["adaptive_avg_pool2d", "adaptive_max_pool2d"])
@in_both_layouts
def test_global_pools(op: str, shape: tuple[int, ...], lies: Lies) -> None:
    check(one_op(op, shape, output_size=1), lies(noise(*shape)))


@in_both_layouts
def test_a_long_sum_keeps_its_digits(lies: Lies) -> None:
    """Added up one by one in float32, 262144 equal numbers are off by far more."""
    x = lies(np.full((1, 3, 512, 512), 0.1, np.float32))
    got = ran(one_op("adaptive_avg_pool2d", x, output_size=1), x)
    assert np.abs(got / x[0, 0, 0, 0] - 1).max() < 1e-5


@in_both_layouts
def test_mean_of_ones_is_one(lies: Lies) -> None:
    for kernel in range(1, 8):
        x = lies(np.ones((1, 17, 14, 14), np.float32))
        spec = one_op("avg_pool2d", x, kernel=kernel, padding=kernel // 2, count_include_pad=False)
        assert (ran(spec, x) == 1).all()


@pytest.mark.parametrize("shape", [(1, 64, 56, 57), (3, 24, 31, 29), (1, 2048, 7, 7), (1, 5, 64, 3)])
@in_both_layouts
def test_large_images_in_many_items(shape: tuple[int, ...], lies: Lies) -> None:
    x = lies(noise(*shape))
    check(one_op("max_pool2d", shape, kernel=3, stride=2, padding=1), x)
    check(one_op("avg_pool2d", shape, kernel=3, stride=1, padding=1), x)


@pytest.mark.parametrize("channels", [1, 3, 17, 33])
def test_every_layout(channels: int) -> None:
    x = noise(2, channels, 6, 7)
    check_in_every_layout(lambda g, v: g("max_pool2d", "max", v, kernel=3, stride=1, padding=1), x)
    check_in_every_layout(
        lambda g, v: g("avg_pool2d", "avg", v, kernel=(2, 3), stride=1, padding=(1, 1, 0, 1)), x
    )


def test_nothing_of_a_window_in_the_image() -> None:
    """A dilated window can straddle a small image: minus infinity, as in the reference."""
    x = noise(1, 3, 1, 1)
    spec = one_op("max_pool2d", x, kernel=2, padding=1, dilation=2)
    assert np.isneginf(ran(spec, x)).all()


@in_both_layouts
def test_nan_wins_wherever_it_stands(lies: Lies) -> None:
    for place in range(9):
        x = lies(noise(1, 33, 3, 3))
        x[0, :, place // 3, place % 3] = np.nan
        assert np.isnan(ran(one_op("max_pool2d", x, kernel=3), x)).all()


def test_spans() -> None:
    assert window_spans(5, 3, 3, 2, 1, 1, 1, padded=True) == [Span(0, 2, 3), Span(1, 3, 3), Span(3, 2, 3)]
    assert window_spans(5, 3, 3, 2, 1, 1, 1, padded=False) == [Span(0, 2, 2), Span(1, 3, 3), Span(3, 2, 2)]
    assert [s[:2] for s in window_spans(4, 2, 3, 1, 2, 2, 2, padded=False)] == [(0, 2), (1, 2)]
    assert [s[:2] for s in adaptive_spans(5, 3)] == [(0, 2), (1, 3), (3, 2)]


@pytest.mark.parametrize("stride", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("pool", ["max_pool2d", "avg_pool2d"])
def test_planes_of_any_width(pool: str, stride: int) -> None:
    """Around a register's width and twice that, with windows that reach beyond both ends of a line."""
    for width in (1, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 50):
        for kernel in (2, 3, 6):
            shape = (1, 3, 4, width + kernel)
            check(one_op(pool, shape, kernel=kernel, stride=stride, padding=kernel // 2), noise(*shape))


@pytest.mark.parametrize(
    ("channels", "side", "pools", "kernel"),
    [(64, 16, 1, "max_planes"), (64, 8, 1, "max_pool"), (64, 16, 2, "max_pool"), (3, 8, 2, "max_planes")],
)
def test_one_pool_is_taken_plane_by_plane(channels: int, side: int, pools: int, kernel: str) -> None:
    """Two turn images there and back, and one of small planes; with few channels none does."""
    graph = Graph()
    value = graph.input("x", ("N", channels, side, side), (1, channels, side, side))
    for i in range(pools):
        value = graph("max_pool2d", f"pool{i}", value, kernel=3, stride=1, padding=1)
    plan = build_plan(graph.build(value), [(1, channels, side, side)], Machine(lanes=16))
    assert {step.kernel for step in plan.steps if "max" in step.kernel} == {kernel}


def test_longest_run() -> None:
    assert longest_run(window_spans(56, 56, 3, 1, 1, 1, 1, padded=True)) == Run(1, 54, 3, 1)
    assert longest_run(window_spans(112, 56, 3, 2, 1, 1, 1, padded=True)) == Run(1, 55, 3, 2)
    assert longest_run(window_spans(5, 3, 3, 2, 1, 1, 1, padded=True)).pixels == 1
    assert longest_run(adaptive_spans(6, 3)) == Run(0, 3, 2, 2)
    assert longest_run([Span(0, 2, 2), Span(1, 2, 3), Span(2, 2, 3)]) == Run(1, 2, 2, 1)


@given(
    st.integers(0, 500), st.integers(1, 3), st.integers(1, 1 << 14), st.sampled_from([0, 32 << 10, 48 << 10])
)
def test_strips_cover_the_run(pixels: int, stride: int, pixel_bytes: int, l1: int) -> None:
    strips = strip_count(Run(1, pixels, 3, stride), 3, pixel_bytes, l1)
    strip = -(-pixels // strips)
    assert strips >= 1
    assert (strips - 1) * strip < max(1, pixels) <= max(1, strips * strip)


@pytest.mark.parametrize("pool", ["max_pool2d", "avg_pool2d"])
@pytest.mark.parametrize("stride", [1, 2])
@in_both_layouts
def test_strips_of_wide_images(pool: str, stride: int, lies: Lies) -> None:
    """Several strips, and a last one of another width; bands of lines; some lanes left over."""
    for shape in ((1, 48, 5, 131), (2, 300, 9, 67)):
        check(one_op(pool, shape, kernel=3, stride=stride, padding=1), lies(noise(*shape)))


@pytest.mark.parametrize("divisor", [1, 3, 7, 9, 25, 49, 120])
@in_both_layouts
def test_division_is_rounded_once(divisor: int, lies: Lies) -> None:
    """The kernel multiplies by an inverse and corrects: the quotient is still the nearest float32."""
    x = lies(np.concatenate([noise(1, 64, 30, 30), noise(1, 64, 30, 30, scale=1e30, seed=1)], axis=2))
    x[0, 0, 0, :4] = np.inf, -np.inf, 3.4e38, -0.0
    got = ran(one_op("avg_pool2d", x, kernel=1, divisor_override=divisor), x)
    np.testing.assert_array_equal(got, x / np.float32(divisor))


@given(st.integers(1, 64), st.integers(1, 300), st.integers(1, 3000), st.integers(1, 64), st.floats(1, 1e9))
def test_items_cover_everything_once(n: int, lines: int, c: int, threads: int, cycles: float) -> None:
    machine = Machine(threads=threads)
    found = share_image(machine, n, lines, c, cycles)
    registers = -(-c // machine.lanes)
    assert (found.bands - 1) * found.band_lines < lines <= found.bands * found.band_lines
    assert (found.blocks - 1) * found.block_registers < registers <= found.blocks * found.block_registers


@pytest.mark.parametrize("pool", ["adaptive_avg_pool2d", "adaptive_max_pool2d"])
def test_whole_planes_of_one_column(pool: str) -> None:
    """Its pixels may lie apart: of a signal whose channels are last in memory, or cut out of an image."""
    graph = Graph()
    signal = graph("permute", "signal", graph.input("x", (2, 50, 3)), order=(0, 2, 1))
    planes = graph("reshape", "planes", signal, shape=(2, 3, 50, 1))
    check(graph.build(graph(pool, "whole", planes, output_size=1)), noise(2, 50, 3))

    graph = Graph()
    column = graph("slice", "column", graph.input("x", (2, 3, 20, 4)), axis=3, start=1, stop=2)
    check(graph.build(graph(pool, "whole", column, output_size=1)), noise(2, 3, 20, 4))
