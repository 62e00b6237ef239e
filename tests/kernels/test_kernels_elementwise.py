"""The elementwise and the reduction kernels over layouts that the ops' own cases do not make."""

from typing import Any

import numpy as np
import pytest
from support.graphs import Graph, one_op
from support.kernel_checks import CHANNELS, check, ran
from support.noise import noise

import bslite
from bslite import reference
from bslite.engines.cpu.engine import prepare
from bslite.plan.cpu.elementwise import LINE
from bslite.spec import ModelSpec


@pytest.mark.parametrize("channels", CHANNELS)
@pytest.mark.parametrize("shape", [(5, 1, 1), (1, 4, 7), (1,), (1, 1, 7)])
def test_broadcast_over_an_image(channels: int, shape: tuple[int, ...]) -> None:
    shape = tuple(channels if n == 5 else n for n in shape)
    x, y = noise(2, channels, 4, 7), noise(*shape, seed=1)
    check(one_op("sub", y, x), y, x)


@pytest.mark.parametrize(
    ("op", "shape", "order"),
    [
        ("maximum", (6, 5, 3, 4), (2, 3, 1, 0)),
        *((op, (1, 1, 5, 4), (0, 1, 3, 2)) for op in ("add", "mul", "sub")),  # maps of one channel
    ],
)
def test_operands_in_other_orders(op: str, shape: tuple[int, ...], order: tuple[int, ...]) -> None:
    x, y = noise(*(shape[i] for i in order)), noise(*shape, seed=1)
    graph = Graph()
    names = graph.input("x", x.shape), graph("permute", "turned", graph.input("y", shape), order=order)
    check(graph.build(graph(op, "z", *names)), x, y)


def test_more_axes_than_loops() -> None:
    x, y = noise(2, 3, 2, 3, 2, 3, 2), noise(1, 3, 1, 3, 1, 3, 1, seed=1)
    check(one_op("sub", x, y), x, y)


def test_slices_of_wider_values() -> None:
    graph = Graph()
    x = graph.input("x", (2, 9, 5, 4))
    one = graph("slice", "one", x, axis=1, start=4, stop=5)
    rest = graph("slice", "rest", x, axis=1, start=1, stop=9, step=2)
    check(graph.build(graph("div", "z", one, rest)), noise(2, 9, 5, 4, shift=9.0))


def test_written_into_a_concat() -> None:
    graph = Graph()
    x = graph.input("x", (2, 3, 5, 4))
    parts = [graph("sub", f"z{i}", x, graph("tanh", f"t{i}", x)) for i in range(2)]
    parts.append(graph("amax", "most", x, axes=(1,), keepdim=True))
    parts.append(graph("mean", "mean", x, axes=(1,), keepdim=True))
    check(graph.build(graph("concat", "all", *parts, axis=1)), noise(2, 3, 5, 4))


@pytest.mark.parametrize(
    ("activation", "attrs"),
    [
        ("relu", {}),
        ("relu6", {}),
        ("clamp", {"low": -0.5, "high": 0.25}),
        ("mish", {}),
        ("shrink", {"lambd": 0.3, "bias": 0.1}),
        ("sqrt", {}),
    ],
)
def test_activations_ride_in_stores(activation: str, attrs: dict[str, Any]) -> None:
    graph = Graph()
    x = graph.input("x", (2, 19, 4, 7))
    y = graph("conv2d", "conv", x, weight=noise(21, 19, 3, 3, scale=0.1), padding=1)
    y = graph(activation, "first", y, **attrs)
    y = graph("sub", "difference", y, graph.input("z", (21, 1, 1)))
    spec = graph.build(graph(activation, "second", y, **attrs))
    inputs = [noise(2, 19, 4, 7), noise(21, 1, 1, seed=1)]
    from bslite.passes import fuse

    assert [layer.members for layer in fuse(spec)] == [("conv", "first"), ("difference", "second")]
    check(spec, *inputs)


def reduction(op: str, shape: tuple[int, ...], order: tuple[int, ...], **attrs: Any) -> ModelSpec:
    """One reduction of a permuted value."""
    graph = Graph()
    x = graph("permute", "turned", graph.input("x", shape), order=order)
    return graph.build(graph(op, "y", x, **attrs))


@pytest.mark.parametrize("axes", [(), (0,), (1,), (3,), (0, 3), (1, 2), (0, 2, 3)])
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 1, 0, 2), (0, 2, 3, 1)])
@pytest.mark.parametrize("op", ["sum", "logsumexp", "var", "amin"])
def test_reductions_of_other_layouts(op: str, order: tuple[int, ...], axes: tuple[int, ...]) -> None:
    check(reduction(op, (4, 33, 5, 18), order, axes=axes, keepdim=False), noise(4, 33, 5, 18, shift=1.0))


def test_more_axes_than_a_reduction_has_loops() -> None:
    shape = (2, 3, 2, 3, 2, 3, 2, 3)
    for axes in ((0, 2, 4, 6), (1, 3, 5, 7)):
        check(one_op("mean", shape, axes=axes), noise(*shape))


def test_a_variance_beside_a_large_mean() -> None:
    x = noise(3, 5000, scale=1e-2, shift=1e4)
    for axes, shape in (((1,), (3, 5000)), ((0,), (5000, 3))):
        check(one_op("var", shape, axes=axes), x.reshape(shape))


def test_one_of_a_variance_has_none() -> None:
    assert np.isnan(ran(one_op("var", (3, 1), axes=(1,)), noise(3, 1))).all()


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("op", ["cumsum", "cumprod"])
def test_running_totals_along_any_axis(op: str, exclusive: bool, reverse: bool) -> None:
    """In rows, and in lanes; whatever the order in memory. Both add in float64, in the same order."""
    how = {"exclusive": exclusive, "reverse": reverse}
    for shape in ((3, 40, 5), (2, 3, 7, 33), (21, 70), (5, 1, 4), (2, 17, 1, 3)):
        x = noise(*shape, shift=1.0)
        for axis in range(len(shape)):
            rows = np.ascontiguousarray(np.moveaxis(x, axis, -1))
            want = np.moveaxis(check(one_op(op, rows, axis=-1, **how), rows), -1, axis)
            for lies in (x, np.asfortranarray(x)):
                np.testing.assert_array_equal(ran(one_op(op, x, axis=axis, **how), lies), want)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("op", ["argmax", "argmin"])
def test_places_along_any_axis(op: str, last: bool) -> None:
    """In rows, and in lanes; whatever the order in memory; among equals, infinities and NaN."""
    for shape in ((3, 40, 5), (2, 3, 7, 33), (21, 70), (5, 1, 4), (2, 17, 1, 3)):
        x = np.round(noise(*shape, scale=2.0))
        x.reshape(-1)[::7], x.reshape(-1)[5::11], x.reshape(-1)[3::13] = np.nan, np.inf, -np.inf
        for axis in range(len(shape)):
            want = reference.run(one_op(op, x, axis=axis, last=last), [x])[0]
            for lies in (x, np.asfortranarray(x)):
                np.testing.assert_array_equal(ran(one_op(op, x, axis=axis, last=last), lies), want)


def test_first_and_last_of_equals_and_nan() -> None:
    x = np.array([[1, 3, 3, 2], [np.nan, 5, np.nan, 1], [-np.inf] * 4], np.float32)
    for op, last, want in (
        ("argmax", False, [1, 0, 0]),
        ("argmax", True, [2, 2, 3]),
        ("argmin", False, [0, 0, 0]),
        ("argmin", True, [0, 2, 3]),
    ):
        spec = one_op(op, x, axis=1, last=last)
        np.testing.assert_array_equal(ran(spec, x), want)
        np.testing.assert_array_equal(reference.run(spec, [x])[0], want)


#: Elementwise lines of few channels, where an operand is the same for each of them.
OPERANDS = {
    "mean": lambda x, few: [x, few],
    "first": lambda x, few: [few, x],
    "picked": lambda x, few: [x > 0, few, x],
    "all": lambda x, few: [few > 0, x, few[::-1].copy()],
    "one value": lambda x, few: [x > 0, few, few[:1]],
}


def steps_of(spec: Any, inputs: list[Any]) -> list[Any]:
    cells = [x.astype(np.int32) if x.dtype == bool else x for x in inputs]
    return [step.record for step in prepare(spec, cells, 2, False).plan.steps]


@pytest.mark.parametrize("operands", OPERANDS)
@pytest.mark.parametrize("channels", [2, 3, 5, 7, 12])
@pytest.mark.parametrize("lines", [(1, 96), (5, 31), (2, 7, 64), (1009,), (6,)], ids=str)
def test_lines_of_few_channels(operands: str, channels: int, lines: tuple[int, ...]) -> None:
    """The bits of each line alone, for any number of threads, whether they can be joined or not."""
    x, few = noise(*lines, channels), noise(channels)
    inputs = OPERANDS[operands](x, few)
    spec = one_op("where" if len(inputs) == 3 else "sub", *inputs)
    want = reference.run(spec, inputs, np.float32)[0]
    for threads in (1, 2):
        assert bslite.run(spec, inputs, threads=threads).tobytes() == want.tobytes()
    for record in steps_of(spec, inputs):
        assert record.loops.channels <= LINE
        assert set(record.again) <= {0, channels}
        joined = record.loops.channels // channels
        assert bool(any(record.again)) == (joined > 1)


def test_which_lines_are_joined() -> None:
    """As many as divide them, if what comes again is read several times."""
    few, one = noise(3), noise(1)

    def channels(x: Any, other: Any, op: str = "sub") -> tuple[int, ...]:
        (record,) = steps_of(one_op(op, x, other), [x, other])
        return record.loops.channels, *record.again

    assert channels(noise(96 * 16, 3), few) == (3 * 64, 0, 3, 0)
    assert channels(few, noise(96 * 16, 3)) == (3 * 64, 3, 0, 0)
    assert channels(noise(1009, 3), few) == (3, 0, 0, 0)  # a prime
    assert channels(noise(8, 3), few) == (3, 0, 0, 0)  # too few lines
    assert channels(noise(1500, 3), noise(1500, 1)) == (3, 0, 0, 0)  # another for each line
    assert channels(noise(2, 960, 3), noise(2, 1, 3)) == (3, 0, 0, 0)  # another for each image
    assert channels(noise(96, 64), noise(64)) == (64, 0, 0, 0)
    assert channels(noise(96, 3), one)[1:] == (0, 0, 0)
