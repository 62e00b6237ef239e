"""Slices of convolutions: pixels that nothing reads are not made."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from plan.test_enlarged import Net, check_images
from support.noise import noise

import bslite
from bslite import reference
from bslite.passes import simplify


def part(b: Net, x: str, axis: int, start: int, stop: int | None, step: int = 1) -> str:
    return b("slice", f"part{len(b.nodes)}", x, axis=axis, start=start, stop=stop, step=step)


def transposed(b: Net, x: str, kernel: int, axes: int = 1, **attrs: Any) -> str:
    weight = noise(8, 6, *(kernel,) * axes)
    return b(f"conv_transpose{axes}d", f"big{len(b.nodes)}", x, weight=weight, bias=noise(6), **attrs)


END = None
BEYOND = 1 << 40  # any end
CUT: dict[str, Callable[[Net], str]] = {
    "causal": lambda b: part(b, b.conv(b.image("x", 8, ("L",)), 8, 5, 3, padding=6, dilation=3), 2, 0, -6),
    "behind functions": lambda b: part(
        b, b("tanh", "t", b("relu", "r", b.conv(b.image("x", 8, ("L",)), 8, 5, 3, padding=2))), 2, 1, -2
    ),
    "strided": lambda b: part(b, b.conv(b.image("x", 8, ("L",)), 8, 5, 5, padding=4, stride=2), 2, 1, -2),
    "every third": lambda b: part(b, b.conv(b.image("x", 8, ("L",)), 8, 5, 3, padding=1), 2, 1, END, 3),
    "every second of some": lambda b: part(
        b, b.conv(b.image("x", 8, ("L",)), 8, 5, 5, padding=3), 2, 0, -1, 2
    ),
    "transposed": lambda b: part(b, transposed(b, b.image("x", 8, ("L",)), 8, stride=4), 2, 2, -2),
    "more than a filter": lambda b: part(b, transposed(b, b.image("x", 8, ("L",)), 4, stride=2), 2, 5, -7),
    "rows and columns": lambda b: part(
        b, part(b, b.conv(b.image("x", 8), 8, 5, 4, 4, padding=2), 2, 0, -1), 3, 1, END
    ),
    "a transposed image": lambda b: part(
        b, b("silu", "s", transposed(b, b.image("x", 8), 3, stride=2, output_padding=1, axes=2)), 3, 1, -1
    ),
    "planes": lambda b: part(
        b, b.conv(b.image("x", 4, ("D", "H", "W")), 4, 5, 3, 3, 3, padding=2), 2, 2, BEYOND
    ),
}  # fmt: skip
KEPT: dict[str, Callable[[Net], str]] = {
    "more than its padding": lambda b: part(
        b, b.conv(b.image("x", 8, ("L",)), 8, 5, 3, padding=1), 2, 2, BEYOND
    ),
    "channels": lambda b: part(b, b.conv(b.image("x", 8, ("L",)), 8, 5, 3, padding=1), 1, 1, END),
    "backwards": lambda b: part(b, b.conv(b.image("x", 8, ("L",)), 8, 5, 3, padding=1), 2, -1, END, -1),
    "read by others": lambda b: b(
        "concat", "joined", part(b, y := b.conv(b.image("x", 8, ("L",)), 8, 5, 3, padding=1), 2, 1, END), y,
        axis=2,
    ),
    "to a fixed place": lambda b: part(b, b.conv(b.image("x", 8, ("L",)), 8, 5, 3, padding=1), 2, 0, 4),
    "every second of a transposed one": lambda b: part(
        b, transposed(b, b.image("x", 8, ("L",)), 4), 2, 0, END, 2
    ),
}  # fmt: skip


def built(make: Callable[[Net], str]) -> bslite.ModelSpec:
    """With a layer behind it, so that what is cut is no output."""
    b = Net()
    return b.build(b("leaky_relu", "end", make(b)))


@pytest.mark.parametrize("name", CUT)
def test_a_convolution_makes_what_a_slice_keeps(name: str) -> None:
    spec = built(CUT[name])
    assert "slice" not in {n.op for n in simplify(spec).nodes}
    check_images(spec)


@pytest.mark.parametrize("name", KEPT)
def test_other_slices_stay(name: str) -> None:
    spec = built(KEPT[name])
    assert "slice" in {n.op for n in simplify(spec).nodes}
    check_images(spec)


@pytest.mark.parametrize(("start", "stop", "step"), [(0, 200, 1), (0, 200, 2), (-200, END, 1), (0, 200, 3)])
@pytest.mark.parametrize("conv", [True, False])
def test_a_place_that_the_example_does_not_reach(start: int, stop: int, step: int, conv: bool) -> None:
    """Of a longer signal the slice leaves something out."""
    b = Net()
    x = b.image("x", 8, ("L",))
    made = b.conv(x, 8, 5, 3, padding=1) if conv else b("tanh", "t", x)
    spec = b.build(b("leaky_relu", "end", part(b, made, 2, start, stop, step)))
    for length in (9, 300):
        data = noise(2, 8, length)
        np.testing.assert_allclose(bslite.run(spec, data), reference.run(spec, [data])[0], atol=1e-5)


def test_a_residual_block_of_a_causal_network_is_two_layers() -> None:
    """Its activation and its sum are in their stores."""
    b = Net()
    x = b.image("x", 8, ("L",))
    first = part(b, b.conv(x, 8, 8, 3, padding=4, dilation=2), 2, 0, -4)
    second = part(b, b.conv(b("relu", "r", first), 8, 8, 3, padding=4, dilation=2), 2, 0, -4)
    spec = b.build(b("relu", "sum_r", b("add", "sum", second, x)))
    said = str(bslite.explain(spec, noise(1, 8, 40)))
    assert "relu in the store" in said
    assert "adds x in the store" in said
    assert "makes only what part" in said
    got = bslite.run(spec, noise(2, 8, 9))
    np.testing.assert_array_equal(got, bslite.run(spec, noise(2, 8, 9), layerwise=True))
