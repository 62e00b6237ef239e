"""Movement on the engine where the sample cases do not reach: many axes, ties, wrong indices, overflow."""

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.graphs import Graph, one_op
from support.noise import noise

import bslite
from bslite import InputError
from bslite.engines.cpu.detect import detect
from bslite.kernels.cpu.vector.simd import LANES
from bslite.passes import simplify
from bslite.plan import build_plan
from bslite.plan.shared.cuts import pieces


def ran(op: str, *inputs: Any, **attrs: Any) -> Any:
    """The engine's answer, the same for one thread and for two."""
    spec = one_op(op, *inputs, **attrs)
    got = bslite.run(spec, list(inputs), threads=2)
    assert got.tobytes() == bslite.run(spec, list(inputs), threads=1).tobytes()
    return got


def kernels(spec: bslite.ModelSpec, *shapes: tuple[int, ...]) -> list[str]:
    """Those of the steps of its plan for two threads."""
    return [step.kernel for step in build_plan(simplify(spec), list(shapes), detect(2)).steps]


@settings(deadline=None, max_examples=30)
@given(order=st.permutations(range(9)))
def test_copies_over_nine_axes(order: list[int]) -> None:
    x = np.arange(3 * 2**7 * 5, dtype=np.float32).reshape(2, 2, 3, 2, 2, 5, 2, 2, 2)
    np.testing.assert_array_equal(ran("permute", x, order=order), x.transpose(order))


@settings(deadline=None, max_examples=200)
@given(data=st.data(), shape=st.lists(st.sampled_from([1, 2, 3, 4, 5, 8, 17, 33]), min_size=2, max_size=5))
def test_copies_of_lines_and_squares(shape: list[int], data: st.DataObject) -> None:
    """Runs of any length, steps of any length between them."""
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    order = data.draw(st.permutations(range(len(shape))))
    y = x.transpose(order)
    starts = [data.draw(st.integers(0, n - 1)) for n in y.shape]
    g = Graph()
    g.input("x", shape)
    last = g("permute", "turned", "x", order=order)
    for axis, start in enumerate(starts):
        last = g("slice", f"cut {axis}", last, axis=axis, start=start)
    np.testing.assert_array_equal(bslite.run(g.build(last), x), y[tuple(slice(n, None) for n in starts)])


@pytest.mark.parametrize("size", [1, 2, 15, 16, 17, 40, 70])
@pytest.mark.parametrize("axes", [(2,), (1,), (1, 2)])
def test_mirrored_axes(axes: tuple[int, ...], size: int) -> None:
    x, g = noise(3, 5, size), Graph()
    last = g.input("x", x.shape)
    for axis in axes:
        last = g("slice", f"mirrored {axis}", last, axis=axis, start=-1, step=-1)
    np.testing.assert_array_equal(bslite.run(g.build(last), x), np.flip(x, axes))


@pytest.mark.parametrize("pixels", [LANES // 2, LANES, 3 * LANES + 5])
@pytest.mark.parametrize("planes", range(2, LANES))
def test_planes_to_pixels_and_back(planes: int, pixels: int) -> None:
    for order, shape in (((0, 2, 1), (3, planes, pixels)), ((1, 2, 0), (planes, 2, pixels))):
        x = noise(*shape)
        spec = one_op("permute", x, order=order)
        assert kernels(spec, x.shape) == ["interleave"]
        made = ran("permute", x, order=order)
        np.testing.assert_array_equal(made, x.transpose(order))
        np.testing.assert_array_equal(ran("permute", made, order=np.argsort(order).tolist()), x)


@pytest.mark.parametrize("step", [2, 3])
@pytest.mark.parametrize("size", [LANES, 2 * LANES + 1, 6 * LANES - 1, 6 * LANES])
def test_every_second_or_third(size: int, step: int) -> None:
    x = noise(4, size)
    got = ran("slice", x, axis=1, start=step - 1, step=step)
    np.testing.assert_array_equal(got, x[:, step - 1 :: step])


def test_pixels_beside_others_in_a_concat() -> None:
    """Cells of other pixels are written before, and stay."""
    parts = [noise(n, 2 * LANES + 3) for n in (1, 2)] if LANES > 3 else [noise(1, 11), noise(1, 11)]
    g = Graph()
    turned = [
        g("permute", f"turned {i}", g.input(f"x{i}", p.shape), order=(1, 0)) for i, p in enumerate(parts)
    ]
    joined = g("concat", "joined", *turned, axis=1)
    spec = g.build(joined)
    assert kernels(spec, *(p.shape for p in parts)) == ["interleave", "interleave"]
    want = np.concatenate([p.T for p in parts], 1)
    np.testing.assert_array_equal(bslite.run(spec, parts), want)


@pytest.mark.parametrize("shape", [(2, LANES, LANES), (1, 3 * LANES + 1, LANES + 3), (3, 40, 70)])
@pytest.mark.parametrize("axis", [1, 2])
def test_turned_by_a_quarter(shape: tuple[int, int, int], axis: int) -> None:
    """Rows that run backwards in the source go by squares of registers, too."""
    x, g = noise(*shape), Graph()
    mirrored = g("slice", "mirrored", g.input("x", shape), axis=axis, start=-1, step=-1)
    spec = g.build(g("permute", "turned", mirrored, order=(0, 2, 1)))
    assert kernels(spec, shape) == ["transpose"]
    np.testing.assert_array_equal(bslite.run(spec, x), np.flip(x, axis).transpose(0, 2, 1))


@settings(deadline=None, max_examples=50)
@given(
    shape=st.lists(st.integers(2, 4), min_size=1, max_size=6),
    mode=st.sampled_from(["reflect", "edge", "wrap", "constant"]),
    data=st.data(),
)
def test_pads_of_any_rank(shape: list[int], mode: str, data: st.DataObject) -> None:
    pads = [data.draw(st.integers(-1, n - 1)) for n in shape + shape]
    assume(all(n + a + b >= 1 for n, a, b in zip(shape, pads, pads[len(shape) :], strict=False)))
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    spec = one_op("pad", x, pads=pads, mode=mode)
    np.testing.assert_array_equal(bslite.run(spec, x), bslite.run(spec, x, backend="reference"))


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30))
def test_pieces_put_together_are_the_sources(sources: list[int]) -> None:
    found = pieces(sources)
    assert [p.start + k * p.step for p in found for k in range(p.size)] == sources
    assert [p.at for p in found] == list(np.cumsum([0, *(p.size for p in found)])[:-1])


X = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("index", [3, -4, 2**31 - 1])
@pytest.mark.parametrize(
    ("op", "shape", "updates"),
    [
        ("gather_elements", (2, 4), None),
        ("gather_nd", (2, 1), None),
        ("scatter_elements", (2, 4), (2, 4)),
        ("scatter_nd", (2, 1), (2, 4)),
    ],
)
def test_an_index_out_of_range_is_an_error(
    op: str, shape: Any, updates: Any, index: int, backend: str
) -> None:
    indices = np.zeros(shape, np.int64)
    indices[1, 0] = index
    inputs = [X, indices] + ([np.ones(updates, np.float32)] if updates else [])
    with pytest.raises(InputError, match=rf"layer 'layer': index {index} is out of range"):
        bslite.run(one_op(op, *inputs), inputs, backend=backend)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("index", [5, -1])
def test_one_hot_refuses_if_it_is_asked_to(index: int, backend: str) -> None:
    x = np.array([0, index])
    with pytest.raises(InputError, match=rf"layer 'layer': index {index} is out of range for depth 5"):
        bslite.run(one_op("one_hot", x, depth=5, strict=True), x, backend=backend)


def test_an_integer_that_overflows_is_an_error() -> None:
    x, indices = np.array([2**31 - 1, 0]), np.array([0])
    spec = one_op("scatter_elements", x, indices, indices, reduction="add")
    with pytest.raises(InputError, match="layer 'layer': 2147483648 is beyond the 32 bits"):
        bslite.run(spec, [x, indices, np.array([1])])


def test_of_several_updates_to_one_place_the_last_stays() -> None:
    x, indices = np.zeros(3, np.float32), np.array([1, 1, 2, 1])
    np.testing.assert_array_equal(
        ran("scatter_elements", x, indices, np.arange(4, dtype=np.float32)), [0, 3, 2]
    )


def test_what_broadcasts_or_mirrors_is_not_copied() -> None:
    g = Graph()
    y = g("expand", "wide", g.input("x", (2, 1, 8)), shape=(2, 5, 8))
    spec = g.build(g("relu", "relu", g("slice", "mirrored", y, axis=0, start=-1, step=-1)))
    plan = build_plan(spec, [(2, 1, 8)], detect(1))
    assert [s.kernel for s in plan.steps] == ["elementwise"]
    v = noise(2, 1, 8)
    want = np.maximum(np.broadcast_to(v, (2, 5, 8))[::-1], 0)
    np.testing.assert_array_equal(bslite.run(spec, v), want)


def test_a_concat_of_many_inputs() -> None:
    """As of the slices that ``Unfold`` becomes in an ONNX file."""
    graph = Graph()
    x = graph.input("x", (2, 3, 1501))
    parts = [graph("slice", f"s{i}", x, axis=2, start=i, stop=i + 2) for i in range(1500)]
    spec = graph.build(graph("concat", "joined", *parts, axis=2))
    given = noise(2, 3, 1501)
    wanted = np.lib.stride_tricks.sliding_window_view(given, 2, axis=2).reshape(2, 3, 3000)
    np.testing.assert_array_equal(bslite.run(spec, given), wanted)
