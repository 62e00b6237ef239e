"""Attention written out is found, in the forms models write it in, and nothing else is taken for it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.check import assert_three_way
from support.graphs import Graph

import bslite
from bslite import reference
from bslite.passes import simplify
from bslite.spec import ModelSpec

ROWS, KEYS, DEPTH = 6, 7, 5
RNG = np.random.default_rng(0)


class Net(Graph):
    """A graph of q, k and v with heads, to be written down as a test likes."""

    def __init__(self, batch: int = 1) -> None:
        super().__init__()
        sizes = {"q": (ROWS, DEPTH), "k": (KEYS, DEPTH), "v": (KEYS, 4)}
        for name, size in sizes.items():
            self.input(name, ("N", 3, *size), (batch, 3, *size))

    def __call__(self, op: str, *inputs: str, **given: Any) -> str:
        return super().__call__(op, op, *inputs, **given)

    def constant(self, *shape: int) -> str:
        return self("constant", value=np.asarray(RNG.uniform(0.5, 2.0, shape), np.float32))

    def number(self, value: float) -> str:
        return self("constant", value=np.asarray(value, np.float32))

    def causal(self, hidden: bool = False, first: int = 0) -> str:
        """Which keys a row sees, or does not see: those up to its own place after ``first``."""
        return self("constant", value=np.tri(ROWS, KEYS, first, dtype=bool) != hidden)

    def shown(self, limit: float = 0.0) -> str:
        """Of the keys of each head those whose first element is above ``limit``, [N, 3, 1, KEYS]."""
        first = self("permute", self("slice", "k", axis=3, start=0, stop=1), order=(0, 1, 3, 2))
        return self("greater", first, self.number(limit))

    def added(self, fill: float) -> str:
        """A computed mask to be added: the number where a key is not shown."""
        return self("where", self.shown(0.5), self.number(0.0), self.number(fill))

    def scores(self, q: str = "q", k: str = "k") -> str:
        return self("matmul", q, self("permute", k, order=(0, 1, 3, 2)))

    def weighted(self, scores: str, v: str = "v") -> str:
        return self("matmul", self("softmax", scores, axis=-1), v)


def turned_first(n: Net) -> str:
    k = n("tanh", n("permute", "k", order=(0, 1, 3, 2)))
    return n.weighted(n("matmul", "q", k))


def scaled_before_turned(n: Net) -> str:
    """As files have it: q and k are scaled before a permutation makes heads of them; here after it, too."""

    def heads(x: str) -> str:
        places = n("add", n("permute", x, order=(0, 2, 1, 3)), n.constant(3, 1))  # [N, ROWS, 3, DEPTH]
        turned = n("permute", n("mul", places, n.constant()), order=(0, 2, 1, 3))
        return n("div", turned, n.constant())

    return n.weighted(n.scores(heads("q"), heads("k")))


def computed_masks(n: Net) -> str:
    mask = n("slice", "k", axis=3, start=0, stop=1)  # [N, 3, KEYS, 1]
    mask = n("permute", mask, order=(0, 1, 3, 2))
    return n.weighted(n("add", n("add", n.scores(), mask), n("add", n.constant(ROWS, KEYS), mask)))


def noisy(n: Net) -> str:
    """A dropout in training: weights times noise of their shape, here of the model's inputs."""
    weights = n("softmax", n("add", n.scores(), n.constant(ROWS, KEYS)), axis=-1)
    return n("matmul", n("mul", n("tanh", n.scores()), weights), "v")


def windows(n: Net) -> str:
    """Swin's: a bias for all windows, then a mask for each of the two windows of an image."""
    scores = n("reshape", n("add", n.scores(), n.constant(1, 3, ROWS, KEYS)), shape=(-1, 2, 3, ROWS, KEYS))
    masked = n("add", scores, n.constant(1, 2, 1, ROWS, KEYS))
    return n.weighted(n("reshape", masked, shape=(-1, 3, ROWS, KEYS)))


Write = Callable[[Net], str]
FOUND: dict[str, Write] = {
    "plain": lambda n: n.weighted(n.scores()),
    "scaled": lambda n: n.weighted(n("add", n("mul", n.scores(), n.constant()), n.constant(ROWS, KEYS))),
    "scaled before": lambda n: n.weighted(
        n.scores(n("mul", "q", n.constant()), n("mul", n.constant(1), "k"))
    ),
    "divided": lambda n: n.weighted(n("div", n.scores(n("div", "q", n.constant())), n.constant())),
    "scaled per head": lambda n: n.weighted(
        n("add", n.constant(3, 1, KEYS), n("mul", n.scores(), n.constant(3, 1, 1)))
    ),
    "two masks": lambda n: n.weighted(
        n("add", n("add", n.constant(ROWS, KEYS), n.scores()), n.constant(1, 3, 1, KEYS))
    ),
    "computed masks": computed_masks,
    "dropped out": lambda n: n("matmul", n("dropout", n("softmax", n.scores(), axis=3), p=0.5), "v"),
    "keys transposed before": turned_first,
    "times noise": noisy,
    "keys scaled after they are transposed": lambda n: n.weighted(
        n("matmul", "q", n("mul", n("permute", "k", order=(0, 1, 3, 2)), n.constant()))
    ),
    "scaled before axes are turned": scaled_before_turned,
    "causal, GPT-2's": lambda n: n.weighted(
        n("where", n.causal(), n("div", n.scores(), n.constant()), n.number(-3.4e38))
    ),
    "causal, filled": lambda n: n.weighted(
        n("where", n.causal(hidden=True), n.number(-np.inf), n("add", n.scores(), n.constant(ROWS, KEYS)))
    ),
    "windows": windows,
    "rows without a key": lambda n: n.weighted(n("where", n.causal(first=-1), n.scores(), n.number(-3.4e38))),
    "hidden by what is computed": lambda n: n.weighted(n("where", n.shown(), n.scores(), n.number(-1e9))),
    "filled by what is computed": lambda n: n.weighted(
        n("where", n.shown(-1.0), n.number(-np.inf), n("mul", n.scores(), n.constant()))
    ),
}


#: In these a product remains: noise, and numbers for each head, which are q's.
MULTIPLIED = (noisy, FOUND["scaled per head"])


def scores_kept(n: Net) -> str:
    scores = n.scores()
    return n("matmul", n("add", n("softmax", scores, axis=-1), scores), "v")


def weights_kept(n: Net) -> str:
    weights = n("softmax", n.scores(), axis=-1)
    return n("matmul", n("permute", weights, order=(0, 1, 3, 2)), n("matmul", weights, "v"))


LEFT: dict[str, Write] = {
    "scores kept": scores_kept,
    "weights kept": weights_kept,
    "over the queries": lambda n: n("matmul", n("softmax", n.scores(), axis=2), "v"),
    "scaled after the mask": lambda n: n.weighted(
        n("mul", n("add", n.scores(), n.constant(ROWS, KEYS)), n.constant())
    ),
    "divides a number": lambda n: n.weighted(n("div", n.constant(), n.scores())),
    "hidden keys keep a weight": lambda n: n.weighted(n("where", n.causal(), n.scores(), n.number(-5.0))),
    "hidden keys keep some weight": lambda n: n.weighted(n("where", n.shown(), n.scores(), n.number(-1e4))),
    "scaled by key": lambda n: n.weighted(n("mul", n.scores(), n.constant(KEYS))),
    "noise for each key": lambda n: n(
        "matmul", n("mul", n("softmax", n.scores(), axis=-1), n.constant(KEYS)), "v"
    ),
    "another function": lambda n: n.weighted(n("tanh", n.scores())),
}


def build(write: Write, batch: int) -> tuple[ModelSpec, list[Any]]:
    net = Net(batch)
    spec = net.build(write(net))
    return spec, [RNG.standard_normal(i.example).astype(np.float32) for i in spec.inputs]


@pytest.mark.parametrize("write", FOUND.values(), ids=FOUND)
@pytest.mark.parametrize("batch", [2, 4])
def test_found(write: Write, batch: int) -> None:
    spec, inputs = build(write, batch)
    fused = simplify(spec)
    ops = [n.op for n in fused.nodes]
    assert ops.count("attention") == 1
    assert not {"softmax", "dropout"} & set(ops)
    assert ops.count("matmul") == (write is noisy)  # what noise is computed by
    assert not {"mul", "div"} & set(ops) or write in MULTIPLIED
    assert fused.outputs == spec.outputs
    exact = reference.run(spec, inputs, np.float64)[0]
    peer = reference.run(spec, inputs, np.float32)[0]
    assert_three_way(reference.run(fused, inputs, np.float32)[0], peer, exact)
    assert_three_way(bslite.run(spec, inputs), peer, exact)


@pytest.mark.parametrize("write", LEFT.values(), ids=LEFT)
def test_left_alone(write: Write) -> None:
    spec, inputs = build(write, 2)
    assert "attention" not in [n.op for n in simplify(spec).nodes]
    exact = reference.run(spec, inputs, np.float64)[0]
    assert_three_way(bslite.run(spec, inputs), reference.run(spec, inputs, np.float32)[0], exact)


def test_weights_that_are_an_output_are_left_alone() -> None:
    net = Net()
    weights = net("softmax", net.scores(), axis=-1)
    spec = net.build(net("matmul", weights, "v"), weights)
    assert "attention" not in [n.op for n in simplify(spec).nodes]


def test_a_row_without_a_key_is_nan_as_softmax_has_it() -> None:
    net = Net()
    mask = np.zeros((ROWS, KEYS), np.float32)
    mask[2] = -np.inf
    spec = net.build(net.weighted(net("add", net.scores(), net("constant", value=mask))))
    inputs = [RNG.standard_normal(i.example).astype(np.float32) for i in spec.inputs]
    y = bslite.run(spec, inputs)
    assert np.isnan(y[:, :, 2]).all()
    assert np.isfinite(np.delete(y, 2, 2)).all()


def test_where_all_keys_are_hidden_they_weigh_alike() -> None:
    """As softmax makes them of equal scores, whatever hides them; infinite ones make NaN."""
    for fill in (-1e9, -3.4e38, -np.inf):
        spec, (q, k, v) = build(
            lambda n, fill=fill: n.weighted(n("where", n.shown(), n.scores(), n.number(fill))), 2
        )  # type: ignore[misc]
        k[1, 2, :, 0] = -1.0
        assert [n.op for n in simplify(spec).nodes].count("attention") == 1
        want, got = reference.run(spec, [q, k, v], np.float32)[0], bslite.run(spec, [q, k, v])
        assert np.isnan(want[1, 2]).all() == (fill == -np.inf)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6, equal_nan=True)


LEAST = float(np.finfo(np.float32).min)
#: What hides keys -> whether it is one attention all the same, and how its scores are written.
TWICE: dict[str, tuple[bool, Callable[[Net, float], str]]] = {
    "two conditions": (
        True,
        lambda n, f: n("where", n.shown(), n("where", n.causal(), n.scores(), n.number(f)), n.number(f)),
    ),
    "two computed ones": (
        True,
        lambda n, f: n("where", n.shown(), n("where", n.shown(-1.0), n.scores(), n.number(f)), n.number(f)),
    ),
    "known, and added": (
        True,
        lambda n, f: n("add", n("where", n.causal(), n.scores(), n.number(f)), n.added(f)),
    ),
    "computed, and added": (
        True,
        lambda n, f: n("add", n("where", n.shown(), n.scores(), n.number(f)), n.added(f)),
    ),
    "a bias below": (
        True,
        lambda n, f: n("where", n.shown(), n("add", n.scores(), n.constant(ROWS, KEYS)), n.number(f)),
    ),
    "added below": (
        False,
        lambda n, f: n("where", n.causal(), n("add", n.scores(), n.added(f)), n.number(f)),
    ),
    "two numbers": (
        False,
        lambda n, f: n("where", n.shown(), n("where", n.causal(), n.scores(), n.number(-3e9)), n.number(f)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("fill", [-1e9, LEAST])
@pytest.mark.parametrize("which", TWICE)
def test_keys_hidden_twice_weigh_as_they_did(which: str, fill: float) -> None:
    """In rows whose keys are all hidden, in one way or the other, too."""
    fused, write = TWICE[which]
    fused &= fill == LEAST or "added" not in which
    spec, (q, k, v) = build(lambda n: n.weighted(write(n, fill)), 2)
    k[1, 2, :4, 0], k[0, 1, :, 0] = -2.0, -2.0
    assert [n.op for n in simplify(spec).nodes].count("attention") == fused
    want, got = reference.run(spec, [q, k, v], np.float32)[0], bslite.run(spec, [q, k, v])
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize(
    ("mask", "left"),
    [
        (np.ones((1, 1, ROWS, KEYS), bool), 3),
        (np.zeros((ROWS, KEYS), np.float32), 3),
        (np.ones((KEYS,), np.float32), 4),
        (np.arange(KEYS) < KEYS - 1, 4),
    ],
)
def test_a_mask_that_hides_nothing_goes(mask: Any, left: int) -> None:
    net = Net()
    spec = net.build(net("attention", "q", "k", "v", net("constant", value=mask)))
    (node,) = (n for n in simplify(spec).nodes if n.op == "attention")
    assert len(node.inputs) == left
