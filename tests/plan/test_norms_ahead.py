"""Batch norms in front of layers without padding go into their weights."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from plan.test_enlarged import Net, check_images
from support.noise import noise

import bslite
from bslite import ModelSpec
from bslite.cache import Derived
from bslite.passes import simplify
from bslite.passes.norms import FAR


def normed(b: Net, x: str, c: int, mean: float = 0.5) -> str:
    """A batch norm of an activation, which has no weights."""
    stats: dict[str, Any] = {
        "weight": noise(c, seed=1), "bias": noise(c, seed=2), "running_mean": mean * noise(c, seed=3),
        "running_var": noise(c, seed=4) ** 2 + np.float32(0.5),
    }  # fmt: skip
    return b("batch_norm", "bn", b("relu", "r", x), eps=1e-3, **stats)


FOLDED: dict[str, Callable[[Net], str]] = {
    "signals": lambda b: b.conv(normed(b, b.image("x", 8, ("L",)), 8), 8, 5, 3, dilation=2),
    "images": lambda b: b.conv(normed(b, b.image("x", 8), 8), 8, 5, 3, 3, stride=2, bias=False),
    "groups": lambda b: b.conv(normed(b, b.image("x", 12), 12), 12, 6, 1, 3, groups=3),
    "depthwise": lambda b: b.conv(normed(b, b.image("x", 8), 8), 8, 16, 2, 2, groups=8),
    "two readers": lambda b: b(
        "concat", "joined", b.conv(y := normed(b, b.image("x", 8), 8), 8, 5, 1, 1), b.conv(y, 8, 4, 1, 1),
        axis=1,
    ),
    "rows": lambda b: b("linear", "l", normed(b, b.image("x", 8, ()), 8), weight=noise(5, 8), bias=noise(5)),
}  # fmt: skip
KEPT: dict[str, Callable[[Net], str]] = {
    "padding": lambda b: b.conv(normed(b, b.image("x", 8), 8), 8, 5, 3, 3, padding=(0, 1, 0, 0)),
    "one reader of two": lambda b: b("add", "sum", b.conv(y := normed(b, b.image("x", 8), 8), 8, 8, 1, 1), y),
    "far from zero": lambda b: b.conv(normed(b, b.image("x", 8), 8, mean=20 * FAR), 8, 5, 1, 1),
    "channels that are not last": lambda b: b(
        "linear", "l", normed(b, b.image("x", 8, (4,)), 8), weight=noise(5, 4)
    ),
}  # fmt: skip


def built(make: Callable[[Net], str]) -> ModelSpec:
    b = Net()
    return b.build(b("tanh", "end", make(b)))


@pytest.mark.parametrize("name", FOLDED)
def test_norms_go_into_the_layers_behind(name: str) -> None:
    spec = built(FOLDED[name])
    assert "batch_norm" not in {n.op for n in simplify(spec).nodes}
    check_images(spec)


@pytest.mark.parametrize("name", KEPT)
def test_other_norms_stay(name: str) -> None:
    spec = built(KEPT[name])
    assert "batch_norm" in {n.op for n in simplify(spec).nodes}
    check_images(spec)


def test_a_norm_that_is_an_output_stays() -> None:
    b = Net()
    spec = b.build(b.conv(y := normed(b, b.image("x", 8), 8), 8, 5, 1, 1), y)
    assert "batch_norm" in {n.op for n in simplify(spec).nodes}


def test_weights_are_made_once_for_models_of_the_same_parameters() -> None:
    spec, derived = built(FOLDED["images"]), Derived()
    made = [simplify(spec, derived) for _ in range(2)]
    weights = [s.params[s.nodes[-2].params["weight"]] for s in made]
    assert np.shares_memory(*weights)
    assert weights[0].dtype == np.float32


def test_explain_says_where_the_norm_went() -> None:
    spec = built(FOLDED["images"])
    assert "batch norm bn folded into the weights" in str(bslite.explain(spec, noise(1, 8, 7, 5)))
