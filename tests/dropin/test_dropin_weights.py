"""Changed weights are noticed at the next call, however they were changed."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from support.dropin_models import Net, Stack, agree, by_bslite, images, near, nn, torch, wrapped
from support.torch_modules import Made

import bslite
from bslite.dropin import refresh


def step(net: Any) -> None:
    net.train()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    net(images(4)).square().sum().backward()
    optimizer.step()
    net.eval()


def average(net: Any) -> None:
    """As weight averages are kept: in place, behind the version counter's back."""
    for p in net.parameters():
        p.data.mul_(0.9).add_(0.1)


def element(net: Any) -> None:
    with torch.no_grad():
        net.conv2.weight[3, 2, 1, 1] += 5


CHANGES: dict[str, Callable[[Any], Any]] = {
    "a step of training": step,
    "averages": average,
    "memory shared with numpy": lambda net: np.multiply(w := net.fc.weight.detach().numpy(), 2, out=w),
    "new data": lambda net: setattr(net.fc.weight, "data", torch.randn(5, 8)),
    "a new parameter": lambda net: setattr(net.fc, "weight", nn.Parameter(torch.randn(5, 8))),
    "a new layer": lambda net: setattr(net, "fc", nn.Linear(8, 3).eval()),
    "statistics": lambda net: net.bn1.running_var.mul_(4),
    "loaded": lambda net: net.load_state_dict(Net().state_dict()),
    "assigned": lambda net: net.load_state_dict(Net().state_dict(), assign=True),
    "a small constant": lambda net: setattr(net.bn1, "eps", 0.5),
    "no bias": lambda net: setattr(net.fc, "bias", None),
    "an element": element,
    "an element of a vector": lambda net: net.fc.bias.data[2].add_(5),  # short tensors are watched whole
}
EVERY_CHANGE = pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)


@EVERY_CHANGE
@pytest.mark.parametrize("through", ["original", "wrapped"])
def test_a_change_is_followed(net: Any, change: Callable[[Any], None], through: str) -> None:
    fast = wrapped(net, fallback="silent")
    x = images(3)
    before = agree(fast, net, x)
    change(net if through == "original" else fast)
    calls = sum(bslite.report(fast).calls_in_torch.values())
    after = agree(fast, net, x)
    assert after.shape != before.shape or not torch.equal(after, before)
    by_bslite(fast, calls)
    assert bslite.report(fast).weights_followed >= 1


@EVERY_CHANGE
def test_the_change_is_real(net: Any, change: Callable[[Any], None]) -> None:
    """Each of them does change the answer: without that the tests above show nothing."""
    x = images(3)
    with torch.no_grad():
        before = net(x).clone()
    change(net)
    with torch.no_grad():
        after = net(x)
    assert after.shape != before.shape or not torch.equal(after, before)


def test_a_change_between_batches_reaches_plans_made_later(net: Any, fast: Any) -> None:
    agree(fast, net, images(2))
    average(net)
    agree(fast, net, images(5))
    agree(fast, net, images(2))
    agree(fast, net, images(1))
    by_bslite(fast)


def test_nothing_is_rebuilt_without_a_change(net: Any, fast: Any) -> None:
    for batch in (2, 3, 2, 1, 1):
        agree(fast, net, images(batch))
    net.eval()
    net.requires_grad_(False)
    agree(fast, net, images(2))
    assert bslite.report(fast).weights_followed == 0


def test_the_export_is_kept_when_only_weights_change(
    net: Any, fast: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bslite.dropin import kinds

    exports: list[int] = []
    capture = kinds.capture
    monkeypatch.setattr(kinds, "capture", lambda *a, **k: exports.append(1) or capture(*a, **k))
    for change in (average, step, CHANGES["assigned"], average):
        agree(fast, net, images(3))
        change(net)
    agree(fast, net, images(3))
    assert len(exports) == 1


@pytest.mark.parametrize("batches", [(1, 2), (2, 1)])
def test_weights_are_packed_once_for_all_batches(net: Any, fast: Any, batches: tuple[int, int]) -> None:
    """Though a batch of one is exported for itself."""
    for batch in (*batches, *batches):
        agree(fast, net, images(batch))
    executables = list(fast._bslite_runner._state.executables.values())
    assert len(executables) == 2
    assert len({id(m) for e in executables for m in e.models}) == 1


def test_a_tensor_attribute_that_is_no_buffer() -> None:
    parts = {"scales": [torch.full((4,), 2.0)], "shift": torch.ones(4)}
    net = Made(lambda net, x: x * net.scales[0] + net.shift, **parts).eval()
    fast = wrapped(net)
    x = torch.randn(2, 4)
    agree(fast, net, x)
    net.scales[0].mul_(3)
    agree(fast, net, x)
    net.shift = torch.zeros(4)
    agree(fast, net, x)
    by_bslite(fast)


def test_plain_containers_that_the_forward_reads() -> None:
    def configured(net: Any, x: Any) -> Any:
        y = x * net.config["scales"][1] + net.tables[0]
        return -y if net.config["flip"] else y

    config = {"scales": [2.0, 3.0], "flip": False}
    net = Made(configured, config=config, tables=[torch.full((4,), 2.0)]).eval()
    fast = wrapped(net)
    x = torch.randn(2, 4)
    agree(fast, net, x)
    net.config["scales"][1] = 5.0
    agree(fast, net, x)
    net.config["flip"] = True
    agree(fast, net, x)
    net.tables[0] = torch.zeros(4)
    agree(fast, net, x)
    by_bslite(fast)


def test_tied_weights() -> None:
    net = Stack().eval()
    net.second = nn.Linear(16, 12)
    net.second.weight = nn.Parameter(net.first.weight.detach().t().contiguous())
    net.first.weight = nn.Parameter(net.second.weight.detach().t())  # the same memory, transposed
    fast = wrapped(net)
    x = torch.randn(3, 12)
    agree(fast, net, x)
    net.second.weight.data.mul_(2)
    agree(fast, net, x)


def test_parameters_made_under_inference_mode() -> None:
    with torch.inference_mode():
        net = Stack().eval()
        fast, x = wrapped(net), torch.randn(3, 12)
        near(fast(x), net(x))
        net.first.weight.mul_(2)
        near(fast(x), net(x))
    agree(fast, net, torch.randn(2, 12))
    by_bslite(fast)


def test_refresh_after_a_change_that_cannot_be_noticed() -> None:
    net = nn.Linear(512, 2).eval()
    fast = wrapped(net)
    x = torch.ones(1, 512)
    agree(fast, net, x)
    net.weight.data[0, 3] += 5  # neither counted nor among the sampled words
    refresh(fast)
    agree(fast, net, x)


def test_changes_while_other_threads_run(net: Any, fast: Any) -> None:
    """Weights switched between two sets: every answer is that of one of them, the last that of the last."""
    x, states = images(2), [Net().state_dict(), Net().state_dict()]
    answers = []
    for state in states:
        net.load_state_dict(state)
        answers.append(agree(fast, net, x))
    stop, gate = threading.Event(), threading.Lock()

    def call() -> list[Any]:
        wrong = []
        while not stop.is_set():
            with torch.no_grad(), gate:
                y = fast(x)
            if not any(torch.allclose(y, a, rtol=1e-4, atol=1e-4) for a in answers):
                wrong.append(y)
        return wrong

    with ThreadPoolExecutor(3) as pool:
        calls = [pool.submit(call) for _ in range(3)]
        for i in range(10):
            with gate:
                net.load_state_dict(states[i % 2])
        stop.set()
        wrong = [y for done in calls for y in done.result()]
    assert not wrong
    near(agree(fast, net, x), answers[1])


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated")
@pytest.mark.parametrize("norm", ["weight_norm", "spectral_norm"])
def test_weights_that_hooks_make(norm: str) -> None:
    """Made of their parts once; what calls in torch make of them in between is no change."""
    normed = getattr(torch.nn.utils, norm)
    net = nn.Sequential(normed(nn.Conv1d(4, 8, 3)), nn.ReLU(), normed(nn.Conv1d(8, 4, 3)))
    x = torch.randn(2, 4, 20)
    net(x)  # a step of the power iteration
    fast = bslite.optimize(net.eval(), tune=False)
    with torch.no_grad():
        for _ in range(3):
            agree(fast, net, x)
        next(net[0].parameters()).add_(0.5)
        list(net[2].parameters())[1].mul_(2)
        agree(fast, net, x)
        by_bslite(fast)
        assert bslite.report(fast).weights_followed == 1
        made = net[0].weight.clone()  # as a call in torch would make it
        net[0](x)
        near(made, net[0].weight)


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated")
def test_weights_that_hooks_make_elsewhere() -> None:
    """Of the module itself, whose hooks torch calls, and of a layer that the forward does not call."""

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = torch.nn.utils.weight_norm(nn.Linear(4, 4)), nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            return nn.functional.linear(self.second(x), self.first.weight)

    class Alone(nn.Linear):
        pass

    for net in (Tied(), torch.nn.utils.weight_norm(Alone(4, 4))):
        fast, x = bslite.optimize(net.eval(), tune=False, fallback="silent"), torch.randn(3, 4)
        layer = net if isinstance(net, Alone) else net.first
        with torch.no_grad():
            for _ in range(4):
                layer(x)  # makes the weight anew
                near(fast(x), Tied.forward(net, x) if layer is not net else Alone.forward(net, x))
                layer.weight_g.mul_(1.5)
