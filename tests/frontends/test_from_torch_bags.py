"""Embeddings in bags: of one length, and of lengths that offsets tell."""

from typing import Any

import numpy as np
import pytest
from support.check import assert_three_way
from support.torch_modules import Made, nn, torch

import bslite
from bslite import UnsupportedError, from_torch

MODES = ("sum", "mean", "max")
BAGS = (0, 3, 3, 4, 9)  # the second is empty


def bag(mode: str, **how: Any) -> Any:
    torch.manual_seed(0)
    return nn.EmbeddingBag(11, 7, mode=mode, **how).eval()


def made(forward: Any, **parts: Any) -> Any:
    return Made(forward, **parts).eval()


def alike(net: Any, got: Any, *given: Any) -> None:
    """Three-way; the truth is the same sum in float64."""
    exact = nn.EmbeddingBag.from_pretrained(net.weight.detach().double(), mode=net.mode)
    with torch.no_grad():
        peer = net(*given).numpy()
        truth = exact(*(x.double() if x is not None and x.is_floating_point() else x for x in given)).numpy()
    assert_three_way(np.asarray(got), peer, truth)


@pytest.mark.parametrize("mode", MODES)
def test_bags_of_one_length(mode: str) -> None:
    net = bag(mode)
    spec = from_torch(net, torch.zeros(2, 5, dtype=torch.int64))
    assert spec.inputs[0].shape == ("N", 5)
    for batch in (1, 3):
        ids = torch.randint(11, (batch, 5))
        for backend in ("reference", "cpu"):
            alike(net, bslite.run(spec, ids.numpy(), backend=backend), ids)


@pytest.mark.parametrize("mode", MODES)
def test_bags_by_offsets(mode: str) -> None:
    net, offsets = bag(mode), torch.tensor(BAGS)
    spec = from_torch(net, (torch.zeros(12, dtype=torch.int64), offsets))
    assert [i.shape for i in spec.inputs] == [("N",), (5,)]
    for count in (10, 12):
        ids = torch.randint(11, (count,))
        for backend in ("reference", "cpu"):
            alike(net, bslite.run(spec, (ids.numpy(), offsets.numpy()), backend=backend), ids, offsets)


def test_weights_of_single_ids() -> None:
    net = bag("sum")
    ids, weights, offsets = torch.randint(11, (4, 3)), torch.rand(4, 3), torch.tensor(BAGS)
    with_axis = from_torch(made(lambda m, x, w: m.bag(x, None, w), bag=net), (ids, weights))
    alike(net, bslite.run(with_axis, (ids.numpy(), weights.numpy())), ids, None, weights)
    flat = ids.flatten(), offsets, weights.flatten()
    alike(net, bslite.run(from_torch(net, flat), tuple(x.numpy() for x in flat)), *flat)


@pytest.mark.parametrize("mode", MODES)
def test_in_place_of_torch(mode: str) -> None:
    """As many bags and ids as a call brings."""
    net = bag(mode)
    fast = bslite.optimize(bag(mode), tune=False, fallback="error")
    for count, starts in ((9, BAGS), (6, [0]), (12, [0, 4, 8]), (12, [0, 1, 2, 2, 8, 8])):
        ids, offsets = torch.randint(11, (count,)), torch.tensor(starts)
        with torch.no_grad():
            alike(net, fast(ids, offsets).numpy(), ids, offsets)
    for shape in ((1, 5), (3, 5), (4, 7)):
        ids = torch.randint(11, shape)
        with torch.no_grad():
            alike(net, fast(ids).numpy(), ids)


def test_offsets_known_beforehand() -> None:
    ids = torch.randint(11, (12,))
    for offsets in ([0, 4, 8], [0, 2, 8], [0, 5, 10]):
        net = made(lambda m, x: m.bag(x, m.offsets), bag=bag("max"), offsets=torch.tensor(offsets))
        spec = from_torch(net, ids)
        alike(net.bag, bslite.run(spec, ids.numpy()), ids, net.offsets)


def test_what_is_left_to_torch_is_named() -> None:
    for how, text in (({"padding_idx": 1}, "padding_idx=1"), ({"include_last_offset": True}, "last_offset")):
        with pytest.raises(UnsupportedError, match=f"embedding_bag.*{text}"):
            from_torch(bag("sum", **how), (torch.zeros(12, dtype=torch.int64), torch.tensor(BAGS)))


def test_a_range_by_steps() -> None:
    net = made(lambda m, x: x.flatten() + torch.arange(3, 3 + 2 * x.numel(), 2))
    spec = from_torch(net, torch.zeros(2, 5, dtype=torch.int64))
    x = torch.randint(9, (4, 5))
    np.testing.assert_array_equal(bslite.run(spec, x.numpy()), net(x).numpy())
