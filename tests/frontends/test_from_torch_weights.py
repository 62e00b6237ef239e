"""Names of the outputs of `from_torch`, and parameters that change afterwards."""

from typing import Any

import numpy as np
import pytest
from support.torch_modules import Fn, nn, torch

import bslite
from bslite import from_torch
from bslite.spec import ModelSpec


def distance(module: Any, spec: ModelSpec, *inputs: Any) -> float:
    """Relative distance of the engine's first output from torch's."""
    with torch.no_grad():
        want = module(*inputs).numpy()
    made = bslite.run(spec, [x.numpy() for x in inputs])
    return float(np.linalg.norm(made - want) / np.linalg.norm(want))


def test_outputs_have_the_names_of_the_result() -> None:
    net = Fn(lambda x: {"a": x.tanh(), "b": (x.sigmoid(), None, [x.exp()])}).eval()
    assert from_torch(net, torch.randn(2, 3)).labels == ("a", "b.0", "b.2.0")
    pair = Fn(lambda x: (x.tanh(), x.exp())).eval()
    assert from_torch(pair, torch.randn(2, 3)).labels == ("output_0", "output_1")


@pytest.mark.parametrize("how", ["in place", "data", "optimizer", "load_state_dict"])
def test_changed_weights_are_noticed(how: str) -> None:
    net, x = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)).eval(), torch.randn(4, 6)
    spec = from_torch(net, x)
    model = bslite.compile(spec)
    assert distance(net, spec, x) < 1e-6
    model(x)
    if how == "in place":
        with torch.no_grad():
            net[0].weight.mul_(2)
    elif how == "data":
        net[2].bias.data += 1
    elif how == "optimizer":
        net(x).square().sum().backward()
        torch.optim.SGD(net.parameters(), 0.1).step()
    else:
        net.load_state_dict({k: torch.randn_like(v) for k, v in net.state_dict().items()})
    assert distance(net, spec, x) < 1e-6
    with torch.no_grad():
        assert float((model(x)[0] - net(x)).norm() / net(x).norm()) < 1e-6


class Transposed(nn.Module):
    """A product by a weight stored as ``[in, out]``, as GPT-2 has them."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(6, 5)), nn.Parameter(torch.zeros(5))

    def forward(self, x: Any) -> Any:
        return torch.addmm(self.bias, x, self.weight)


def test_a_transposed_weight_is_no_copy() -> None:
    net, x = Transposed().eval(), torch.randn(4, 6)
    spec = from_torch(net, x)
    assert any(np.shares_memory(a, net.weight.detach().numpy()) for a in spec.params.values())
    assert distance(net, spec, x) < 1e-6
    with torch.no_grad():
        net.weight.mul_(-2)
    assert distance(net, spec, x) < 1e-6


def test_msort() -> None:
    net = Fn(lambda x: torch.msort(x.t())).eval()
    spec = from_torch(net, torch.randn(5, 3))
    assert distance(net, spec, torch.randn(4, 3)) == 0
