"""Gradients of whole models: accumulation, what is asked for, and whole networks by torch's autograd."""

from typing import Any

import numpy as np
import pytest
import torch
from support.check import Array, assert_three_way
from support.noise import noise
from torch import nn

import bslite
from bslite import reference
from bslite.errors import InputError, SpecError, UnsupportedError
from bslite.spec import GraphBuilder, ModelSpec


def exact(spec: ModelSpec, *given: Any) -> dict[str, Array]:
    """The outputs in float64, by label."""
    made = reference.run(spec, [np.asarray(x) for x in given])
    return dict(zip(spec.labels, made, strict=True))


def test_what_is_read_twice_adds_up() -> None:
    g = GraphBuilder("twice")
    x = g.input("x", (3,))
    g.params["w"] = noise(3, 3)
    a = g.add("linear", "a", x, params={"weight": "w"})
    b = g.add("linear", "b", a, params={"weight": "w"})  # the same weights again
    spec = g.build(g.add("sum", "loss", g.add("mul", "y", b, x)))
    found = exact(bslite.gradient(spec, ["x", "w"]), noise(3, seed=1))
    w, v = (np.asarray(t, np.float64) for t in (spec.params["w"], noise(3, seed=1)))
    np.testing.assert_allclose(found["d/x"], w @ w @ v + (w @ w).T @ v, rtol=1e-12)
    np.testing.assert_allclose(found["d/w"], np.outer(v, w @ v) + np.outer(w.T @ v, v), rtol=1e-12)


def test_each_output_has_a_gradient_from_behind() -> None:
    g = GraphBuilder("outputs")
    x = g.input("x", ("n", 4), (2, 4))
    low, high = g.add("exp", "low", x), g.add("neg", "high", x)
    places = g.add("argmax", "places", x, axis=1)
    spec = g.build(low, high, places, labels=["a", "b", "c"])
    backward = bslite.gradient(spec, ["x"], [(3, 4)])
    assert [(i.name, i.shape) for i in backward.inputs] == [("x", (3, 4)), ("d/a", (3, 4)), ("d/b", (3, 4))]
    assert backward.labels == ("a", "b", "c", "d/x")
    x0, da, db = (noise(3, 4, seed=i) for i in range(3))
    np.testing.assert_allclose(
        exact(backward, x0, da, db)["d/x"], da * np.exp(x0, dtype="f8") - db, rtol=1e-12
    )
    with pytest.raises(InputError, match=r"\[2, 4\]"):
        bslite.run(backward, [noise(2, 4)] * 3)
    alone = bslite.gradient(spec, ["x"], [(3, 4)], of=["b"])
    assert [i.name for i in alone.inputs] == ["x", "d/b"]
    np.testing.assert_array_equal(exact(alone, x0, db)["d/x"], -np.asarray(db, "f8"))
    with pytest.raises(SpecError, match="no output of float32 called c, d"):
        bslite.gradient(spec, ["x"], of=["a", "c", "d"])


def test_all_parameters_unless_some_are_named() -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2))
    spec = bslite.from_torch(module.eval(), (torch.zeros(2, 3, 4, 4),))
    learnt = {name for name, _ in module.named_parameters()}
    assert {label for label in bslite.gradient(spec).labels if label.startswith("d/")} == {
        f"d/{n}" for n in learnt
    }
    some = bslite.gradient(spec, ["4.weight"])
    assert some.labels[-1] == "d/4.weight"
    assert not any(node.op == "conv_transpose2d" for node in some.nodes)  # nothing in front is asked for


def test_what_nothing_depends_on_has_the_gradient_zero() -> None:
    g = GraphBuilder("apart")
    x, y = g.input("x", (2, 3)), g.input("y", (4,))
    spec = g.build(g.add("sum", "s", g.add("round", "r", x)), g.add("neg", "n", y))
    found = exact(bslite.gradient(spec, ["x"]), noise(2, 3), noise(4), np.ones(()), noise(4))
    assert found["d/x"].shape == (2, 3)
    assert not found["d/x"].any()


def test_errors_name_what_is_wrong() -> None:
    g = GraphBuilder("wrong")
    x, i = g.input("x", (2, 3, 5)), g.input("i", (2,), dtype="int64")
    a = g.add("adaptive_max_pool1d", "first", x, output_size=3)
    b = g.add("adaptive_max_pool1d", "second", x, output_size=2)
    c = g.add("gather", "third", x, i)
    spec = g.build(a, b, c)
    with pytest.raises(UnsupportedError, match=r"'first'.*'adaptive_max_pool1d'.*'second'.*'adaptive"):
        bslite.gradient(spec, ["x"])
    with pytest.raises(SpecError, match="'z' is neither an input nor a parameter of the model 'wrong'"):
        bslite.gradient(spec, ["z"])
    with pytest.raises(SpecError, match="'i' is int64; gradients are of float32"):
        bslite.gradient(spec, ["i"])


def test_a_layer_without_a_gradient_may_stand_elsewhere() -> None:
    g = GraphBuilder("elsewhere")
    x, y = g.input("x", (2, 3, 2)), g.input("y", (2, 3, 5))
    spec = g.build(g.add("mul", "m", x, g.add("adaptive_max_pool1d", "c", y, output_size=2)))
    assert "d/x" in bslite.gradient(spec, ["x"]).labels


def test_all_layers_without_a_gradient_are_named_one_behind_the_other_too() -> None:
    g = GraphBuilder("behind")
    first = g.add("adaptive_max_pool1d", "first", g.input("x", (2, 3, 5)), output_size=3)
    spec = g.build(g.add("adaptive_max_pool1d", "second", g.add("tanh", "t", first), output_size=2))
    with pytest.raises(bslite.UnsupportedError, match=r"'first'.*'second'"):
        bslite.gradient(spec, ["x"])


def test_names_that_would_be_there_twice_are_refused() -> None:
    g = GraphBuilder("twice")
    spec = g.build(g.add("tanh", "y", g.input("x", (2, 3))))
    with pytest.raises(SpecError, match="called d/x"):
        bslite.gradient(spec, ["x", "x"])
    with pytest.raises(SpecError, match="gradient of 'y' is there already"):
        bslite.gradient(bslite.gradient(spec, ["x"]), ["x"])


def test_statistics_have_no_gradient_and_tables_have_to_be_named() -> None:
    module = nn.Sequential(nn.Embedding(7, 6), nn.Linear(6, 4), nn.Flatten(), nn.BatchNorm1d(8)).eval()
    spec = bslite.from_torch(module, torch.tensor([[1, 2]]))
    named = ["1.weight", "1.bias", "3.weight", "3.bias"]
    assert list(bslite.gradient(spec).labels[1:]) == [f"d/{name}" for name in named]
    assert bslite.gradient(spec, ["0.weight"]).labels[1:] == ("d/0.weight",)
    with pytest.raises(SpecError, match=r"'3\.running_mean' is a statistic of layer"):
        bslite.gradient(spec, ["3.running_mean"])


@pytest.mark.parametrize("correction", [0, 1, 2])
@pytest.mark.parametrize("op", ["var", "std"])
@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
def test_spreads_of_rows_that_have_none_are_torchs(op: str, correction: int) -> None:
    g = GraphBuilder("spread")
    x = np.array([[1.0, 1.0, 1.0], [1.0, 2.0, 4.0]], np.float32)
    for given in (x, x[:, :1]):
        spec = g.build(g.add(op, f"y{given.shape[1]}", g.input(f"x{given.shape[1]}", given.shape), axes=(1,),
                             correction=correction))  # fmt: skip
        g = GraphBuilder("spread")
        seed = np.array([1.5, -2.0], np.float32)
        ours = bslite.run(bslite.gradient(spec, [spec.inputs[0].name]), [given, seed])[1]
        theirs = torch.from_numpy(given).requires_grad_()
        getattr(torch, op)(theirs, 1, correction=correction).backward(torch.from_numpy(seed))
        np.testing.assert_allclose(ours, theirs.grad.numpy(), rtol=1e-5, equal_nan=True)


class Residual(nn.Module):
    """Convolutions of several kinds around a sum, pools, a norm, an attention and a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 12, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(12)
        self.depthwise = nn.Conv2d(12, 12, 5, padding=2, groups=12)
        self.point = nn.Conv2d(12, 12, 1, bias=False)
        self.group = nn.GroupNorm(3, 12)
        self.up = nn.ConvTranspose2d(12, 8, 2, stride=2)
        self.layer = nn.LayerNorm(8)
        self.qkv = nn.Linear(8, 24)
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        y = nn.functional.max_pool2d(torch.relu(self.norm(self.stem(x))), 3, 2, 1)
        y = y + nn.functional.silu(self.group(self.point(nn.functional.gelu(self.depthwise(y)))))
        y = nn.functional.avg_pool2d(self.up(y), 2)
        tokens = self.layer(y.flatten(2).transpose(1, 2))
        q, k, v = self.qkv(tokens).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        logits = self.head((tokens + mixed).mean(1)).log_softmax(-1)
        return -logits.gather(1, target[:, None]).mean()


def test_gradients_of_a_network_are_autograds() -> None:
    torch.manual_seed(0)
    module = Residual().eval()
    module.norm.running_mean.uniform_(-0.3, 0.3)
    x, target = torch.randn(3, 3, 17, 16), torch.tensor([0, 4, 2])
    spec = bslite.from_torch(module, (x, target))
    backward = bslite.gradient(spec, ["x", *(name for name, _ in module.named_parameters())])
    given = [x.numpy(), target.numpy()]
    truth = exact(backward, *given)
    ours = dict(zip(backward.labels, bslite.run(backward, given), strict=True))
    found = {}
    for dtype in (torch.float32, torch.float64):
        module.to(dtype).zero_grad()
        image = x.to(dtype, copy=True).requires_grad_()
        loss = module(image, target)
        loss.backward()
        found[dtype] = {"x": image.grad, **{n: p.grad for n, p in module.named_parameters()}}
        assert float(loss.detach()) == pytest.approx(float(truth[spec.labels[0]]), rel=1e-5)
    for name, grad in found[torch.float64].items():
        peer, want = found[torch.float32][name].numpy(), grad.numpy()
        # What softmax is alike for has the gradient zero: rounding of what it is a sum of is left.
        scale = np.linalg.norm(want)
        assert np.linalg.norm(truth[f"d/{name}"] - want) <= 1e-7 * scale + 1e-9, name
        if scale > 1e-6:
            assert_three_way(ours[f"d/{name}"], peer, want)


def test_finite_differences() -> None:
    """Along random directions, of a smooth model; no framework is asked."""
    g = GraphBuilder("smooth")
    x, m = g.input("x", (2, 6, 5, 4)), g.input("m", (8, 8))
    g.params |= {"w": noise(8, 6, 3, 3, scale=0.3), "b": noise(8)}
    y = g.add("tanh", "t", g.add("conv2d", "c", x, params={"weight": "w", "bias": "b"}, padding=1))
    y = g.add("reshape", "tokens", g.add("permute", "p", y, order=(0, 2, 3, 1)), shape=(2, 20, 8))
    y = g.add("softmax", "soft", g.add("matmul", "l", y, m), axis=1)
    spec = g.build(g.add("sum", "loss", g.add("mul", "square", y, y)))
    point = {"x": noise(2, 6, 5, 4, seed=1), "m": noise(8, 8, scale=0.5)}
    grads = exact(bslite.gradient(spec, ["x", "m"]), *point.values())
    rng = np.random.default_rng(2)
    for _ in range(3):
        along = {name: rng.standard_normal(at.shape) for name, at in point.items()}
        moved = [[at + step * along[name] for name, at in point.items()] for step in (1e-5, -1e-5)]
        after, before = (exact(spec, *at)["loss"] for at in moved)
        slope = sum(np.vdot(grads[f"d/{name}"], along[name]) for name in point)
        assert (after - before) / 2e-5 == pytest.approx(slope, rel=1e-7)


def test_gradients_of_weights_that_are_inputs() -> None:
    """Those of the same weights as constants, in a network of the layers that take theirs so."""
    module = nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1, groups=8),
        nn.GroupNorm(2, 8), nn.ConvTranspose2d(8, 6, 3, 2, 1, groups=2), nn.Flatten(2), nn.Conv1d(6, 4, 5),
        nn.GELU(), nn.LayerNorm(77), nn.Linear(77, 3), nn.Flatten(), nn.Linear(12, 2),
    )  # fmt: skip
    x = noise(2, 3, 10, 10)
    spec = bslite.from_torch(module.eval(), (torch.from_numpy(x),))
    opened = bslite.weights_as_inputs(spec)
    weights = [spec.params[i.name] for i in opened.inputs[1:]]
    names = [i.name for i in opened.inputs[1:]]
    assert len(names) == len(list(module.parameters()))
    backward = bslite.gradient(opened, names)
    seed = noise(2, 2, seed=1)
    found = exact(backward, x, *weights, seed)
    fixed = bslite.gradient(spec, names)
    truth = exact(fixed, x, seed)
    peer = reference.run(fixed, [x, seed], np.float32)
    made = bslite.run(backward, [x, *weights, seed])
    for label, near, ours in zip(fixed.labels, peer, made, strict=True):
        np.testing.assert_allclose(found[label], truth[label], rtol=1e-5, atol=1e-6)  # eps is float32
        size = np.linalg.norm(truth[label])
        assert np.linalg.norm(ours - truth[label]) <= 4 * np.linalg.norm(near - truth[label]) + 1e-6 * size
