"""Convolutions and linear layers that read one value and are added become one layer."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.check import assert_three_way, rel_l2
from support.rewriting import RNG, Net, check, fixed_image, image

import bslite
from bslite import reference
from bslite.cache import Derived
from bslite.passes import simplify
from bslite.passes.branches import Filter


def normal(*shape: int, size: float = 1.0) -> np.ndarray:
    return (size * RNG.standard_normal(shape)).astype(np.float32)


def conv(net: Net, x: str, k: int, *kernel: int, groups: int = 1, bias: bool = True, **attrs: object) -> str:
    given = {"bias": normal(k)} if bias else {}
    return net("conv2d", x, weight=normal(k, 6 // groups, *kernel), groups=groups, **given, **attrs)


def norm(net: Net, x: str, channels: int = 6, **attrs: float) -> str:
    params = {"weight": normal(channels), "bias": normal(channels), "running_mean": normal(channels)}
    return net("batch_norm", x, **params, running_var=np.square(normal(channels)) + 0.5, **attrs)


def test_a_block_of_three_branches_is_one_convolution() -> None:
    """RepVGG's: 3 x 3, 1 x 1 and a batch norm of the input, each convolution with a batch norm of its own."""
    net, x = image()
    y = net("add", norm(net, conv(net, x, 6, 3, 3, padding=1)), norm(net, conv(net, x, 6, 1, 1)))
    y = net("relu", net("add", y, norm(net, x)))
    simple = check(net.build(y), "conv2d", "relu")
    assert simple.nodes[0].attrs["padding"] == (1, 1, 1, 1)


def test_names_and_the_batch_norm_behind_the_sum() -> None:
    net, x = image()
    y = net("add", conv(net, x, 8, 1, 1), conv(net, x, 8, 3, 3, padding=1, bias=False))
    simple = check(net.build(norm(net, y, 8)), "conv2d")
    assert simple.nodes[0].name == simple.outputs[0]


def test_explain_says_whose_weights_are_added() -> None:
    net, x = image()
    y, z = conv(net, x, 8, 1, 1), conv(net, x, 8, 3, 3, padding=1)
    table = bslite.explain(net.build(net("relu", net("add", y, z))), normal(2, 6, 5, 4), runs=2)
    assert f"weights of {z} added to its own; relu in the store" in str(table)


def test_terms_that_do_not_join_stay() -> None:
    net, x = image()
    y = net("add", net("add", conv(net, x, 6, 3, 3, padding=1), net("tanh", x)), net("exp", x))
    y = net("add", conv(net, x, 6, 1, 1), y)
    simple = check(net.build(net("relu", y)), "tanh", "exp", "conv2d", "add", "add", "relu")
    assert len({node.name for node in simple.nodes}) == len(simple.nodes)


@pytest.mark.parametrize(
    "second",
    [
        {"stride": 2},  # another stride
        {"padding": (1, 1, 0, 0)},  # one tap before its pixel
        {"kernel": (3, 1), "padding": (2, 0, 0, 0)},  # taps that the other has not
        {"kernel": (1, 3), "padding": (0, 2, 0, 2), "dilation": 2},
    ],
)
def test_other_geometry_stays(second: dict) -> None:
    """Sums of an image and one of another size broadcast, or their filters look elsewhere."""
    net = Net()
    x = net.input("x", (2, 6, 1, 1), (2, 6, 1, 1))
    y = conv(net, x, 6, 3, 3, padding=1)
    z = conv(net, x, 6, *second.pop("kernel", (1, 1)), **second)
    check(net.build(net("relu", net("add", y, z))), "conv2d", "conv2d", "add", "relu")


def test_what_others_read_stays() -> None:
    net, x = image()
    y, z = conv(net, x, 6, 3, 3, padding=1), conv(net, x, 6, 1, 1)
    check(net.build(net("add", net("add", y, z), net("tanh", y))), "conv2d", "conv2d", "add", "tanh", "add")
    net, x = image()
    y, z = conv(net, x, 6, 3, 3, padding=1), conv(net, net("tanh", x), 6, 1, 1)
    check(net.build(net("relu", net("add", y, z))), "conv2d", "tanh", "conv2d", "add", "relu")


@pytest.mark.parametrize("groups", [1, 2, 3, 6])
@pytest.mark.parametrize("coarser", [1, 2, 3, 6])
def test_groups(groups: int, coarser: int) -> None:
    net, x = fixed_image()
    y, z = (
        conv(net, x, 12, 3, 3, padding=1, groups=coarser),
        conv(net, x, 12, 1, 3, padding=(0, 1), groups=groups),
    )
    joins = groups % coarser == 0
    check(
        net.build(net("relu", net("add", y, z))),
        *(["conv2d"] if joins else ["conv2d", "conv2d", "add"]),
        "relu",
    )


def test_the_input_itself_joins_a_depthwise_filter_alone() -> None:
    """A dense layer adds it in its store. Positions of tokens are depthwise (arXiv 2102.10882)."""
    net, x = image()
    y = net("tanh", x)
    check(net.build(net("add", y, conv(net, y, 6, 3, 3, padding=1, groups=6))), "tanh", "conv2d")
    net, x = image()
    y = net("tanh", x)
    check(net.build(net("add", y, conv(net, y, 6, 3, 3, padding=1))), "tanh", "conv2d", "add")


@pytest.mark.parametrize("axes", [1, 3])
def test_signals_and_volumes(axes: int) -> None:
    net = Net()
    x = net.input("x", ("N", 4, *("H",) * axes), (2, 4, *(5,) * axes))
    y = net(f"conv{axes}d", x, weight=normal(4, 1, *(3,) * axes), padding=1, groups=4)
    z = net(f"conv{axes}d", x, weight=normal(4, 1, *(1,) * axes), groups=4)
    check(net.build(net("relu", net("add", net("add", y, z), norm(net, x, 4)))), f"conv{axes}d", "relu")


def test_thin_matrices_beside_a_full_one() -> None:
    """LoRA: ``x W + s x A B``."""
    net = Net()
    x = net.input("x", ("N", "L", 24), (2, 3, 24))
    thin = net("linear", net("linear", x, weight=normal(4, 24), bias=normal(4)), weight=normal(32, 4))
    y = net("linear", x, weight=normal(32, 24), bias=normal(32))
    check(net.build(net("gelu", net("add", y, net("mul", thin, 0.25)))), "linear", "gelu")
    net, x = image()
    thin = conv(net, x, 6, 3, 3, padding=1, stride=2)
    thin = net("conv2d", thin, weight=normal(8, 6, 1, 1))
    check(net.build(net("add", conv(net, x, 8, 3, 3, padding=1, stride=2), thin)), "conv2d")


def test_thin_matrices_alone_stay() -> None:
    net = Net()
    x = net.input("x", ("N", 24), (2, 24))
    check(
        net.build(net("linear", net("linear", x, weight=normal(4, 24)), weight=normal(32, 4))),
        "linear",
        "linear",
    )


def test_small_weights_and_many_taps_stay() -> None:
    """One sum would round the image as often as it has taps."""
    net = Net()
    x = net.input("x", ("N", 64, "H", "W"), (1, 64, 6, 6))
    y = net("conv2d", x, weight=normal(64, 64, 3, 3, size=1e-4), padding=1)
    check(net.build(net("relu", net("add", y, norm(net, x, 64)))), "conv2d", "batch_norm", "add", "relu")


def test_weights_beyond_the_range_of_float32_stay() -> None:
    net, x = image()
    y = net("conv2d", x, weight=np.full((6, 6, 3, 3), 3e38, np.float32), padding=1)
    z = net("conv2d", x, weight=np.full((6, 6, 1, 1), 3e38, np.float32))
    simple = simplify(net.build(net("add", y, z)))
    assert [node.op for node in simple.nodes] == ["conv2d", "conv2d", "add"]


def test_models_of_the_same_weights_share_the_sum() -> None:
    net, x = image()
    y = net("add", conv(net, x, 6, 3, 3, padding=1), conv(net, x, 6, 1, 1))
    spec, derived = net.build(net("relu", net("add", y, conv(net, x, 6, 1, 3, padding=(0, 1))))), Derived()
    first, second = (next(iter(simplify(spec, d).params.values())) for d in (derived, Derived(derived)))
    assert np.shares_memory(first, second)
    assert len(derived.sizes()) == 2, "sums of two of the three branches are kept"


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_random_branches(data: st.DataObject) -> None:
    """Any geometry: what is made one is the same function."""
    draw = data.draw
    net, x = fixed_image()
    stride = draw(st.sampled_from([1, 1, 2]))
    terms: dict[tuple[int, ...], list[str]] = {}
    for _ in range(draw(st.integers(2, 5))):
        kernel = draw(st.tuples(*2 * [st.sampled_from([1, 2, 3])]))
        dilation = draw(st.tuples(*2 * [st.sampled_from([1, 1, 2])]))
        padding = draw(st.tuples(*4 * [st.integers(0, 2)]))
        groups = draw(st.sampled_from([1, 1, 2, 6]))
        sizes = [
            (n + padding[i] + padding[2 + i] - dilation[i] * (kernel[i] - 1) - 1)
            for i, n in enumerate((5, 4))
        ]
        if min(sizes) < 0:
            continue
        size = tuple(n // stride for n in sizes)
        made = conv(net, x, 6, *kernel, groups=groups, stride=stride, padding=padding, dilation=dilation)
        terms.setdefault(size, []).append(made)
        if size == (4, 3) and stride == 1 and draw(st.booleans()):
            terms[size].append(norm(net, x))
    if not terms:
        return
    names = max(terms.values(), key=len)
    while len(names) > 1:
        at = draw(st.integers(0, len(names) - 2))
        names[at : at + 2] = [net("add", *names[at : at + 2])]
    spec = net.build(net("relu", names[0]))
    inputs = [normal(*i.example) for i in spec.inputs]
    exact, peer = (reference.run(spec, inputs, dtype)[0] for dtype in (np.float64, np.float32))
    assert rel_l2(reference.run(simplify(spec), inputs, np.float64)[0], exact) < 1e-6
    assert_three_way(bslite.run(spec, inputs), peer, exact, least=1e-7)


def test_taps_among_others() -> None:
    three = Filter(3, 1, 1, 0)
    assert Filter().among(three) == (1, 2, 1)
    assert three.among(three) == (0, 3, 1)
    assert three.among(Filter()) is None
    assert Filter(3, 2, 2, 0).among(Filter(5, 2, 1, 0)) == (0, 5, 2)
    assert Filter(3, 2, 2, 0).among(Filter(7, 6, 2, 0)) == (2, 5, 1)
    assert Filter(2, 0, 3, 0).among(Filter(3, 0, 2, 0)) is None
    assert Filter(1, 0, 1, 0).among(Filter(3, 1, 1, 1)) is None
