"""What `from_torch` keeps of a module beyond its operations: names, parameters, inputs, outputs, batch."""

import warnings
from typing import Any

import numpy as np
import pytest
from support.process import printed
from support.torch_modules import F, Fn, Made, nn, torch

from bslite import from_torch, reference
from bslite.spec import ModelSpec

leaves = torch.utils._pytree.tree_leaves


def check(module: Any, spec: ModelSpec, *inputs: Any) -> None:
    """The reference gives what torch gives, output by output."""
    with torch.no_grad():
        want = [y.numpy(force=True) for y in leaves(module(*(x.clone() for x in inputs))) if y is not None]
    got = reference.run(spec, [x.numpy() for x in inputs], np.float32)
    assert len(got) == len(want)
    for y, z in zip(want, got, strict=True):
        assert np.linalg.norm(y - z) <= 2e-6 * np.linalg.norm(y)


class Block(nn.Module):
    """A residual block whose ReLU works in place and is called twice."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Any) -> Any:
        y = self.conv2(self.relu(self.bn1(self.conv1(x))))
        y += x
        return self.relu(y)


def test_layers_and_parameters_are_named_as_in_the_module() -> None:
    net = nn.Sequential(nn.Sequential(Block(4), nn.Dropout()), nn.Flatten(), nn.Linear(100, 3)).eval()
    spec = from_torch(net, torch.randn(2, 4, 5, 5))
    assert [n.name for n in spec.nodes] == [
        *("0.0.conv1", "0.0.bn1", "0.0.relu", "0.0.conv2", "0.0.add", "0.0.relu#2", "1", "2")
    ]
    assert set(spec.params) == {k for k in net.state_dict() if "num_batches" not in k}
    assert spec.name == "Sequential"
    assert from_torch(net, torch.randn(2, 4, 5, 5), name="mine").name == "mine"
    check(net, spec, torch.randn(3, 4, 5, 5))


def test_a_layer_that_takes_several_ops_names_each() -> None:
    class Norm(nn.LayerNorm):
        def forward(self, x: Any) -> Any:
            return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)

    spec = from_torch(nn.Sequential(Norm(4)).eval(), torch.randn(1, 4, 5, 5))
    assert [n.name for n in spec.nodes] == ["0.permute", "0.layer_norm", "0.permute#2"]


def test_a_module_without_submodules_is_named_after_its_op() -> None:
    assert [n.name for n in from_torch(nn.Tanh().eval(), torch.randn(1, 4)).nodes] == ["tanh"]


def test_a_computed_weight_does_not_change_the_layers_name() -> None:
    net = nn.Sequential(torch.nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))).eval()
    spec = from_torch(net, torch.randn(1, 4))
    assert [n.name for n in spec.nodes] == ["0"]
    check(net, spec, torch.randn(2, 4))


def test_parameters_are_not_copied() -> None:
    net = nn.Linear(3, 2).eval()
    spec = from_torch(net, torch.randn(1, 3))
    assert np.shares_memory(spec.params["weight"], net.weight.detach().numpy())


@pytest.mark.parametrize("gaps", [False, True])
def test_a_parameter_is_copied_if_it_has_gaps(gaps: bool) -> None:
    net = nn.Conv2d(3, 2, 3).eval().to(memory_format=torch.channels_last)
    if gaps:
        net.weight = nn.Parameter(torch.randn(2, 6, 3, 3)[:, ::2])
    spec = from_torch(net, torch.randn(1, 3, 5, 5))
    assert spec.params["weight"].flags.c_contiguous == gaps
    check(net, spec, torch.randn(2, 3, 5, 5))


def test_shared_parameters_stay_shared() -> None:
    def forward(net: Any, x: Any) -> Any:
        y = net.second(net.first(net.first(x)))
        return y @ net.first.weight.t() @ net.first.weight

    net = Made(forward, first=nn.Linear(4, 4), second=nn.Linear(4, 4)).eval()
    net.second.weight = net.first.weight
    spec = from_torch(net, torch.randn(1, 4))
    assert [n.params["weight"] for n in spec.nodes[:4]] == ["first.weight"] * 4
    assert len(spec.params) == 4  # the weight, its transpose, two biases
    check(net, spec, torch.randn(2, 4))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.relu_(x) + x,
        lambda x: [y := x * 2, F.relu_(y), y + 1],
        lambda x: [y := x * 2, y.view(-1).neg_(), y],
        lambda x: [y := x * 2, z := y.flatten(1), y.add_(1), z * 1],
    ],
)
def test_in_place_changes_are_seen_through_every_name(function: Any) -> None:
    net = Fn(function).eval()
    check(net, from_torch(net, torch.randn(1, 2, 3)), torch.randn(3, 2, 3))


def test_constants_are_computed_once() -> None:
    def forward(x: Any, p: Any) -> Any:
        mask = torch.zeros(4)
        mask[1:] = 3.0
        grid = torch.arange(4).view(1, 4)
        shift = mask * torch.tensor([1.0, 2.0, 3.0, 4.0])
        return x * p.exp() * p.sum().item() + shift - grid + torch.tensor(0.5)

    net = Fn(forward, 4).eval()
    spec = from_torch(net, torch.randn(1, 4))
    assert [n.op for n in spec.nodes if n.op != "constant"] == ["mul", "mul", "add", "add", "add"]
    check(net, spec, torch.randn(3, 4))


def test_outputs_are_flattened_in_order() -> None:
    net = Fn(lambda x: {"z": x.tanh(), "a": (x, [x.sigmoid(), None]), "same": x.tanh()}).eval()
    spec = from_torch(net, torch.randn(1, 4))
    assert spec.outputs == ("tanh", spec.inputs[0].name, "sigmoid", "tanh#2")
    check(net, spec, torch.randn(3, 4))


def test_a_parameter_may_be_an_output() -> None:
    net = Fn(lambda x, p: (x.tanh(), p), 3, 2).eval()
    check(net, from_torch(net, torch.randn(1, 4)), torch.randn(3, 4))


def test_several_inputs() -> None:
    class Two(nn.Module):
        def forward(self, image: Any, pair: Any, scale: float, unused: Any = None) -> Any:
            return image * scale + pair[0] * pair[1]

    net, pair = Two().eval(), (torch.randn(1, 3), torch.randn(3))
    spec = from_torch(net, (torch.randn(1, 3), pair, 2.0))
    assert [i.shape for i in spec.inputs] == [("N", 3), ("N", 3), (3,)]
    assert spec.inputs[0].name == "image"
    x, y, z = torch.randn(4, 3), torch.randn(4, 3), torch.randn(3)
    (got,) = reference.run(spec, [x.numpy(), y.numpy(), z.numpy()], np.float32)
    assert np.allclose(got, net(x, (y, z), 2.0))


def test_an_unused_input_remains_an_input() -> None:
    net = Fn(lambda x, y: x.tanh()).eval()
    spec = from_torch(net, (torch.randn(2, 3), torch.randn(2, 5)))
    assert [i.shape for i in spec.inputs] == [("N", 3), ("N", 5)]


def test_the_example_shape_is_kept() -> None:
    (declared,) = from_torch(nn.Tanh().eval(), torch.randn(5, 4)).inputs
    assert (declared.shape, declared.example) == (("N", 4), (5, 4))


@pytest.mark.parametrize("batch", [1, 2])
def test_a_model_made_for_one_batch_keeps_it_and_warns(batch: int) -> None:
    net = Fn(lambda x: x.view(batch, 6).tanh()).eval()
    with pytest.warns(UserWarning, match=rf"'Fn': the batch is fixed at the example's {batch}, torch"):
        spec = from_torch(net, torch.randn(batch, 6))
    assert spec.inputs[0].shape == (batch, 6)
    check(net, spec, torch.randn(batch, 6))


def test_a_branch_on_the_batch_is_not_taken_for_all_batches() -> None:
    net = Fn(lambda x: x.tanh() if x.shape[0] > 4 else x).eval()
    with pytest.warns(UserWarning, match="the batch is fixed at the example's 3"):
        assert from_torch(net, torch.randn(3, 6)).inputs[0].shape == (3, 6)


def test_warnings_of_the_model_pass() -> None:
    net = Fn(lambda x: warnings.warn("odd", stacklevel=1) or x.tanh()).eval()
    with pytest.warns(UserWarning, match="odd"):
        assert from_torch(net, torch.randn(2, 3)).inputs[0].shape == ("N", 3)


@pytest.mark.filterwarnings("error")
def test_a_warning_made_an_error_is_raised_as_such() -> None:
    net = Fn(lambda x: warnings.warn("odd", stacklevel=1) or x.tanh()).eval()
    with pytest.raises(UserWarning, match=r"^odd$"):
        from_torch(net, torch.randn(2, 3))


def test_the_frontend_imports_torch_only_when_called() -> None:
    printed("import sys, bslite; bslite.from_torch; sys.exit('torch' in sys.modules)")
