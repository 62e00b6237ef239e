"""``torch.compile(model, backend="bslite")``, in a process of its own that never imports bslite itself."""

import json
import textwrap
import warnings
from collections import OrderedDict
from typing import Any

import pytest
from support.dropin_models import F, Net, Stack, agree, images, near, nn, said, torch
from support.process import printed
from support.torch_modules import Fn

from bslite.dropin import dynamo
from bslite.dropin.dynamo import MAX_NUMBERS, Runner

pytestmark = pytest.mark.processes

PRELUDE = """
import json, sys, warnings
import torch
from torch import nn
from torch._dynamo.utils import counters

torch.manual_seed(0)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.conv2, self.fc = nn.Conv2d(8, 8, 3, stride=2), nn.Linear(8, 5)

    def forward(self, x):
        y = self.conv2(torch.relu(self.bn1(self.conv1(x)))).relu()
        return self.fc(y.mean((2, 3))).view(x.shape[0], 5, 1)
"""


def run(script: str) -> Any:
    """What a script prints last, as JSON, run in a new process in which a warning is an error."""
    return json.loads(printed(PRELUDE + textwrap.dedent(script)).splitlines()[-1])


def test_twenty_batches_recompile_once_in_a_process_that_does_not_import_bslite() -> None:
    result = run(
        """
        net = Net().eval()
        assert not any(name.partition(".")[0] == "bslite" for name in sys.modules)
        compiled = torch.compile(net, backend="bslite", fullgraph=True)
        errors = []
        with torch.no_grad():
            for batch in range(2, 22):
                x = torch.randn(batch, 3, 9, 9)
                want = net(x)
                errors.append(float((compiled(x) - want).norm() / want.norm()))
        print(json.dumps({"errors": errors, "graphs": counters["stats"]["unique_graphs"]}))
        """
    )
    assert len(result["errors"]) == 20
    assert max(result["errors"]) < 1e-5
    assert result["graphs"] <= 2


def test_it_really_ran_in_bslite() -> None:
    result = run(
        """
        from bslite.dropin import model
        calls = []
        prepared = model.Model.prepared
        def noted(self, tensors):
            calls.append(len(self.spec.nodes))
            return prepared(self, tensors)
        model.Model.prepared = noted
        options = {"tune": False, "fallback": "error"}
        compiled = torch.compile(Net().eval(), backend="bslite", options=options)
        with torch.no_grad():
            compiled(torch.randn(2, 3, 9, 9))
        print(json.dumps(calls))
        """
    )
    assert result
    assert max(result) >= 7


@pytest.fixture(autouse=True)
def _fresh() -> Any:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(net: Any, **options: Any) -> Any:
    options = {"tune": False, "fallback": "error", **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.compile(net, backend="bslite", options=options)


def test_changed_weights_are_followed() -> None:
    net = Net().eval()
    fast = compiled(net)
    x = images()
    agree(fast, net, x)
    net.fc.weight.data.mul_(3)
    agree(fast, net, x)
    net.load_state_dict(Net().state_dict())
    agree(fast, net, x)


def test_two_modules_of_one_class() -> None:
    nets = [Net().eval(), Net().eval()]
    fast = [compiled(net) for net in nets]
    for _ in range(2):
        for f, net in zip(fast, nets, strict=True):
            agree(f, net, images())


def test_several_inputs_results_and_a_graph_break() -> None:
    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: Any, y: Any, scale: float = 2.0) -> Any:
            z = self.a(x) * scale + y
            if z.sum() > 0:
                z = z.relu()
            return {"b": self.b(z), "x": (x.tanh(), None)}

    net = Broken().eval()
    fast = compiled(net, fallback="silent")
    for batch in (2, 3, 4):
        agree(fast, net, torch.randn(batch, 4), torch.randn(batch, 4))
        agree(fast, net, torch.randn(batch, 4), torch.randn(batch, 4), scale=3.0)


def test_an_unsupported_operation_runs_in_torch() -> None:
    net = Stack(torch.special.erfinv).eval()
    with torch.no_grad():
        net.first.weight.mul_(0.1)
        fast = compiled(net, fallback="warn")
        (text,) = said(fast, 0.1 * torch.randn(3, 12))
        assert "1 x aten.special_erfinv.default; at the model's own forward" in text
    agree(fast, net, 0.1 * torch.randn(3, 12))


def test_layers_keep_their_paths() -> None:
    inner = nn.Sequential(nn.Linear(4, 4), Fn(lambda x: torch.special.erfinv(torch.tanh(x) * 0.5)))
    net = nn.Sequential(OrderedDict(inner=inner))
    with torch.no_grad():
        (text,) = said(compiled(net.eval(), fallback="warn"), torch.randn(3, 4))
    assert text.endswith("special_erfinv.default; at inner.1")


def test_a_layer_that_is_one_op_elsewhere() -> None:
    """As for `bslite.optimize`, but Dynamo's graph has no layer to ask for its attributes."""
    net = nn.Sequential(nn.Conv2d(3, 6, 3), nn.LocalResponseNorm(3, k=2.0), nn.ReLU()).eval()
    fast = compiled(net)
    for batch in (2, 3, 1):
        agree(fast, net, images(batch))
    torch._dynamo.reset()
    agree(compiled(net[1]), net[1], images())


def test_a_plain_function() -> None:
    def function(x: Any, w: Any) -> Any:
        return F.relu(x @ w) + x.sum(-1, keepdim=True) * 0

    fast = compiled(function, fallback="silent")
    for batch in (2, 3, 5):
        x, w = torch.randn(batch, 4), torch.randn(4, 4)
        near(fast(x, w), function(x, w))


class Scaled(nn.Module):
    """Numbers that Dynamo makes inputs with ``dynamic=True``: ``eps``, ``p``, ``scale``."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.norm, self.drop, self.scale = nn.Linear(6, 6), nn.LayerNorm(6), nn.Dropout(0.3), 0.5

    def forward(self, x: Any) -> Any:
        return self.norm(self.drop(self.fc(x)) * self.scale)


def test_numbers_that_dynamo_makes_inputs_are_numbers_again() -> None:
    net = Scaled().eval()
    fast = torch.compile(net, backend="bslite", dynamic=True, options={"tune": False, "fallback": "error"})
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        for length in (5, 7, 4, 9):
            x = torch.randn(3, length, 6)
            near(fast(x), net(x))


def test_numbers_that_change_at_every_call_run_in_torch() -> None:
    fast = torch.compile(lambda x, a: (x * a).tanh(), backend="bslite", dynamic=True, options={"tune": False})
    x = torch.randn(3, 4)
    with torch.no_grad(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for i in range(MAX_NUMBERS + 2):
            near(fast(x, i + 0.5), (x * (i + 0.5)).tanh())
    assert any("change from call to call" in str(w.message) for w in caught)


def test_layers_compiled_one_by_one_are_prepared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """They share one graph of Dynamo's, with parameters of their own."""
    made: list[Any] = []
    monkeypatch.setattr(dynamo, "Runner", lambda *args: made.append(args) or Runner(*args))
    layers = [Stack().eval() for _ in range(6)]
    x = torch.randn(2, 12)
    with torch.no_grad():
        wanted = [layer(x) for layer in layers]
        for layer in layers:
            layer.compile(backend="bslite", options={"tune": False})
        for _ in range(2):
            for layer, want in zip(layers, wanted, strict=True):
                near(layer(x), want)
            assert len(made) == len(layers)
