"""Lines of pixels: columns taken as lines, and numbers of pixels that no good length divides."""

import numpy as np
import pytest
from support.check import assert_three_way
from support.graphs import Graph, one_op
from support.noise import noise
from support.plans import plan_of, run_tuned

import bslite
from bslite import ModelSpec, reference
from bslite.kernels.contracts.cpu.gemm import Conv
from bslite.machine import Machine
from bslite.passes import simplify
from bslite.plan import build_plan
from bslite.plan.cpu.tiling import line_length, line_tiling, max_rows
from bslite.plan.cpu.tuning import Banding, Tuning

pytestmark = pytest.mark.usefixtures("images")

AVX2 = Machine(threads=2, lanes=8, registers=16)
#: Prices under which every run that can be taken in bands is, however small.
EAGER = Tuning(banding=Banding(longest=6, rounds=(1, 3, 8), sync=1e9, worth=0))


def check(spec: ModelSpec, *inputs: np.ndarray) -> None:
    """Right by the three-way rule, with the same bits for any number of threads, alone and in bands."""
    exact = reference.run(spec, list(inputs), np.float64)[0]
    peer = reference.run(spec, list(inputs), np.float32)[0]
    want = bslite.run(spec, list(inputs), layerwise=True)
    assert_three_way(want, peer, exact)
    for threads in (1, 2):
        for tuning in (Tuning(), EAGER):
            got = run_tuned(spec, list(inputs), threads, tuning)[0]
            assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize("pixels", [101, 127, 197, 257, 509, 577, 1009, 99991])
@pytest.mark.parametrize("channels", [8, 96, 768])
def test_a_prime_number_of_pixels_is_not_cut_into_single_ones(pixels: int, channels: int) -> None:
    length = line_length(AVX2, pixels, channels)
    assert length >= max_rows(AVX2, 2)
    assert line_tiling(AVX2, length, channels).cut.rows1 >= 5


def test_the_rest_of_the_pixels_is_a_step_of_its_own() -> None:
    spec = one_op("linear", (1009, 40), weight=noise(24, 40), bias=noise(24))
    sizes = [
        (s.record.lines, s.record.cut) for s in plan_of(spec, (1009, 40)).steps if isinstance(s.record, Conv)
    ]
    pixels = [lines * (c.tiles1 * c.rows1 + c.tiles2 * c.rows2) for lines, c in sizes]
    assert len(pixels) == 2
    assert sum(pixels) == 1009
    check(spec, noise(1009, 40))


@pytest.mark.parametrize(
    ("op", "shape", "filters"),
    [
        ("conv1d", (2, 6, 1013), (10, 6, 3)),
        ("conv3d", (2, 6, 3, 1, 103), (10, 6, 2, 1, 3)),
        ("conv2d", (2, 6, 1, 211), (10, 6, 1, 3)),
        ("conv2d", (3, 6, 1, 211), (10, 6, 1, 1)),
        ("conv_transpose1d", (1, 6, 509), (6, 10, 4)),
    ],
)
def test_convolutions_of_awkward_lengths(op: str, shape: tuple[int, ...], filters: tuple[int, ...]) -> None:
    g = Graph()
    x = g.input("x", shape)
    y = g(op, "conv", g("tanh", "before", x), weight=noise(*filters), bias=noise(10))
    y = g("add", "sum", y, g(op, "other", x, weight=noise(*filters)))
    check(g.build(g("silu", "act", y)), noise(*shape))


def test_products_of_awkward_numbers_of_rows() -> None:
    g = Graph()
    a, b = g.input("a", (3, 211, 16)), g.input("b", (3, 16, 40))
    check(g.build(g("matmul", "each", a, b)), noise(3, 211, 16), noise(3, 16, 40))
    g = Graph()
    a, b = g.input("a", (3, 211, 16)), g.input("b", (16, 40))
    check(g.build(g("matmul", "shared", a, b)), noise(3, 211, 16), noise(16, 40))


@pytest.mark.parametrize("padding", [(0, 0, 0, 0), (2, 0, 1, 0), (4, 0, 4, 0)], ids=str)
@pytest.mark.parametrize(
    ("groups", "stride", "dilation"), [(1, 1, 1), (1, 2, 1), (2, 1, 2), (8, 1, 1), (8, 2, 1)]
)
def test_columns(padding: tuple[int, ...], groups: int, stride: int, dilation: int) -> None:
    """An image of one column, alone, in a batch, in bands, with what rides in the store."""
    g = Graph()
    x = g.input("x", ("N", 8, 103, 1), (2, 8, 103, 1))
    how = {"padding": padding, "groups": groups, "stride": (stride, 1), "dilation": (dilation, 1)}
    y = g("conv2d", "a", x, weight=noise(8, 8 // groups, 5, 1), bias=noise(8), **how)
    z = g("conv2d", "b", g("relu", "r", x), weight=noise(8, 8 // groups, 5, 1), **how)
    y = g("gelu", "act", g("add", "sum", y, z))
    y = g("conv2d", "c", y, weight=noise(8, 8 // groups, 3, 1), padding=(1, 0, 1, 0), groups=groups)
    spec = g.build(y)
    check(spec, noise(2, 8, 103, 1))
    two = bslite.run(spec, np.repeat(noise(1, 8, 103, 1), 2, axis=0))
    assert two[0].tobytes() == two[1].tobytes()


def test_a_column_is_a_line() -> None:
    spec = one_op("conv2d", (1, 16, 96, 1), weight=noise(32, 16, 5, 1), padding=(2, 0, 2, 0))
    (record,) = [s.record for s in plan_of(spec, (1, 16, 96, 1)).steps if isinstance(s.record, Conv)]
    assert record.cut.rows1 > 1


@pytest.mark.parametrize("axis", [2, 3])
def test_windows_far_beyond_the_image_have_the_bits_of_the_whole_in_bands(axis: int) -> None:
    """A band of a column, taken as a line, has other rows beside it than the whole."""
    shape, kernel = [1, 256, 1, 1], [16, 256, 1, 1]
    shape[axis], kernel[axis] = 2000, 3
    far = [100 * (axis == 2), 100 * (axis == 3)]
    net = Graph()
    y = net("sigmoid", "before", net.input("x", ("N", *shape[1:]), tuple(shape)))
    weight = noise(*kernel, scale=0.1)
    y = net("conv2d", "conv", y, weight=weight, dilation=[max(1, d) for d in far], padding=[*far, *far])
    check(net.build(y), noise(*shape))


@pytest.mark.parametrize(
    ("filters", "stride", "residual"),
    [((20, 24, 5, 1, 1), 1, True), ((70, 24, 5, 1, 1), 2, False), ((20, 24, 3, 1, 3), 1, False)],
    ids=str,
)
def test_planes_are_computed_strip_by_strip(filters: tuple[int, ...], stride: int, residual: bool) -> None:
    """Where filters reach over several planes, so that their lines are near when the next is computed."""
    shape = (2, 24, 6, 76, 202)
    g = Graph()
    x = g.input("x", shape)
    params = {"weight": noise(*filters), "bias": noise(filters[0])}
    pads = (filters[2] // 2, 0, 0)
    y = g("conv3d", "conv", x, **params, stride=(stride, 1, 1), padding=pads)
    if residual:
        y = g("add", "sum", y, g("conv3d", "other", x, weight=noise(filters[0], 24, 1, 1, 1)))
    spec = g.build(g("relu", "act", y))
    plan = build_plan(simplify(spec), [shape], Machine(threads=2))
    strips = [s.record.strips for s in plan.steps if isinstance(s.record, Conv)]
    assert max(strips) > 1
    check(spec, noise(*shape))
