"""Convolutions of enlarged images read the small ones: the same results, of fewer products."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from support.graphs import Graph
from support.kernel_checks import check
from support.noise import noise

import bslite
from bslite.cache import Derived
from bslite.passes import simplify
from bslite.passes.enlarged import fold_enlargements
from bslite.spec import ModelSpec


class Net(Graph):
    """Builds models of images of ``H`` x ``W`` pixels."""

    def image(self, name: str, channels: int, size: tuple[int | str, ...] = ("H", "W")) -> str:
        example = tuple(n if isinstance(n, int) else {"H": 7, "W": 5, "L": 9, "D": 3}[n] for n in size)
        return self.input(name, ("N", channels, *size), (2, channels, *example))

    def conv(self, x: str, c: int, k: int, *kernel: int, bias: bool = True, **attrs: Any) -> str:
        seed = len(self.nodes)
        given = {"weight": noise(k, c // attrs.get("groups", 1), *kernel, seed=seed)}
        if bias:
            given["bias"] = noise(k, seed=seed + 1)
        return self(f"conv{len(kernel)}d", f"conv{seed}", x, **given, **attrs)

    def doubled(self, x: str, scale: Any = 2) -> str:
        return self.add("upsample", f"up{len(self.nodes)}", x, mode="nearest", scale=scale)


def decoder(b: Net, up: int = 40, kernel: int = 3, size: Any = (7, 5)) -> str:
    """An enlarged value beside two that are not, as in a U-Net, with a batch norm and an activation."""
    skips = [b.image(name, c, tuple(2 * n for n in size)) for name, c in (("a", 8), ("c", 3))]
    joined = b.add("concat", "cat", skips[0], b.doubled(b.image("x", up, size)), skips[1], axis=1)
    made = b.conv(joined, up + 11, 12, kernel, kernel, padding=kernel // 2)
    for role, array in (("weight", 1), ("bias", 0), ("running_mean", 0.3), ("running_var", 2)):
        b.params[f"bn.{role}"] = np.full(12, array, np.float32)
    norm = b.add(
        "batch_norm", "bn", made, params={r.removeprefix("bn."): r for r in b.params if r[:2] == "bn"}
    )
    return b.add("relu", "relu", norm)


CASES = {
    "3x3": lambda b: b.conv(b.doubled(b.image("x", 16)), 16, 20, 3, 3, padding=1),
    "no padding, no bias": lambda b: b.conv(b.doubled(b.image("x", 16)), 16, 5, 3, 3, bias=False),
    "padding to the edge of the filter": lambda b: b.conv(
        b.doubled(b.image("x", 16)), 16, 5, 3, 4, padding=(2, 1, 0, 3)
    ),
    "three times and twice": lambda b: b.conv(b.doubled(b.image("x", 16), (3, 2)), 16, 9, 3, 5, padding=1),
    "four times, even filter": lambda b: b.conv(b.doubled(b.image("x", 16), 4), 16, 9, 2, 4, padding=1),
    "rows alone": lambda b: b.conv(b.doubled(b.image("x", 24), (2, 1)), 24, 9, 3, 3, padding=1),
    "groups": lambda b: b.conv(b.doubled(b.image("x", 48)), 48, 9, 3, 3, padding=1, groups=3),
    "to a size": lambda b: b.conv(
        b.add("upsample", "up", b.image("x", 16, (7, 5)), mode="nearest", size=(14, 15)), 16, 4, 3, 3
    ),
    "signal": lambda b: b.conv(
        b.add("resize", "up", b.image("x", 64, ("L",)), mode="nearest", axes=(2,), scales=(4.0,),
              coordinates="asymmetric", rounding="floor"),
        64, 6, 7, padding=3,
    ),
    "volume": lambda b: b.conv(
        b.add("resize", "up", b.image("x", 8, ("D", "H", "W")), mode="nearest", axes=(2, 3, 4),
              scales=(2.0, 2.0, 2.0)),
        8, 6, 3, 3, 3, padding=1,
    ),
    "read by others, too": lambda b: b.add(
        "add", "sum", (up := b.doubled(b.image("x", 16))), b.conv(up, 16, 16, 3, 3, padding=1)
    ),
    "one after the other": lambda b: b.conv(
        b.doubled(b.conv(b.doubled(b.image("x", 16)), 16, 20, 3, 3, padding=1)), 20, 3, 3, 3, padding=1
    ),
}  # fmt: skip


def built(case: Any) -> ModelSpec:
    b = Net("net")
    return b.build(case(b))


def check_images(spec: ModelSpec) -> None:
    """Right, and with the same bits however it is cut; each image is what it is alone."""
    xs = [noise(*i.example, seed=seed) for seed, i in enumerate(spec.inputs)]
    np.testing.assert_array_equal(bslite.run(spec, [x[:1] for x in xs]), check(spec, *xs)[:1])


@pytest.mark.parametrize("name", CASES)
def test_small_images_are_read(name: str) -> None:
    spec = built(CASES[name])
    simple = simplify(spec)
    assert [n for n in simple.nodes if n.op.startswith("conv_transpose")]
    assert not [n for n in simple.nodes if n.op.startswith("conv") and "transpose" not in n.op]
    assert {n.name for n in spec.nodes} >= {n.name for n in simple.nodes}
    check_images(spec)


def test_a_concatenation_becomes_a_sum() -> None:
    b = Net("decoder")
    spec = b.build(decoder(b))
    simple = simplify(spec)
    assert [n.op for n in simple.nodes] == ["concat", "conv2d", "conv_transpose2d", "add", "relu"]
    assert simple.nodes[2].inputs == ("x",)
    check_images(spec)


def test_two_of_one_scale_are_one_layer() -> None:
    b = Net("two")
    x, y, z = b.image("x", 24), b.image("y", 8), b.image("z", 24)
    joined = b.add("concat", "cat", b.doubled(x), b.doubled(y), b.doubled(z), axis=1)
    spec = b.build(b.conv(joined, 56, 8, 3, 3, padding=1))
    simple = simplify(spec)
    assert [n.op for n in simple.nodes] == ["concat", "conv_transpose2d"]
    assert [len(n.inputs) for n in simple.nodes if n.op == "concat"] == [3]
    check_images(spec)


POINTS: dict[str, Any] = {
    "nearest": lambda b: b.conv(b.doubled(b.image("x", 64)), 64, 70, 1, 1),
    "nearest, of any factor": lambda b: b.conv(b.doubled(b.image("x", 80), 1.7), 80, 4, 1, 1, bias=False),
    "bilinear": lambda b: b.conv(
        b.add("upsample", "up", b.image("x", 64), mode="bilinear", scale=2), 64, 5, 1, 1
    ),
    "corners, to a size": lambda b: b.conv(
        b.add("upsample", "up", b.image("x", 64, (7, 5)), mode="bilinear", size=(29, 31), align_corners=True),
        64,
        5,
        1,
        1,
    ),
    "from one pixel, in groups": lambda b: b.conv(
        b.add("upsample", "up", b.image("x", 128, (1, 1)), mode="bilinear", size=(9, 8)),
        128,
        6,
        1,
        1,
        groups=2,
    ),
    "signal": lambda b: b.conv(
        b.add("resize", "up", b.image("x", 64, ("L",)), mode="linear", axes=(2,), scales=(4.0,)), 64, 6, 1
    ),
    "one vector for all": lambda b: b.conv(
        b.add("expand", "up", b.image("x", 64, (1,)), shape=(-1, 64, 31)), 64, 6, 1
    ),
    "repeated side by side": lambda b: b.conv(
        b.add("tile", "up", b.image("x", 64), repeats=(1, 1, 2, 3)), 64, 6, 1, 1
    ),
}


@pytest.mark.parametrize("name", POINTS)
def test_single_pixels_are_enlarged_afterwards(name: str) -> None:
    b = Net("points")
    spec = b.build(POINTS[name](b))
    simple = simplify(spec)
    assert simple.nodes[0].op.startswith("conv")
    assert simple.nodes[0].inputs == ("x",)
    check_images(spec)


def test_a_concatenation_of_many_sizes_becomes_a_sum() -> None:
    """As the head of SegFormer (arXiv 2105.15203, section 3.2) has it."""
    b = Net("head")
    values = [b.image(f"x{i}", 70, (8 // 2**i, 16 // 2**i)) for i in range(4)]
    large = [
        b.add("upsample", f"up{i}", v, mode="bilinear", size=(8, 16)) for i, v in enumerate(values[1:], 1)
    ]
    spec = b.build(b.conv(b.add("concat", "cat", *large, values[0], axis=1), 280, 8, 1, 1))
    simple = simplify(spec)
    assert {n.inputs for n in simple.nodes if n.op == "conv2d"} == {(f"x{i}",) for i in range(4)}
    assert [n.op for n in simple.nodes if n.op != "conv2d"] == ["upsample", "add"] * 3
    check_images(spec)


def test_one_vector_beside_many() -> None:
    """As PointNet (arXiv 1612.00593, figure 2) has it: what is known of all points, beside each of them."""
    b = Net("points")
    whole, each = b.image("x", 64, (1,)), b.image("y", 20, (31,))
    joined = b.add("concat", "cat", each, b.add("expand", "up", whole, shape=(-1, 64, 31)), axis=1)
    spec = b.build(b.add("relu", "relu", b.conv(joined, 84, 40, 1)))
    simple = simplify(spec)
    assert {n.inputs for n in simple.nodes if n.op == "conv1d"} == {("x",), ("y",)}
    check_images(spec)


@pytest.mark.parametrize("axis", [-1, 3])
def test_features_of_pairs(axis: int) -> None:
    """As relation networks (arXiv 1706.01427, equation 1) have them: each object beside each other one."""
    b = Net("pairs")
    x, y = b.input("x", ("N", 6, 1, 64), (2, 6, 1, 64)), b.input("y", ("N", 1, 6, 64), (2, 1, 6, 64))
    pairs = [b.add("expand", f"{v}/all", v, shape=(-1, 6, 6, 64)) for v in (x, y)]
    question = b.input("q", ("N", 6, 6, 5), (2, 6, 6, 5))
    joined = b.add("concat", "cat", pairs[0], question, pairs[1], axis=axis)
    made = b("linear", "linear", joined, weight=noise(40, 133), bias=noise(40, seed=1))
    spec = b.build(b.add("relu", "relu", made))
    simple = simplify(spec)
    assert {n.inputs for n in simple.nodes if n.op == "linear"} == {("x",), ("y",), ("q",)}
    assert "concat" not in [n.op for n in simple.nodes]
    check_images(spec)


def test_an_enlarged_value_alone_before_a_linear_layer() -> None:
    b = Net("alone")
    wide = b.add("tile", "wide", b.input("x", ("N", 3, 64), (2, 3, 64)), repeats=(1, 4, 1))
    spec = b.build(b("linear", "linear", wide, weight=noise(8, 64)))
    assert [n.op for n in simplify(spec).nodes] == ["linear", "tile"]
    check_images(spec)


LEFT: dict[str, Any] = {
    "bilinear": lambda b: b.conv(
        b.add("upsample", "up", b.image("x", 16), mode="bilinear", scale=2), 16, 4, 3, 3, padding=1
    ),
    "by a fraction": lambda b: b.conv(b.doubled(b.image("x", 16), 1.5), 16, 4, 3, 3, padding=1),
    "to a size that images of other sizes get, too": lambda b: b.conv(
        b.add("upsample", "up", b.image("x", 16), mode="nearest", size=(14, 10)), 16, 4, 3, 3, padding=1
    ),
    "smaller": lambda b: b.conv(b.doubled(b.image("x", 16, (8, 6)), 0.5), 16, 4, 3, 3, padding=1),
    "1x1 of few channels": lambda b: b.conv(b.doubled(b.image("x", 48)), 48, 4, 1, 1),
    "1x1, the enlarged value read by others, too": lambda b: b.add(
        "add", "sum", (up := b.doubled(b.image("x", 64))), b.conv(up, 64, 64, 1, 1)
    ),
    "1x1, cubic": lambda b: b.conv(
        b.add("resize", "up", b.image("x", 64), mode="cubic", axes=(2, 3), scales=(2.0, 2.0)), 64, 4, 1, 1
    ),
    "1x1 of a smaller image": lambda b: b.conv(b.doubled(b.image("x", 64, (8, 6)), 0.5), 64, 4, 1, 1),
    "channels repeated": lambda b: b.conv(
        b.add("tile", "up", b.image("x", 64, (1, 1)), repeats=(1, 2, 3, 3)), 128, 4, 1, 1
    ),
    "channels": lambda b: b.conv(
        b.add("resize", "up", b.image("x", 64), mode="nearest", axes=(1, 2), scales=(2.0, 2.0)), 128, 4, 3, 3
    ),
    "stride": lambda b: b.conv(b.doubled(b.image("x", 64)), 64, 4, 3, 3, padding=1, stride=2),
    "dilation": lambda b: b.conv(b.doubled(b.image("x", 64)), 64, 4, 3, 3, padding=2, dilation=2),
    "depthwise": lambda b: b.conv(b.doubled(b.image("x", 64)), 64, 64, 3, 3, padding=1, groups=64),
    "few channels": lambda b: b.conv(b.doubled(b.image("x", 8)), 8, 64, 3, 3, padding=1),
    "padding beyond the filter": lambda b: b.conv(b.doubled(b.image("x", 64)), 64, 4, 3, 3, padding=3),
    "few channels of many": lambda b: decoder(b, up=8),
    "a concatenation before 1x1": lambda b: decoder(b, kernel=1),
}


@pytest.mark.parametrize("name", LEFT)
def test_others_are_left_alone(name: str) -> None:
    b = Net("left")
    spec = b.build(LEFT[name](b))
    assert fold_enlargements(spec) is spec


def test_weights_that_would_be_infinite_stay_apart() -> None:
    b = Net("huge")
    spec = b.build(b.conv(b.doubled(b.image("x", 16)), 16, 4, 3, 3, padding=1))
    huge = {key: np.full_like(a, 3e38) for key, a in spec.params.items()}
    spec = dataclasses.replace(spec, params=huge)
    assert fold_enlargements(spec) is spec


def test_models_of_the_same_weights_share_the_sums() -> None:
    b = Net("shared")
    spec = b.build(b.conv(b.doubled(b.image("x", 16)), 16, 4, 3, 3, padding=1))
    derived = Derived()
    one, other = (fold_enlargements(s, derived) for s in (spec, dataclasses.replace(spec)))
    (key,) = (n.params["weight"] for n in one.nodes)
    assert np.shares_memory(one.params[key], other.params[key])


def test_a_volume_that_grows_along_one_axis_and_shrinks_along_another_is_resized() -> None:
    b = Net()
    x = b.input("x", ("N", 8, 1, 2, 2), (2, 8, 1, 2, 2))
    how = {
        "mode": "nearest",
        "axes": (2, 3, 4),
        "sizes": (8, 1, 2),
        "coordinates": "asymmetric",
        "rounding": "floor",
    }
    spec = b.build(b.conv(b.add("resize", "big", x, **how), 8, 5, 3, 3, 3, padding=1))
    assert "resize" in {n.op for n in simplify(spec).nodes}
    check_images(spec)
