"""Where channels lie: images have them innermost, heads of an attention and windows of tokens their rows."""

from collections.abc import Mapping

import numpy as np
import pytest
from support.check import assert_three_way
from support.graphs import Graph
from support.noise import noise

import bslite
from bslite import ModelSpec, reference
from bslite.engines.cpu.detect import detect
from bslite.machine import Machine
from bslite.ops import Shape
from bslite.passes import simplify
from bslite.passes.layouts import channels_second
from bslite.plan import build_plan


def second(spec: ModelSpec) -> set[str]:
    """The values of the model whose channels are axis 1."""
    shapes: Mapping[str, Shape] = spec.infer_shapes([i.example for i in spec.inputs])
    return set(channels_second(spec, shapes))


def check(spec: ModelSpec, *inputs: np.ndarray) -> None:
    exact = reference.run(spec, list(inputs), np.float64)[0]
    peer = reference.run(spec, list(inputs), np.float32)[0]
    want = bslite.run(spec, list(inputs), layerwise=True)
    assert_three_way(want, peer, exact)
    for threads in (1, 2):
        assert bslite.run(spec, list(inputs), threads=threads).tobytes() == want.tobytes()


def test_heads_of_an_attention_lie_in_rows() -> None:
    """Rotary embedding written out: no step of it turns values, as none of them is an image."""
    g = Graph()
    x, table = g.input("x", ("N", 10, 96), (2, 10, 96)), g.input("table", (1, 1, 10, 16))
    heads = []
    for i in range(3):
        part = g("slice", f"part{i}", x, axis=2, start=32 * i, stop=32 * i + 32)
        split = g("reshape", f"split{i}", part, shape=(0, 10, 2, 16))
        heads.append(g("permute", f"head{i}", split, order=(0, 2, 1, 3)))
    for i in range(2):
        low = g("slice", f"low{i}", heads[i], axis=3, start=0, stop=8)
        high = g("neg", f"neg{i}", g("slice", f"high{i}", heads[i], axis=3, start=8, stop=16))
        turned = g("mul", f"sin{i}", g("concat", f"turned{i}", high, low, axis=3), table)
        heads[i] = g("add", f"rotated{i}", g("mul", f"cos{i}", heads[i], table), turned)
    spec = g.build(g("attention", "attention", *heads, scale=0.25))
    assert not second(spec)
    shapes = [(2, 10, 96), (1, 1, 10, 16)]
    assert "transpose" not in {s.kernel for s in build_plan(spec, shapes, detect(2)).steps}
    check(spec, *(noise(*shape) for shape in shapes))


@pytest.mark.parametrize("op", ["softmax", "log_softmax", "cumsum"])
def test_a_convolution_of_planes_behind_rows_of_an_image(op: str) -> None:
    """The last one is best computed plane by plane: neither what it reads nor what it makes is an image."""
    g = Graph()
    image = g("conv2d", "first", g.input("x", ("N", 16, 8, 8), (1, 16, 8, 8)), weight=noise(16, 16, 1, 1))
    last = g("conv2d", "last", g(op, "rows", image, axis=3), weight=noise(4, 16, 1, 1))
    check(g.build(last), noise(1, 16, 8, 8))


def test_images_and_rows_in_one_model() -> None:
    g = Graph()
    x = g.input("x", ("N", 6, 5, 8), (2, 6, 5, 8))
    image = g("tanh", "tanh", g("conv2d", "conv", x, weight=noise(6, 6, 1, 1)))
    rows = g(
        "exp", "exp", g("linear", "linear", g("permute", "to", image, order=(0, 2, 3, 1)), weight=noise(6, 6))
    )
    joined = g("mul", "joined", image, g("permute", "back", rows, order=(0, 3, 1, 2)))
    spec = g.build(g("silu", "out", joined))
    assert second(spec) == {"x", "conv", "tanh", "back", "joined", "out"}
    check(spec, noise(2, 6, 5, 8))


def test_what_both_images_and_rows_are_joined_to_is_an_image() -> None:
    g = Graph()
    x = g.input("x", ("N", 6, 5, 8), (2, 6, 5, 8))
    conv = g("conv2d", "conv", x, weight=noise(6, 6, 1, 1))
    spec = g.build(
        g("softmax", "out", g("add", "sum", conv, g("linear", "linear", x, weight=noise(8, 8))), axis=-1)
    )
    assert second(spec) == {"x", "conv", "linear", "sum"}
    check(spec, noise(2, 6, 5, 8))


def test_complex_numbers_lie_in_pairs() -> None:
    """Beside no image, whatever their number is; an image two pixels wide is one."""
    g = Graph()
    x = g.input("x", ("N", 8, 12), (2, 8, 12))
    pairs = g(
        "mul", "mul", g("reshape", "pairs", x, shape=(0, 8, 6, 2)), g("constant", "two", value=noise(2))
    )
    spec = g.build(g("tanh", "out", pairs))
    assert not second(spec)
    check(spec, noise(2, 8, 12))
    g = Graph()
    x = g.input("x", ("N", 6, 5, 2), (2, 6, 5, 2))
    spec = g.build(g("tanh", "out", g("conv2d", "conv", x, weight=noise(6, 6, 1, 1))))
    assert second(spec) == {"x", "conv", "out"}
    check(spec, noise(2, 6, 5, 2))


def test_rows_of_an_attention_are_summed_where_they_lie() -> None:
    """Gated attention, written out (ConViT): softmax, gate, sum along rows and division are one step."""
    g = Graph()
    x = g.input("x", ("N", 3, 40, 16), (2, 3, 40, 16))
    scores = g("matmul", "scores", x, g("permute", "turned", x, order=(0, 1, 3, 2)))
    gate = g("constant", "gate", value=np.asarray([0.2, 0.5, 0.9], np.float32).reshape(1, 3, 1, 1))
    mixed = g("mul", "mixed", g("softmax", "softmax", scores, axis=-1), gate)
    total = g("reshape", "kept", g("sum", "total", mixed, axes=(-1,), keepdim=False), shape=(0, 3, 40, 1))
    spec = g.build(g("matmul", "out", g("div", "divided", mixed, total), x))
    steps = build_plan(simplify(spec), [(1, 3, 40, 16)], detect(2)).steps
    (chain,) = (s for s in steps if "softmax" in s.layers)
    assert chain.layers == ("softmax", "mixed", "kept", "divided")
    assert {s.kernel for p in chain.plans for s in p.steps} == {"softmax", "elementwise", "reduce"}
    check(spec, noise(2, 3, 40, 16))


def test_branches_of_an_image_lie_as_the_image_does() -> None:
    """Split attention (ResNeSt): the branches of a grouped convolution are summed and weighed as they lie."""
    g = Graph()
    x = g.input("x", ("N", 8, 12, 9), (2, 8, 12, 9))
    both = g("conv2d", "both", x, weight=noise(64, 4, 3, 3, scale=0.3), padding=1, groups=2)
    split = g("reshape", "split", both, shape=(0, 2, 32, 12, 9))
    pooled = g(
        "mean", "pooled", g("sum", "summed", split, axes=(1,), keepdim=False), axes=(2, 3), keepdim=True
    )
    gates = g("sigmoid", "gates", g("conv2d", "gate", pooled, weight=noise(64, 32, 1, 1, scale=0.3)))
    weighed = g("mul", "weighed", split, g("reshape", "each", gates, shape=(0, 2, 32, 1, 1)))
    shifted = g("relu", "shifted", weighed)
    spec = g.build(
        g("conv2d", "out", g("sum", "again", shifted, axes=(1,), keepdim=False), weight=noise(8, 32, 1, 1))
    )
    plan = build_plan(simplify(spec), [(1, 8, 12, 9)], detect(2))
    moves = [s.layers for s in plan.steps if s.kernel in ("transpose", "copy")]
    assert not any({"summed", "again"} & set(layers) for layers in moves), moves
    check(spec, noise(2, 8, 12, 9))


@pytest.mark.parametrize("op", ["logsumexp", "log_sum", "sum", "var"])
@pytest.mark.parametrize("axes", [(2,), (4,), (1, 4), (5,)])
def test_the_order_of_a_sum_does_not_depend_on_where_axes_lie(op: str, axes: tuple[int, ...]) -> None:
    """A value that leaves a stack lies in another order of its axes than layer by layer: more loops than the
    kernel has. (Sums of logarithms show it; others add up in float64.)
    """
    g = Graph()
    x = g.input("x", ("N", 8, 40, 18), (4, 8, 40, 18))
    c = g("relu", "r", g("conv2d", "c1", x, weight=noise(24, 8, 3, 3, scale=0.2), padding=1))
    c = g("conv2d", "c2", c, weight=noise(24, 24, 3, 3, scale=0.2), padding=1)
    v = g("permute", "p", g("reshape", "rs", c, shape=(0, 4, 6, 40, 3, 6)), order=(0, 1, 3, 4, 5, 2))
    m = g("mul", "m", v, g("amax", "top", v, axes=(5,), keepdim=True))
    reduced = g(op, "reduced", m, axes=axes, keepdim=False)
    spec = g.build(reduced, g("sum", "total", m, axes=(0,), keepdim=False))
    data = noise(4, 8, 40, 18)
    want = bslite.run(spec, data, layerwise=True)[0]
    for threads in (1, 2):
        assert bslite.run(spec, data, threads=threads)[0].tobytes() == want.tobytes()
    alone = [bslite.run(spec, data[i : i + 1], threads=2)[0] for i in range(4)]
    assert np.concatenate(alone).tobytes() == want.tobytes()


@pytest.mark.parametrize(
    ("sizes", "order", "kernels"),
    [
        ((0, 4, 12, 70), (0, 1, 3, 2), ["copy"]),  # heads of pixels, channels last
        ((0, 48, 70), (0, 2, 1), ["copy"]),  # tokens
        ((0, 48, 10, 7), (0, 2, 3, 1), []),  # the image as it is
        ((0, 4, 12, 70), (0, 1, 2, 3), ["copy", "transpose"]),  # pixels last
        ((0, 12, 280), (0, 1, 2), ["copy", "transpose"]),  # pixels of several channels in a row
    ],
)
def test_images_with_zeros_around_them_become_tokens(
    sizes: tuple[int, ...], order: tuple[int, ...], kernels: list[str]
) -> None:
    """Lines have zeros beside them, as the depthwise filter wants. Copies are of whole lines, or by squares
    of registers: lines of 7 pixels join before.
    """
    g = Graph()
    x = g.input("x", ("N", 8, 10, 7), (2, 8, 10, 7))
    image = g("conv2d", "image", x, weight=noise(48, 8, 1, 1))
    near = g("conv2d", "near", image, weight=noise(48, 1, 3, 3), padding=1, groups=48)
    tokens = g("permute", "tokens", g("reshape", "apart", image, shape=sizes), order=order)
    flat = [g("flatten", f"{y}/flat", y) for y in (g("softmax", "softmax", tokens, axis=-1), near)]
    spec = g.build(g("concat", "both", *flat, axis=1))
    plan = build_plan(spec, [(2, 8, 10, 7)], Machine(lanes=16, threads=2), keep_values=True)
    place, moved = plan.values["image"].buffer, []
    for step in plan.steps:
        if step.kernel in ("copy", "transpose") and step.reads[0].buffer == place:
            moved.append(step)
            place = step.writes[0].buffer
    assert [step.kernel for step in moved] == kernels
    assert all(step.record.run >= 16 for step in moved if step.kernel == "copy")
    assert plan.values["tokens"].buffer == place
    check(spec, noise(2, 8, 10, 7))


def test_what_no_image_is_joined_to_keeps_the_order_of_the_input() -> None:
    """Nothing is turned: the last step writes the caller's array, which is row-major."""
    g = Graph()
    x = g.input("x", ("N", 6, 5, 8), (2, 6, 5, 8))
    numbers = {"weight": noise(6), "bias": noise(6), "running_mean": noise(6), "running_var": noise(6) ** 2}
    norm = g("silu", "silu", g("batch_norm", "norm", x, **numbers))
    padded = g("pad", "pad", norm, pads=(0, 0, 1, 1, 0, 0, 1, 1), mode="reflect")
    spec = g.build(g("concat", "out", padded, g("tanh", "tanh", padded), axis=1))
    assert not second(spec)
    plan = build_plan(simplify(spec), [(2, 6, 5, 8)], detect(2))
    assert {s.kernel for s in plan.steps} <= {"elementwise", "copy", "stack"}
    assert "outputs" not in [name for s in plan.steps for name in s.layers]
    check(spec, noise(2, 6, 5, 8))


def test_an_input_with_its_channels_last_is_an_image() -> None:
    g = Graph()
    x = g.input("x", ("N", 6, 5, 8), (2, 6, 5, 8))
    spec = g.build(g("tanh", "out", g("mul", "twice", x, x)))
    lies = ((240, 1, 48, 6),)
    assert build_plan(spec, [(2, 6, 5, 8)], detect(2), input_strides=lies).values["out"].strides[1] == 1
    check(spec, noise(2, 5, 8, 6).transpose(0, 3, 1, 2))


def test_a_map_of_one_channel_is_written_in_place() -> None:
    g = Graph()
    conv = g(
        "conv2d", "conv", g.input("x", ("N", 6, 5, 8), (2, 6, 5, 8)), weight=noise(1, 6, 3, 3), padding=1
    )
    spec = g.build(g("sigmoid", "out", conv))
    steps = build_plan(simplify(spec), [(2, 6, 5, 8)], detect(2)).steps
    assert "outputs" not in [name for s in steps for name in s.layers]
    check(spec, noise(2, 6, 5, 8))


@pytest.mark.parametrize(
    ("before", "size", "after", "kernel"),
    [
        (False, 20, None, "resize_planes"),
        (False, 5, None, "resize_planes"),
        (True, 20, None, "resize_planes"),
        (True, 20, "argmax", "resize_planes"),
        (True, 20, "flatten", "resize_linear"),
        (True, 5, None, "resize_linear"),
        (False, 20, "conv2d", "resize_linear"),
        (True, 20, "conv2d", "resize_linear"),
    ],
)
def test_images_are_turned_before_they_grow(before: bool, size: int, after: str | None, kernel: str) -> None:
    """What convolutions make and none reads is resized in the caller's order, unless it shrinks."""
    g = Graph()
    value = g.input("x", ("N", 6, 10, 10), (1, 6, 10, 10))
    if before:
        value = g("conv2d", "before", value, weight=noise(6, 6, 3, 3), padding=1)
    value = g("upsample", "resized", value, mode="bilinear", size=size)
    if after == "conv2d":
        value = g("conv2d", "after", value, weight=noise(6, 6, 3, 3), padding=1)
    elif after == "flatten":
        value = g(
            "permute", "after", g(after, "flat", g("relu", "relu", value), start_axis=2), order=(0, 2, 1)
        )
    elif after:
        value = g(after, "after", value, axis=1)
    spec = g.build(value)
    plan = build_plan(simplify(spec), [(1, 6, 10, 10)], detect(2))
    assert [step.kernel for step in plan.steps if "resize" in step.kernel] == [kernel]
    x = noise(1, 6, 10, 10)
    if after == "argmax":
        want = reference.run(spec, [x], np.float64)[0]
        np.testing.assert_array_equal(bslite.run(spec, x), want)
    else:
        check(spec, x)


def test_sizes_decide_what_is_turned() -> None:
    """One model, first with images that grow and then with images that shrink."""
    g = Graph()
    x = g.input("x", ("N", 6, "H", "W"), (1, 6, 10, 10))
    made = g("conv2d", "conv", x, weight=noise(6, 6, 1, 1))
    spec = simplify(g.build(g("upsample", "resized", made, mode="bilinear", size=20)))
    for size, kernel in ((10, "resize_planes"), (30, "resize_linear")):
        plan = build_plan(spec, [(1, 6, size, size)], detect(2))
        assert [step.kernel for step in plan.steps if "resize" in step.kernel] == [kernel]
