"""Models in training: batch norms by the statistics of the batch, dropouts by a noise that is given."""

import dataclasses

import numpy as np
import pytest
import torch
from support.check import assert_three_way
from support.noise import noise
from torch import Tensor, nn

import bslite
from bslite import reference
from bslite.errors import UnsupportedError
from bslite.spec import Array, GraphBuilder, ModelSpec, Node


class Kept(nn.Module):
    """A dropout whose noise is known."""

    def __init__(self, noise: Tensor) -> None:
        super().__init__()
        self.noise = noise

    def forward(self, x: Tensor) -> Tensor:
        return x * self.noise


def network(dropout: nn.Module) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 19, 3, stride=2, padding=1), nn.BatchNorm2d(19), nn.ReLU(),
        nn.Conv2d(19, 7, 1, bias=False), nn.BatchNorm2d(7, affine=False), nn.SiLU(), nn.Flatten(),
        nn.Linear(7 * 6 * 5, 12), nn.BatchNorm1d(12, eps=1e-3), dropout, nn.Linear(12, 4),
    )  # fmt: skip


def in_training() -> tuple[nn.Sequential, ModelSpec]:
    torch.manual_seed(0)
    net = network(nn.Dropout(0.25))
    spec = bslite.from_torch(net.eval(), (torch.zeros(5, 3, 11, 9),))
    *before, last = spec.nodes  # an export at inference has no dropout
    drop = Node("9", "dropout", last.inputs, attrs={"p": 0.25})
    spec = spec.replace(nodes=(*before, drop, dataclasses.replace(last, inputs=("9",))))
    return net, bslite.weights_as_inputs(spec, training=True)


def given(net: nn.Module) -> tuple[list[Array], Array]:
    """The inputs of a step: images, noise, weights."""
    kept = (noise(5, 12, seed=3) > -0.5).astype("f4") / 0.75
    images = noise(5, 3, 11, 9, seed=1, shift=2.0)
    return [images, *(p.detach().numpy() for p in net.parameters())], kept


def test_a_step_is_that_of_torch() -> None:
    net, spec = in_training()
    (images, *weights), kept = given(net)
    names = [name for name, _ in net.named_parameters()]
    assert [i.name for i in spec.inputs] == ["input", *names, "noise/9"]
    assert spec.labels == (*spec.labels[:1], "stats/1", "stats/4", "stats/8")
    backward = bslite.gradient(
        spec, names, [images.shape, *(w.shape for w in weights), kept.shape], spec.labels[:1]
    )
    taken = [images, *weights, kept, noise(5, 4, seed=9)]

    def by_torch(dtype: torch.dtype) -> list[Array]:
        again = network(Kept(torch.from_numpy(kept).to(dtype)))
        again.load_state_dict(net.state_dict())
        again.to(dtype).train()
        for layer in again:
            if isinstance(layer, (nn.BatchNorm1d, nn.BatchNorm2d)):
                layer.momentum = 1.0
        made = again(torch.from_numpy(images).to(dtype))
        made.backward(torch.from_numpy(taken[-1]).to(dtype))
        grads = [p.grad.numpy() for p in again.parameters() if p.grad is not None]
        stats = [
            np.stack([layer.running_mean, layer.running_var]) for layer in again if hasattr(layer, "eps")
        ]
        return [made.detach().numpy(), *stats, *grads]

    exact, peer = by_torch(torch.float64), by_torch(torch.float32)
    for made in exact, peer:  # torch keeps the variance that divides by n - 1
        for i, n in enumerate((5 * 6 * 5, 5 * 6 * 5, 5)):
            made[1 + i][1] *= (n - 1) / n
    wide = reference.run(backward, taken)
    got = bslite.run(backward, taken, threads=1)
    assert len(got) == len(exact) == 4 + len(names)
    for i, label in enumerate(backward.labels):
        # the bias in front of a batch norm has no gradient but rounding
        error = np.linalg.norm(wide[i] - exact[i]) / max(1.0, np.linalg.norm(exact[i]))
        assert error < 1e-6, label  # numbers such as eps are float32 in a model
        if label in ("d/0.bias", "d/7.bias"):
            assert np.abs(got[i]).max() < 1e-4
        else:
            assert_three_way(got[i], peer[i], wide[i])
    again = bslite.run(backward, taken, threads=2)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(got, again, strict=True))


def test_any_batch_takes_part() -> None:
    net, spec = in_training()
    (_, *weights), _ = given(net)
    for n in (2, 9):
        taken = [noise(n, 3, 11, 9), *weights, np.ones((n, 12), "f4")]
        made = bslite.run(spec, taken)
        for got, want in zip(made, reference.run(spec, taken), strict=True):
            np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-4)
    with pytest.raises(bslite.InputError, match=r"noise/9.*got \[3, 12\]"):
        bslite.run(spec, [noise(2, 3, 11, 9), *weights, np.ones((3, 12), "f4")])


@pytest.mark.parametrize("shape", [(16, 24, 40, 50), (7, 33, 1030), (700, 65), (2, 3, 9, 10, 11)])
def test_statistics_of_channels_far_from_zero(shape: tuple[int, ...]) -> None:
    """The squares are of distances from the mean: nothing cancels. Bits do not depend on the threads."""
    g = GraphBuilder("far")
    x = g.input("x", shape)
    spec = g.build(g.add("batch_stats", "stats", x))
    far = noise(*shape) + np.float32(1000) * noise(1, shape[1], *(1,) * (len(shape) - 2), seed=1)
    far = far.astype("f4")
    one, two = (bslite.run(spec, far, threads=t) for t in (1, 2))
    assert one.tobytes() == two.tobytes()
    axes = (0, *range(2, len(shape)))
    np.testing.assert_allclose(one[0], far.mean(axes, "f8"), rtol=2e-7)
    np.testing.assert_allclose(one[1], far.var(axes, "f8"), rtol=2e-5)


def test_a_dropout_of_what_is_no_batch_is_named() -> None:
    g = GraphBuilder("no batch")
    x = g.input("x", ("n", 4), (3, 4))
    total = g.add("sum", "total", x, axes=(0,))
    spec = g.build(g.add("dropout", "drop", total))
    with pytest.raises(UnsupportedError, match=r"'drop'.*\[4\] has no axis 0 of 3"):
        bslite.weights_as_inputs(spec, training=True)
