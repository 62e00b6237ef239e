"""Gradients of attention: sizes that are cut in every way, any layout, numbers that are not finite."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.check import assert_three_way, rel_l2, same_specials
from support.graphs import one_op
from support.noise import noise

import bslite
from bslite import reference
from bslite.engines.cpu.detect import detect
from bslite.passes import simplify
from bslite.plan import build_plan
from bslite.plan.cpu.ops.attention_grad import SHARE
from bslite.plan.cpu.step import CpuPlan
from bslite.spec import Array, GraphBuilder, ModelSpec

LONG = 2 * SHARE + 70  # queries, of which each image has several shares


def operands(rows: int, keys: int, depth: int, features: int, *lead: int) -> list[Array]:
    sizes = ((rows, depth), (keys, depth), (keys, features), (rows, features))
    return [noise(*lead, *size, seed=i) for i, size in enumerate(sizes)]


def plan(spec: ModelSpec) -> CpuPlan:
    return build_plan(simplify(spec), [i.example for i in spec.inputs], detect(2))


def check(spec: ModelSpec, taken: list[Array]) -> Array:
    """The same bits on one thread and on two, layer by layer; the reference's answer."""
    one = bslite.run(spec, taken, threads=1)
    for how in ({"threads": 2}, {"threads": 8, "layerwise": True}):
        assert bslite.run(spec, taken, **how).tobytes() == one.tobytes()
    exact, peer = (reference.run(spec, taken, kind)[0] for kind in (np.float64, np.float32))
    assert_three_way(one, peer, exact)
    return one


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("heads", [1, 3])
def test_many_queries_of_few_heads_are_shared(heads: int, causal: bool) -> None:
    """An image alone has the bits that it has in a batch."""
    taken = operands(LONG, LONG, 8, 5, 2, heads)
    made = check(one_op("attention_grad", *taken, is_causal=causal), taken)
    first = [x[:1] for x in taken]
    spec = one_op("attention_grad", *first, is_causal=causal)
    assert bslite.run(spec, first).tobytes() == made[:1].tobytes()
    (made_here,) = (s for s in plan(spec).steps if s.record.kernel == "attention_grad")
    assert made_here.items == 2 * heads


@settings(deadline=None, max_examples=80)
@given(st.data())
def test_any_sizes(data: st.DataObject) -> None:
    def draw(low: int, high: int) -> int:
        return data.draw(st.integers(low, high))

    rows, keys, depth, features = draw(1, 300), draw(1, 300), draw(1, 70), draw(1, 70)
    taken = operands(rows, keys, depth, features, draw(1, 3))
    attrs = {"is_causal": data.draw(st.booleans()), "dropped": data.draw(st.booleans())}
    if data.draw(st.booleans()):
        kind = data.draw(st.sampled_from(["float32", "bool"]))
        mask = noise(draw(1, 2) % 2 * (rows - 1) + 1, keys, seed=7)
        taken.append(mask if kind == "float32" else mask > -1)
        attrs["by_mask"] = kind == "float32"
    if attrs["dropped"]:
        taken.append(np.abs(noise(rows, keys, seed=8)))
    spec = one_op("attention_grad", *taken, **attrs)
    made, exact = bslite.run(spec, taken), reference.run(spec, taken, np.float64)[0]
    terms = np.sqrt(taken[3].size)  # of which a sum may be next to nothing
    assert np.linalg.norm(made - exact) <= 2e-6 * (np.linalg.norm(exact) + terms)


@pytest.mark.parametrize("planted", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("operand", range(5))
@np.errstate(all="ignore")
def test_numbers_that_are_not_finite(operand: int, planted: float) -> None:
    """They show where they show in the reference, although causal rows leave out what is ahead of them."""
    taken = [*operands(90, 130, 6, 7), np.abs(noise(90, 130, seed=9))]
    taken[operand][-1 if operand in (1, 2) else 5, 2 if operand < 4 else 120] = planted
    spec = one_op("attention_grad", *taken, is_causal=True, dropped=True)
    made, exact = bslite.run(spec, taken), reference.run(spec, taken, np.float64)[0]
    assert same_specials(made, exact)
    finite = np.isfinite(exact)
    assert rel_l2(made[finite], exact[finite]) < 1e-5 if finite.any() else True


def test_in_other_layouts() -> None:
    """Heads that are slices of one product; gradients that are joined again behind a permutation."""
    graph = GraphBuilder("heads")
    whole = graph.add("reshape", "cut", graph.input("x", (2, 9, 3 * 4 * 6)), shape=(2, 9, 3, 4, 6))
    parts = [graph.add("slice", f"part{i}", whole, axis=2, start=i, stop=i + 1) for i in range(3)]
    flat = [graph.add("reshape", f"flat{i}", part, shape=(2, 9, 4, 6)) for i, part in enumerate(parts)]
    heads = [graph.add("permute", f"head{i}", part, order=(0, 2, 1, 3)) for i, part in enumerate(flat)]
    made = graph.add("permute", "back", graph.add("attention", "y", *heads), order=(0, 2, 1, 3))
    backward = bslite.gradient(graph.build(made), ["x"])
    given = [noise(*i.example, seed=k) for k, i in enumerate(backward.inputs)]
    exact, peer = (reference.run(backward, given, kind)[1] for kind in (np.float64, np.float32))
    assert_three_way(bslite.run(backward, given)[1], peer, exact)
    assert "attention_grad" in [node.op for node in backward.nodes]


def test_all_scores_are_never_in_memory() -> None:
    """Nor are they for a mask that nobody learns."""
    rows = 2048
    graph = GraphBuilder("long")
    heads = [graph.input(name, (1, 8, rows, 16)) for name in "qkv"]
    graph.params["mask"] = noise(rows)
    mask = graph.add("constant", "seen", params={"value": "mask"})
    spec = graph.build(graph.add("attention", "y", *heads, mask))
    backward = bslite.gradient(spec, ["q", "k", "v"])
    (node,) = (n for n in backward.nodes if n.op == "attention_grad")
    assert not node.attrs["by_mask"]
    assert sum(buffer.size for buffer in plan(backward).buffers.values()) < 8 * rows * rows / 4


def test_a_mask_that_is_learnt_has_its_gradient() -> None:
    graph = GraphBuilder("biased")
    heads = [graph.input(name, (3, 2, 20, 6)) for name in "qkv"]
    spec = graph.build(graph.add("attention", "y", *heads, graph.input("bias", (2, 20, 20))))
    backward = bslite.gradient(spec, ["q", "bias"])
    given = [noise(*i.example, seed=k) for k, i in enumerate(backward.inputs)]
    exact, peer = (reference.run(backward, given, kind)[2] for kind in (np.float64, np.float32))
    assert_three_way(bslite.run(backward, given)[2], peer, exact)
    assert np.abs(exact).max() > 0.1


@pytest.mark.parametrize("fill", [-1e9, float(np.finfo(np.float32).min), -np.inf])
@pytest.mark.parametrize("hidden", ["some keys", "all keys of a row", "computed", "by a mask, too"])
@np.errstate(all="ignore")
def test_hidden_scores_have_no_gradient(hidden: str, fill: float) -> None:
    """Where a row sees no key, its weights are alike, and yet nothing goes back to its query."""
    graph = GraphBuilder("hidden")
    q, k, v = (graph.input(name, (2, 20, 6)) for name in "qkv")
    graph.params |= {"fill": np.array(fill, "f4"), "limit": np.array(0.3, "f4")}
    number = graph.add("constant", "number", params={"value": "fill"})
    if hidden == "computed":
        limit = graph.add("constant", "most", params={"value": "limit"})
        first = graph.add("slice", "first", q, axis=2, start=0, stop=1)
        condition = graph.add("greater", "condition", first, limit)
    else:
        graph.params["where"] = np.triu(np.ones((20, 20), bool), 1)
        graph.params["where"][3] |= hidden == "all keys of a row"
        condition = graph.add("constant", "condition", params={"value": "where"})
    product = graph.add("matmul", "product", q, graph.add("permute", "turned", k, order=(0, 2, 1)))
    scores = graph.add("where", "scores", condition, number, product)
    if hidden == "by a mask, too":  # the one key that the first row sees
        graph.params["padding"] = np.where(np.arange(20) == 0, -1e30, 0).astype(np.float32)
        padding = graph.add("constant", "padding", params={"value": "padding"})
        scores = graph.add("add", "padded", scores, padding)
    spec = graph.build(graph.add("matmul", "y", graph.add("softmax", "weights", scores, axis=-1), v))
    backward = bslite.gradient(spec, ["q", "k", "v"])
    assert ("attention_grad" in [node.op for node in backward.nodes]) is (hidden == "some keys")
    given = [noise(*i.example, seed=n) for n, i in enumerate(backward.inputs)]
    made = bslite.run(backward, given)
    for ours, peer, exact in zip(
        made, *(reference.run(backward, given, kind) for kind in (np.float32, np.float64)), strict=True
    ):
        assert_three_way(ours, peer, exact)
    if hidden == "all keys of a row" and np.isfinite(fill):
        assert not made[1][:, 3].any()


def test_what_a_condition_is_made_of_has_no_gradient_through_it() -> None:
    graph = GraphBuilder("seen")
    q, k, v = (graph.input(name, (2, 20, 6)) for name in "qkv")
    graph.params["limit"] = np.array(0, "f4")
    limit = graph.add("constant", "limit", params={"value": "limit"})
    product = graph.add("matmul", "product", q, graph.add("permute", "turned", k, order=(0, 2, 1)))
    seen = graph.add("greater", "seen", product, limit)
    backward = bslite.gradient(graph.build(graph.add("attention", "y", q, k, v, seen)), ["q"])
    (node,) = (n for n in backward.nodes if n.op == "attention_grad")
    assert not node.attrs["by_mask"]


@pytest.mark.parametrize("name", ["attention", "attention_grad"])
@np.errstate(all="ignore")
def test_masks_of_causal_rows_that_are_not_finite(name: str) -> None:
    """NaN ahead of a query, and rows without a key that are NaN as softmax has them."""
    taken = operands(90, 130, 6, 7)[: 4 if name == "attention_grad" else 3]
    for mask in (noise(90, 130), np.full((90, 130), -np.inf, np.float32)):
        mask[5, 120] = np.nan
        if np.isinf(mask[0, 0]):
            mask[:, 0] = np.where(np.arange(90) % 7 == 0, 0.0, -np.inf)
        spec = one_op(name, *taken, mask, is_causal=True, no_key="nan")
        exact = reference.run(spec, [*taken, mask], np.float64)[0]
        assert same_specials(bslite.run(spec, [*taken, mask]), exact)
        assert np.isnan(exact).any()


def test_attention_that_is_written_out_is_one_op_in_gradients() -> None:
    """Unless a constant that may become part of it is asked for."""
    graph = GraphBuilder("written")
    q, k, v = (graph.input(name, (2, 20, 6)) for name in "qkv")
    graph.params["bias"] = noise(20, 20)
    bias = graph.add("constant", "added", params={"value": "bias"})
    turned = graph.add("permute", "turned", k, order=(0, 2, 1))
    scores = graph.add("add", "scores", graph.add("matmul", "product", q, turned), bias)
    spec = graph.build(graph.add("matmul", "y", graph.add("softmax", "weights", scores, axis=-1), v))
    for wrt, fused in ((["q", "v"], True), (["q", "bias"], False)):
        backward = bslite.gradient(spec, wrt)
        assert ("attention_grad" in [node.op for node in backward.nodes]) is fused
        given = [noise(*i.example, seed=n) for n, i in enumerate(backward.inputs)]
        for made, peer, exact in zip(
            bslite.run(backward, given),
            *(reference.run(backward, given, kind) for kind in (np.float32, np.float64)),
            strict=True,
        ):
            assert_three_way(made, peer, exact)
