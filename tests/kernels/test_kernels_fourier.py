"""Fourier transforms beyond the sample cases: any length, axis, layout; alone or in a batch; next to NaN."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.check import Array, assert_three_way
from support.graphs import Graph, one_op
from support.kernel_checks import ran
from support.noise import noise

import bslite
from bslite import ModelSpec, reference
from bslite.cli.peer.ops import TORCH_OPS
from bslite.engines.cpu.detect import detect
from bslite.ops.fourier import LARGEST_PRIME
from bslite.passes.complex import complex_in_parts
from bslite.plan import build_plan
from bslite.plan.cpu.ops.radices import as_matrix, padded_of, radices_of

#: Attributes of the kinds of transforms, but for lengths.
KINDS: dict[str, dict[str, Any]] = {
    "complex": {},
    "inverse": {"inverse": True, "scale": 0.25},
    "real": {"source": "real"},
    "one side": {"source": "real", "onesided": True},
    "real part": {"real": True},
    "half": {"source": "half", "real": True, "inverse": True},
    "half, forwards": {"source": "half", "real": True},
}
#: Lengths of one pass and of several, of rows that are matrices, of primes, of a chirp.
LENGTHS = (2, 8, 12, 60, 121, 256, 320, 1000, 1155, 151 * 2, 2**12)


def signals(shape: tuple[int, ...], axis: int, points: int, kind: dict[str, Any]) -> Array:
    """Noise of that shape, with ``points`` along the axis, at most those that the kind reads."""
    points = points // 2 + 1 if kind.get("source") == "half" else points
    shape = (*shape[:axis], points, *shape[axis:])
    return noise(*shape, *(() if kind.get("source") == "real" else (2,)))


def check(spec: ModelSpec, x: Array) -> Array:
    """Runs it, and compares with the truth: as near as torch, where it is but a transform."""
    got = ran(spec, x)
    exact = reference.run(spec, [x], np.float64)[0]
    if len(spec.nodes) == 1:
        peer = TORCH_OPS["fourier"](torch.from_numpy(x), **spec.nodes[0].attrs).numpy()
        assert_three_way(got, peer, exact, least=2.0**-24)
    else:
        assert np.linalg.norm(got - exact) <= 4e-7 * np.linalg.norm(exact)
    return got


@settings(deadline=None, max_examples=120)
@given(data=st.data(), kind=st.sampled_from(sorted(KINDS)), length=st.integers(1, 700))
def test_any_length_along_any_axis(data: st.DataObject, kind: str, length: int) -> None:
    around = tuple(data.draw(st.lists(st.sampled_from([1, 2, 3, 7, 16, 21]), min_size=1, max_size=3)))
    axis = data.draw(st.integers(0, len(around)))
    points = data.draw(st.one_of(st.just(length), st.integers(1, length)))
    x = signals(around, axis, points, KINDS[kind])
    check(one_op("fourier", x, axis=axis, length=length, **KINDS[kind]), x)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", LENGTHS)
def test_alone_or_in_a_batch(length: int, kind: str) -> None:
    x = signals((37,), 1, length, KINDS[kind])
    g = Graph()
    g("fourier", "y", g.input("x", ("N", *x.shape[1:])), axis=1, length=length, **KINDS[kind])
    spec = g.build("y")
    whole = check(spec, x)
    for i in (0, 20, 36):
        assert bslite.run(spec, x[i : i + 1]).tobytes() == whole[i : i + 1].tobytes()


@pytest.mark.parametrize("real", [False, True])
@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize("length", LENGTHS)
def test_a_nan_stays_in_its_signal(length: int, axis: int, real: bool) -> None:
    x = noise(2, *((length, 19) if axis == 1 else (19, length)), 2)
    spec = one_op("fourier", x, axis=axis, length=length, real=real)
    clean = bslite.run(spec, x)
    signal = (1, slice(None), 5) if axis == 1 else (1, 5)
    x[signal][length // 3, 0] = np.nan
    got = bslite.run(spec, x)
    assert np.isnan(got[signal]).any()
    got[signal] = clean[signal] = 0.0
    assert got.tobytes() == clean.tobytes()


@settings(deadline=None, max_examples=60)
@given(data=st.data(), kind=st.sampled_from(sorted(KINDS)), length=st.sampled_from([1, 6, 40, 67, 480]))
def test_of_views(data: st.DataObject, kind: str, length: int) -> None:
    """Axes in another order, mirrored, with gaps, repeated."""
    along = data.draw(st.integers(0, 3))
    x = signals((2, 5, 18), along, length, KINDS[kind])
    rank, g = x.ndim - (KINDS[kind].get("source") != "real"), Graph()
    order = data.draw(st.permutations(range(rank)))
    y = g("permute", "turned", g.input("x", x.shape), order=[*order, *range(rank, x.ndim)])
    axis = next(i for i, a in enumerate(order) if a == along)
    cut = data.draw(st.integers(0, rank - 1))
    if cut != axis and x.shape[order[cut]] > 1:
        y = g("slice", "cut", y, axis=cut, start=-1, step=data.draw(st.sampled_from([-1, -2])))
    if cut != axis and data.draw(st.booleans()):
        one = g("slice", "one", y, axis=cut, start=0, stop=1)
        sizes = [3 if i == cut else -1 for i in range(x.ndim)]
        y = g("expand", "repeated", one, shape=sizes)
    g("fourier", "y", y, axis=axis, length=length, **KINDS[kind])
    check(g.build("y"), x)


def test_around_more_axes_than_the_kernels_walk() -> None:
    for length in (12, 512):
        x, g = noise(3, 2, 5, 2, 3, length, 2), Graph()
        y = g("permute", "turned", g.input("x", x.shape), order=(4, 1, 0, 3, 2, 5, 6))
        g("fourier", "y", y, axis=5, length=length)
        check(g.build("y"), x)


@pytest.mark.parametrize("read_twice", [False, True])
def test_windows_of_a_line_are_read_where_they_lie(read_twice: bool) -> None:
    x, g = noise(2, 1, 1, 500), Graph()
    y = g("unfold", "frames", g.input("x", x.shape), kernel=(1, 40), stride=(1, 7))
    z = g("fourier", "y", y, axis=1, length=48, source="real", onesided=True, window=noise(40))
    spec = g.build(z, g("relu", "r", y)) if read_twice else g.build(z)
    steps = build_plan(spec, [x.shape], detect(2)).steps
    assert any(step.layers == ("frames",) for step in steps) == read_twice  # a copy
    made = bslite.run(spec, x)
    assert_three_way(
        made[0] if read_twice else made,
        *(reference.run(spec, [x], d)[0] for d in (np.float32, np.float64)), least=2.0**-24,
    )  # fmt: skip


def test_long_signals() -> None:
    for length in (2**17, 3 * 5 * 7 * 11 * 13, 2**11 * 17 + 1):
        x = noise(1, length)
        check(one_op("fourier", x, axis=1, length=length, source="real", onesided=True), x)
    x = noise(2**15, 7, 2)
    check(one_op("fourier", x, axis=0, length=2**15), x)


@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_as_products(kind: str, axis: int) -> None:
    """At any batch: a free size stays free."""
    x, g = signals((3, 4), axis, 29, KINDS[kind]), Graph()
    y = g.input("x", ("N", *x.shape[1:]))
    g("fourier", "y", y, axis=axis, length=30, window=noise(x.shape[axis]), **KINDS[kind])
    spec = g.build("y")
    parted = complex_in_parts(spec)
    assert "fourier" not in {n.op for n in parted.nodes}
    for inputs in (x, np.concatenate([x, x])):
        want, got = (reference.run(s, [inputs], np.float64)[0] for s in (spec, parted))
        assert np.linalg.norm(got - want) <= 2.0**-23 * np.linalg.norm(want)  # matrices are kept in float32


def test_a_matrix_along_a_free_axis_is_refused() -> None:
    g = Graph()
    g("fourier", "y", g.input("x", (3, "L"), (3, 20)), axis=1, length=64, source="real")
    with pytest.raises(bslite.UnsupportedError, match="y: a transform, as a matrix, along a free axis"):
        complex_in_parts(g.build("y"))


def test_a_product_that_nobody_wants() -> None:
    spec = one_op("fourier", (1, 5000), axis=1, length=5000, source="real")
    with pytest.raises(bslite.UnsupportedError, match=r"layer: a transform of 5000 points"):
        complex_in_parts(spec)


@pytest.mark.parametrize("registers", [16, 32])
def test_lengths_are_taken_apart(registers: int) -> None:
    for points in [*range(1, 3000), 2**20, 44100, 16001]:
        found = radices_of(points, registers)
        assert np.prod(found, dtype=np.int64) == points
        assert (8 in found) <= (registers == 32)
        padded = padded_of(points, registers)
        assert bool(padded) == (max(found, default=1) > LARGEST_PRIME)
        if padded:
            assert padded >= 2 * points - 1
            assert max(radices_of(padded, registers)) <= 8
        matrix = as_matrix(points, 16, registers)
        assert matrix is None or matrix.high * matrix.low == points


@pytest.mark.parametrize("conj", [False, True])
def test_products_alone_or_in_a_batch(conj: bool) -> None:
    for fixed, free in (((1, 2), (37, 2)), ((1, 1, 2), (37, 20, 2)), ((1, 20, 2), (37, 20, 2))):
        x, g = noise(*free), Graph()
        number = g("constant", "number", value=noise(*fixed))
        for name, operands in (("a", (number, "x")), ("b", ("x", number))):
            if name == "a":
                g.input("x", ("N", *free[1:]), free)
            g("complex_mul", name, *operands, conj=conj)
        spec = g.build("a", "b")
        for i, whole in enumerate(bslite.run(spec, x)):
            for row in range(0, 37, 3):
                assert bslite.run(spec, x[row : row + 1])[i].tobytes() == whole[row : row + 1].tobytes()


def test_products_over_many_axes() -> None:
    x, z = noise(1, 3, 1, 5, 1, 1, 2), noise(2, 1, 4, 1, 6, 1, 2)
    spec = one_op("complex_mul", x, z)
    want = reference.run(spec, [x, z], np.float64)[0]
    assert np.linalg.norm(bslite.run(spec, [x, z]) - want) <= 2e-7 * np.linalg.norm(want)
