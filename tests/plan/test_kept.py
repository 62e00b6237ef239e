"""Slices go before what makes their source: the same results, of fewer rows and columns."""

import math
from typing import Any

import numpy as np
import pytest
from support.check import all_cases, single_op_spec
from support.graphs import Graph
from support.kernel_checks import check
from support.noise import noise
from support.torch_modules import Made, nn, torch

import bslite
from bslite import reference
from bslite.ops import Case, Kind, Op
from bslite.passes import kept, simplify
from bslite.passes.draft import Draft
from bslite.spec import ModelSpec


def products(spec: ModelSpec) -> float:
    """The operations of a model's products, for its example inputs."""
    shapes = spec.infer_shapes([i.example for i in spec.inputs])
    total = 0.0
    for node in spec.nodes:
        if node.declaration.kind is Kind.CONTRACTION:
            params = {role: spec.params[key].shape for role, key in node.params.items()}
            ins = [shapes[name] for name in node.inputs]
            total += node.declaration.flops(ins, shapes[node.name], params, node.attrs)
    return total


def sliced(op: Op, case: Case, axis: int, start: int) -> tuple[ModelSpec, list[Any]]:
    """A model of a case of an op, one place along an axis of whose result is kept."""
    spec, inputs = single_op_spec(op, case)
    graph = Graph()
    graph.params.update(spec.params)
    for i in spec.inputs:
        graph.input(i.name, i.shape, dtype=i.dtype)
    for node in spec.nodes:
        graph.add(node.op, node.name, *node.inputs, params=dict(node.params), **node.attrs)
    stop = start + 1 or None
    return graph.build(graph("slice", "kept", spec.outputs[0], axis=axis, start=start, stop=stop)), inputs


def of_rules() -> list[Any]:
    """The cases of the ops that a slice may go before."""
    cases = []
    for param in all_cases(least_inputs=1):
        op, _ = param.values
        if op.name in kept.RULES or (op.kind is Kind.POINTWISE and not op.params):
            cases.append(param)
    return cases


@pytest.mark.parametrize(("op", "case"), of_rules())
def test_every_op_makes_the_same_places(op: Op, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "_saves", lambda draft, node, cut: kept._source(draft, node, cut) is not None)
    whole, inputs = single_op_spec(op, case)
    for axis, size in enumerate(whole.infer_shapes([x.shape for x in inputs])[whole.outputs[0]]):
        for start in {0, -1} if size > 1 else ():
            spec, inputs = sliced(op, case, axis, start)
            draft = Draft(spec)
            kept.slices_first(draft)
            with np.errstate(all="ignore"):
                want, got = (reference.run(s, inputs, np.float64)[0] for s in (spec, draft.spec_now()))
            np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12, strict=True)


def test_every_rule_is_met() -> None:
    """Of each op with a rule, some case lets a slice pass."""
    for name in kept.RULES:
        passed = 0
        for param in all_cases(names=[name]):
            op, case = param.values
            spec, inputs = single_op_spec(op, case)
            draft, node = Draft(spec), spec.nodes[-1]
            shape = spec.infer_shapes([x.shape for x in inputs])[node.name]
            cuts = [kept.Cut(axis, -1, None, 1) for axis in range(len(shape))]
            passed += sum(kept._source(draft, node, cut) is not None for cut in cuts)
        assert passed, name


class Block(nn.Module):  # type: ignore[misc]
    """A block of a transformer with its attention written out."""

    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads, self.qkv = heads, nn.ModuleList(nn.Linear(width, width) for _ in range(3))
        self.out, self.up, self.down = nn.Linear(width, width), nn.Linear(width, 96), nn.Linear(96, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Any, mask: Any = None) -> Any:
        n, length, width = x.shape
        y = self.first(x)
        q, k, v = (f(y).view(n, length, self.heads, -1).transpose(1, 2) for f in self.qkv)
        scores = q @ k.transpose(-1, -2) / math.sqrt(width // self.heads)
        scores = scores if mask is None else scores + mask
        x = x + self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(n, length, width))
        return x + self.down(nn.functional.gelu(self.up(self.second(x))))


def encoder(**options: Any) -> Any:
    layer = nn.TransformerEncoderLayer(32, 4, 96, dropout=0.0, **options)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


TAKEN = {
    "first": lambda y: y[:, 0],
    "last": lambda y: y[:, -1],
    "a few": lambda y: y[:, :3],
    "every fourth": lambda y: y[:, ::4],
    "a narrow one": lambda y: y.narrow(1, 2, 4),
}


@pytest.mark.parametrize("taken", TAKEN)
@pytest.mark.parametrize("net", ["written out", "of torch"])
def test_classifiers_compute_the_token_that_they_read(net: str, taken: str) -> None:
    torch.manual_seed(0)
    body = encoder(batch_first=True, norm_first=True)
    if net == "written out":
        body = nn.Sequential(Block(), Block())
    parts = {"body": body, "norm": nn.LayerNorm(32), "head": nn.Linear(32, 5)}
    made = Made(lambda m, x: m.head(TAKEN[taken](m.norm(m.body(x)))), **parts).eval()
    x = torch.randn(3, 16, 32)
    for sizes in (None, "auto") if taken in ("first", "last") else (None,):
        spec = bslite.from_torch(made, (x,), dynamic_shapes=sizes)
        assert products(simplify(spec)) < 0.75 * products(spec)
        check(spec, x.numpy())
        if sizes:
            check(spec, noise(2, 9, 32))


def test_a_token_of_sequences_that_lie_side_by_side() -> None:
    """`nn.MultiheadAttention` makes all rows one axis for its last linear layer."""
    parts = {"attention": nn.MultiheadAttention(32, 4), "linear": nn.Linear(32, 32)}
    made = Made(lambda m, x: m.linear(m.attention(x, x, x, need_weights=False)[0] + x)[0], **parts).eval()
    x = torch.randn(16, 3, 32)
    spec = bslite.from_torch(made, (x,))
    assert products(simplify(spec)) < 0.75 * products(spec)
    check(spec, x.numpy())


@pytest.mark.parametrize("mask", [(1, 1, 1, 16), (1, 1, 16, 16), (3, 4, 16, 16), (16, 16)])
def test_rows_of_a_mask_go_with_those_of_the_scores(mask: tuple[int, ...]) -> None:
    """Also of one that comes as an input, in front of the attention that they become."""
    made = Made(lambda m, x, mask: m.block(x, mask)[:, 5], block=Block()).eval()
    x, m = torch.randn(3, 16, 32), torch.randn(mask)
    spec = bslite.from_torch(made, (x, m))
    simple = simplify(spec)
    assert "attention" in [n.op for n in simple.nodes]
    assert products(simple) < 0.75 * products(spec)
    check(spec, x.numpy(), m.numpy())


def positions(places: Any, columns: int = 64, read_again: bool = False, constant: bool = True) -> ModelSpec:
    """Products of rows and positions, of which each row picks its own, as DeBERTa does."""
    graph = Graph()
    x = graph.input("x", ("N", 6, 8), (2, 6, 8))
    w = noise(1, 8, columns)
    of_all = graph("constant", "w", value=w) if constant else graph.input("w", w.shape)
    y = graph("matmul", "product", x, of_all)
    known = graph("constant", "places", value=np.asarray(places, np.int64)[None])
    picked = graph("gather_elements", "picked", y, graph("repeat_batch", "each", known, y), axis=2)
    return graph.build(graph("relu", "relu", picked), *[y] * read_again)


AROUND = np.arange(6)[:, None] - np.arange(6) + 32


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize(
    "places", [AROUND, AROUND - 64, AROUND[:, ::-1], np.full((6, 2), 63), np.zeros((6, 1))]
)
def test_positions_that_no_row_picks_are_not_multiplied(places: Any, constant: bool) -> None:
    spec = positions(places, constant=constant)
    assert products(simplify(spec)) <= 11 / 64 * products(spec)
    inputs = [noise(*i.example, seed=n) for n, i in enumerate(spec.inputs)]
    check(spec, *inputs)


@pytest.mark.parametrize(
    ("places", "again"), [(AROUND, True), (np.arange(60).reshape(6, 10), False), ([[64], *[[0]] * 5], False)]
)
def test_positions_that_are_read_stay(places: Any, again: bool) -> None:
    spec = positions(places, read_again=again)
    assert products(simplify(spec)) == products(spec)


def test_an_index_beyond_the_positions_is_still_an_error() -> None:
    spec = positions([[64], *[[0]] * 5])
    with pytest.raises(bslite.BsliteError, match="picked"):
        bslite.run(spec, noise(2, 6, 8))


def causal(q: Any, k: Any = None) -> Any:
    k = q if k is None else k
    return nn.functional.scaled_dot_product_attention(q, k, k, is_causal=True)


@pytest.mark.parametrize("sizes", [None, "auto"])
def test_the_last_token_of_a_language_model_sees_all(sizes: Any) -> None:
    parts = {"q": nn.Linear(32, 32), "up": nn.Linear(32, 64), "head": nn.Linear(64, 99)}
    made = Made(lambda m, x: m.head(m.up(causal(m.q(x)))[:, -1]), **parts)
    spec = bslite.from_torch(made.eval(), (torch.randn(2, 9, 32),), dynamic_shapes=sizes)
    assert products(simplify(spec)) < 0.6 * products(spec)
    check(spec, noise(2, 9, 32))
    if sizes:
        check(spec, noise(3, 1, 32))


STAY = {
    "more than half": (lambda m, x: m.linear(x)[:, 1:], (2, 5, 32)),
    "read twice": (lambda m, x: (y := m.linear(x))[:, 0] + y.sum(1), (2, 5, 32)),
    "causal": (lambda m, x: causal(x)[:, 3], (2, 5, 32)),
    "of fewer queries than keys": (lambda m, x: causal(x[:, :4], x)[:, -1], (2, 5, 32)),
    "a channel of an activation": (lambda m, x: m.linear(x).relu()[..., :8], (2, 5, 32)),
}


@pytest.mark.parametrize("name", STAY)
def test_what_is_read_elsewhere_or_saves_nothing_stays(name: str) -> None:
    forward, shape = STAY[name]
    x = torch.randn(shape)
    spec = bslite.from_torch(Made(forward, linear=nn.Linear(32, 32)).eval(), (x,))
    draft = Draft(spec)
    kept.slices_first(draft)
    assert not draft.changed
    check(spec, x.numpy())


def test_two_like_slices_are_one() -> None:
    """A residual block reads its source twice: both its readers ask for one token."""
    made = Made(lambda m, x: m.blocks(x)[:, :1], blocks=nn.Sequential(Block(), Block())).eval()
    spec = bslite.from_torch(made, (torch.randn(2, 16, 32),))
    taken = [n for n in simplify(spec).nodes if n.op == "slice"]
    assert len({n.inputs for n in taken}) == len(taken) == 2  # of the first block's result, of the queries


def test_a_value_that_a_product_reads_twice() -> None:
    """Its rows are one slice, its columns another."""
    graph = Graph()
    x = graph("relu", "x", graph.input("image", (2, 9, 9)))
    columns = graph("slice", "columns", graph("matmul", "square", x, x), axis=2, start=0, stop=2)
    spec = graph.build(graph("slice", "part", columns, axis=1, start=1, stop=4))
    assert products(simplify(spec)) < 0.1 * products(spec)
    check(spec, noise(2, 9, 9))


@pytest.mark.parametrize("place", [2, -1])
def test_rows_of_a_free_number_that_may_be_one(place: int) -> None:
    """A sum of two free sizes, one of which may be one, and a mask of a free size."""
    graph, stop = Graph(), place + 1 or None
    a, b = graph.input("a", ("N", 4), (6, 4)), graph.input("b", ("M", 4), (6, 4))
    y = graph("add", "sum", graph("linear", "layer", a, weight=noise(4, 4)), b)
    spec = graph.build(graph("slice", "part", y, axis=0, start=place, stop=stop))
    check(spec, noise(1, 4), noise(5, 4))
    check(spec, noise(5, 4), noise(1, 4))
    graph = Graph()
    q, mask = graph.input("q", (1, "N", 8), (1, 8, 8)), graph.input("mask", ("M", 8), (8, 8))
    y = graph("attention", "seen", q, *[graph.input(n, (1, 8, 8)) for n in "kv"], mask)
    spec = graph.build(graph("slice", "part", y, axis=1, start=place, stop=stop))
    check(spec, noise(1, 5, 8), noise(1, 8), noise(1, 8, 8), noise(1, 8, 8, seed=1))


@pytest.mark.parametrize(
    ("keys", "sizes"), [(6, (3, 6)), (6, (9, 6)), ("M", (3, 6)), ("M", (8, 30)), ("M", (8, 8)), ("M", (9, 4))]
)
def test_the_last_of_a_free_number_of_rows_may_not_see_all(keys: int | str, sizes: tuple[int, int]) -> None:
    graph = Graph()
    q, k = graph.input("q", (1, "N", 4), (1, 16, 4)), graph.input("k", (1, keys, 4), (1, 6, 4))
    y = graph("attention", "causal", q, k, k, is_causal=True)
    spec = graph.build(graph("slice", "part", y, axis=1, start=-1))
    check(spec, *(noise(1, size, 4, seed=size) for size in sizes))
