"""Channels that become pixels: made in the order in which pixels lie, and copied to where they are read."""

import math
from typing import Any

import numpy as np
import pytest
from plan.test_enlarged import Net, check_images
from support.check import rel_l2
from support.noise import noise
from support.plans import plan_of

import bslite
from bslite import reference
from bslite.kernels.contracts.cpu.moves import Copy, Transpose
from bslite.passes import simplify
from bslite.passes.shuffled import pixels_outermost


def conv_shuffled(
    b: Net, channels: int, *factors: int, k: int = 3, size: Any = (7, 5), after: Any = None, **attrs: Any
) -> str:
    axes, outputs = len(factors), channels * math.prod(factors)
    made = b.conv(b.image("x", 8, size), 8, outputs, *(k,) * axes, padding=k // 2, **attrs)
    made = after(b, made) if after else made
    split = b.add("reshape", "split", made, shape=(0, channels, *factors, *size))
    order = (0, 1, *(axis for i in range(axes) for axis in (2 + axes + i, 2 + i)))
    turned = b.add("permute", "turned", split, order=order)
    larger = (n * f for n, f in zip(size, factors, strict=True))
    return b.add("reshape", "image", turned, shape=(0, channels, *larger))


def prelu(b: Net, y: str) -> str:
    return b("prelu", "active", y, b("constant", "slopes", value=noise(80, 1, 1)))


TURNED: dict[str, Any] = {
    "doubled": lambda b: conv_shuffled(b, 20, 2, 2),
    "three channels": lambda b: conv_shuffled(b, 3, 4, 4),
    "one way more": lambda b: conv_shuffled(b, 16, 1, 3, k=1),
    "no bias": lambda b: conv_shuffled(b, 5, 3, 2, bias=False),
    "an activation between": lambda b: conv_shuffled(b, 16, 2, 2, after=lambda b, y: b.add("relu", "r", y)),
    "signal": lambda b: conv_shuffled(b, 6, 4, size=(9,)),
    "volume": lambda b: conv_shuffled(b, 4, 2, 1, 2, size=(3, 4, 5)),
    "read by a convolution": lambda b: b.conv(conv_shuffled(b, 20, 2, 2), 20, 6, 3, 3, padding=1),
    "joined with others": lambda b: b.conv(
        b.add("concat", "cat", conv_shuffled(b, 20, 2, 2), b.image("y", 4, (14, 10)), axis=1),
        24, 6, 3, 3, padding=1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TURNED)
def test_channels_come_by_pixel(name: str) -> None:
    b = Net("shuffled")
    spec = b.build(TURNED[name](b))
    simple = simplify(spec)
    (before,), (after,) = ([n for n in s.nodes if n.op == "permute"] for s in (spec, simple))
    assert before.attrs["order"] != after.attrs["order"]
    assert [n.name for n in simple.nodes] == [n.name for n in spec.nodes]
    check_images(spec)
    xs = [noise(*i.example, seed=seed) for seed, i in enumerate(spec.inputs)]
    plain = b.build(*spec.outputs, "conv0")  # a convolution that is an output stays as it is
    assert pixels_outermost(plain) is plain
    np.testing.assert_array_equal(bslite.run(spec, xs), bslite.run(plain, xs)[0])


def heads(b: Net) -> str:
    """Of an attention over pixels: their channels are axes of their own, and stay so."""
    x = b.image("x", 8, (4, 4))
    turned = []
    for name in "qkv":
        split = b.add("reshape", f"{name}/split", b.conv(x, 8, 32, 1, 1), shape=(0, 4, 8, 16))
        turned.append(b.add("permute", name, split, order=(0, 1, 3, 2)))
    return b.add("attention", "attention", *turned)


LEFT: dict[str, Any] = {
    "heads": heads,
    "planes of a volume as one axis": lambda b: b.add(
        "permute", "t",
        b.add("reshape", "s", b.conv(b.image("x", 8, (2, 3, 4)), 8, 32, 1, 1, 1), shape=(0, 16, 2, 24)),
        order=(0, 1, 3, 2),
    ),
    "pixels that stay apart": lambda b: b.add(
        "permute", "t",
        b.add("reshape", "s", b.conv(b.image("x", 8, (4, 4)), 8, 32, 1, 1), shape=(0, 8, 2, 2, 4, 4)),
        order=(0, 1, 4, 2, 5, 3),
    ),
    "groups": lambda b: conv_shuffled(b, 20, 2, 2, groups=2),
    "slopes by channel": lambda b: conv_shuffled(b, 20, 2, 2, after=prelu),
    "one channel": lambda b: conv_shuffled(b, 1, 3, 3),
    "an input": lambda b: b.add(
        "permute", "t", b.add("reshape", "s", b.image("x", 32, (7, 5)), shape=(0, 8, 2, 2, 7, 5)),
        order=(0, 1, 4, 2, 5, 3),
    ),
    "other elements": lambda b: b.add(
        "permute", "t",
        b.add("reshape", "s", b.conv(b.image("x", 8, (4, 4)), 8, 8, 1, 1), shape=(0, 4, 2, 2, 2, 4)),
        order=(0, 1, 4, 2, 5, 3),
    ),
    "read by others, too": lambda b: b.add(
        "add", "sum", conv_shuffled(b, 4, 2, 2, size=(1, 1), k=1),
        b.add("reshape", "other", b.nodes[1].name, shape=(0, 4, 2, 2)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LEFT)
def test_other_channels_stay(name: str) -> None:
    b = Net("left")
    spec = b.build(LEFT[name](b))
    assert pixels_outermost(spec) is spec
    check_images(spec)


def test_pixels_go_straight_to_where_they_are_read() -> None:
    """In one copy, of runs of channels, beside the zeros that the convolution needs."""
    b = Net("straight")
    spec = simplify(b.build(b.conv(conv_shuffled(b, 20, 2, 2), 20, 16, 3, 3, padding=1)))
    steps = [step for step in plan_of(spec, 1).steps if "image" in step.layers]
    copies = [step.record for step in steps if isinstance(step.record, Copy | Transpose)]
    assert [type(record) for record in copies] == [Copy]
    assert copies[0].run == 40


@pytest.mark.parametrize("size", [(8, 512), (2, 48)])
def test_lines_of_another_length_are_no_joins(size: tuple[int, int]) -> None:
    """A line of the result may be half a line of what is read."""
    b, (height, width) = Net("lines"), size
    made = b.conv(b.image("x", 4, size), 4, 16, 3, 3, padding=1)
    around = b.conv(made, 16, 3, 3, 3, padding=1)  # for whose zeros the lines lie apart
    lines = b.add("reshape", "lines", made, shape=(0, 16, 2 * height, width // 2))
    spec = b.build(around, b.conv(lines, 16, 5, 3, 3, padding=1))
    x = noise(*spec.inputs[0].example)
    for found, right in zip(bslite.run(spec, x), reference.run(spec, [x], np.float64), strict=True):
        assert rel_l2(found, right) < 1e-6
