"""What depends on no input, or is the same for all images, is computed ahead, and packed."""

from typing import Any

import numpy as np
import pytest
from support.check import assert_three_way
from support.rewriting import RNG, Net, array, check, features_of, fixed_image, image, repeated

import bslite
from bslite import reference
from bslite.cache import Derived
from bslite.engines.cpu.detect import detect
from bslite.passes import simplify
from bslite.plan import build_plan


def test_what_is_the_same_for_all_images_is_computed_once() -> None:
    """Positions, as ConViT has them: through a linear layer, a permutation, a softmax and a gate."""
    net, x = image()
    y = net("linear", repeated(net, array(1, 4, 5, 3), x), weight=array(2, 3), bias=array(2))
    y = net("softmax", net("permute", y, order=[0, 3, 1, 2]), axis=-1)
    y = net("mul", array(1, 2, 1, 1), y)
    y = net("add", net("reshape", y, shape=(0, -1)), repeated(net, array(1, 40), x))
    features = net("linear", features_of(net, x), weight=array(40, 6))
    simple = check(net.build(net("mul", features, y)),
                   "repeat_batch", "adaptive_avg_pool2d", "reshape", "linear", "mul")  # fmt: skip
    for batch in (1, 3):
        inputs = [RNG.standard_normal((batch, 6, 5, 4)).astype(np.float32)]
        exact, peer = (reference.run(simple, inputs, dtype)[0] for dtype in (np.float64, np.float32))
        assert_three_way(bslite.run(simple, inputs), peer, exact)


def test_what_mixes_images_or_grows_is_not_computed_ahead() -> None:
    net, x = image()
    several = net("sum", repeated(net, array(1, 300), x), axes=[0], keepdim=True)
    features = net("linear", features_of(net, x), weight=array(300, 6))
    check(net.build(net("add", several, features)),
          "repeat_batch", "sum", "adaptive_avg_pool2d", "reshape", "linear", "add")  # fmt: skip
    net, x = image()
    many = net("linear", repeated(net, array(1, 30, 30, 2), x), weight=array(100, 2))
    features = net("reshape", features_of(net, x), shape=(0, 1, 1, 6))
    check(net.build(net("mul", many, net("linear", features, weight=array(100, 6)))),
          "repeat_batch", "linear", "adaptive_avg_pool2d", "reshape", "linear", "mul")  # fmt: skip


def test_what_depends_on_no_input_is_computed_once() -> None:
    """A table of positions of Swin v2: linear layers of constants, an activation, a permutation."""
    net, x = image()
    table = net("relu", net("linear", array(20, 2), weight=array(30, 2), bias=array(30)))
    table = net("permute", net("linear", table, weight=array(6, 30)), order=[1, 0])
    check(net.build(net("mul", x, net("reshape", table, shape=(6, 5, 4)))), "mul")
    net, x = image()  # an output stays, and so does what an index beyond its axis makes
    gathered = net("gather", array(3, 4), net("constant", value=np.asarray([9])), axis=0)
    spec = net.build(net("mul", x, net("sum", gathered, axes=[0, 1], keepdim=False)))
    assert [n.op for n in simplify(spec).nodes if n.op != "constant"] == ["gather", "sum", "mul"]
    with pytest.raises(bslite.InputError, match="gather"):
        bslite.run(spec, RNG.standard_normal((2, 6, 5, 4)).astype(np.float32))


@pytest.mark.parametrize(("op", "attrs"), [("expand", {"shape": (4, 6)}), ("reshape", {"shape": (4, 2, 3)})])
def test_an_attribute_that_names_the_batch_is_not_computed_ahead(op: str, attrs: dict[str, Any]) -> None:
    net = Net()
    x = net.input("x", (4, 6), (4, 6))
    y = net(op, repeated(net, array(1, 6), x), **attrs)
    y = net("add", net("reshape", y, shape=(4, 6)) if op == "reshape" else y, x)
    spec = net.build(y)
    assert "repeat_batch" in [n.op for n in simplify(spec).nodes]
    data = RNG.standard_normal((4, 6)).astype(np.float32)
    np.testing.assert_allclose(bslite.run(spec, data), reference.run(spec, [data])[0], rtol=1e-5)


def test_what_is_computed_ahead_overflows_as_it_would() -> None:
    """Without a word (warnings are errors here); integers that do not fit still name their layer."""
    net, x = image()
    low = np.full(4, np.finfo(np.float32).min)
    simple = check(net.build(net("maximum", x, net("add", low, low))), "maximum")
    assert np.isneginf(next(iter(simple.params.values()))).all()
    net = Net()
    whole = net.input("x", ("N", 3), (2, 3), "int64")
    large = [net("constant", value=np.asarray([n], np.int64)) for n in (2**30, 8)]
    spec = net.build(net("add", whole, net("mul", *large)))
    with pytest.raises(bslite.InputError, match=r"layer .mul.*does not fit"):
        bslite.run(spec, np.ones((2, 3), np.int64))


def test_a_large_view_is_not_copied_ahead() -> None:
    """A table that is looked up, and multiplied with, permuted: its memory may be the module's."""
    net = Net()
    index = net.input("x", ("N", 3), (2, 3), "int64")
    table = net("constant", value=array(2000, 64))
    picked = net("gather", table, index, axis=0)
    spec = net.build(net("matmul", picked, net("permute", table, order=[1, 0])))
    simple = simplify(spec)
    assert [p.shape for p in simple.params.values()] == [(2000, 64)]


def test_only_what_stays_of_what_is_computed_ahead_is_kept() -> None:
    net, x = image()
    value = net("constant", value=array(6, 5, 4))
    for op in ("tanh", "exp", "sigmoid", "relu", "silu"):
        value = net(op, value)
    spec, derived = net.build(net("mul", x, value)), Derived()
    kept = simplify(spec, derived).params.values()
    assert sum(derived.sizes().values()) == sum(p.nbytes for p in kept)
    again = simplify(spec, derived).params.values()
    assert all(np.shares_memory(p, q) for p, q in zip(again, kept, strict=True))


def test_large_tables_that_layers_read_are_computed_ahead() -> None:
    """Relative positions, which each layer of DeBERTa takes through linear layers of its own."""
    net, x = image()
    table = net("constant", value=array(700, 96))
    for _ in range(2):
        keys = net("linear", net("reshape", table, shape=(1, 700, 96)), weight=array(4, 96))
        x = net("add", x, net("mean", keys, axes=[1], keepdim=True))
    check(net.build(x), "add", "add")


def heads(net: Net, x: str) -> str:
    """``[N, 6, 5, 4]`` as torch.bmm takes it: ``[N * 6, 5, 4]``."""
    return net("reshape", x, shape=(-1, 5, 4))


def test_a_matrix_that_is_repeated_is_a_constant() -> None:
    """Keys of relative positions, as DeBERTa has them; they are packed ahead."""
    net, x = fixed_image()
    keys = net("reshape", repeated(net, array(1, 6, 9, 4), x), shape=(-1, 9, 4))
    y = net("matmul", heads(net, x), net("permute", keys, order=[0, 2, 1]))
    simple = check(net.build(net("relu", net("reshape", y, shape=(-1, 6, 5, 9)))), "matmul", "relu")
    plan = build_plan(simple, [(3, 6, 5, 4)], detect(2), layerwise=True)
    assert "pack_panels" not in [step.kernel for step in plan.steps]
    recipes = [const.recipe for const in plan.consts.values()]
    assert "matrices" in recipes
    assert "param" not in recipes  # as it lies, nobody reads it
