"""``torch.compile(model, backend="bslite")`` in training: the losses, gradients and buffers of torch."""

import copy
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support.check import assert_three_way
from support.dropin_models import near
from support.training_nets import Words, images, picture_net, rows
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from bslite.dropin import dynamo
from bslite.dropin.training.part import TrainedPart

LUCK = 2e-7  # an error of torch's below which it was lucky
pytestmark = pytest.mark.processes


class Broken(nn.Module):
    """Two graphs of Dynamo's: what the first makes needs a gradient when the second takes it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(12, 8, bias=False), nn.BatchNorm1d(8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.first(x)).tanh()
        torch._dynamo.graph_break()
        return self.last(y)


class Checkpointed(nn.Module):
    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Any:
        return checkpoint(self.net, x, use_reentrant=False)


NETS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], Tensor]]] = {
    "pictures": (lambda: picture_net(smooth=True), images),
    "words": (Words, lambda n: torch.randint(0, 11, (n, 5))),
    "attention": (
        lambda: nn.TransformerEncoderLayer(12, 3, 20, dropout=0.0, activation="gelu", batch_first=True),
        lambda n: torch.randn(n, 6, 12),
    ),
    "two graphs": (Broken, rows),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """Nothing compiled before; warnings that a graph runs in torch are errors, as all are."""
    torch._dynamo.reset()
    with torch._dynamo.config.patch(allow_rnn=True), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The .grad attribute")  # Dynamo's own, of what a graph takes
        yield
    torch._dynamo.reset()


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by the nodes of each part of which torch's tape holds a forward pass."""
    made: list[int] = []
    call = TrainedPart.__call__

    def noted(self: TrainedPart, tensors: Any) -> Any:
        made.append(len(self.spec.nodes))
        return call(self, tensors)

    monkeypatch.setattr(TrainedPart, "__call__", noted)
    return made


def compiled(net: nn.Module, **options: Any) -> Any:
    return torch.compile(net, backend="bslite", options={"fallback": "error", "tune": False, **options})


def step(net: Any, x: Tensor, seed: int = 0) -> Tensor:
    """A loss, whose gradients are in the parameters."""
    torch.manual_seed(seed)  # of dropouts
    y = net(x).flatten(1)
    loss: Tensor = F.cross_entropy(y, torch.arange(len(x)) % 3)
    loss.backward()
    return loss.detach()


def check(ours: nn.Module, peer: nn.Module, exact: nn.Module, *losses: Tensor) -> None:
    """Losses, gradients and buffers are as near to those in float64 as the peer's."""
    found = []
    for net, loss in zip((ours, peer, exact), losses, strict=True):
        grads = [p.grad for p in net.parameters() if p.grad is not None]
        found.append([t.numpy() for t in (loss, *grads, *net.buffers())])
    for y, theirs, want in zip(*found, strict=True):
        assert_three_way(y, theirs, want, least=LUCK)


def three(name: str) -> tuple[nn.Module, nn.Module, nn.Module, Callable[[int], Tensor]]:
    """A module, one like it to be compiled, and one in float64."""
    make, draw = NETS[name]
    torch.manual_seed(0)
    module = make().train()
    return module, copy.deepcopy(module), copy.deepcopy(module).double(), draw


def as_double(x: Tensor) -> Tensor:
    return x.double() if x.is_floating_point() else x


@pytest.mark.parametrize("name", NETS)
def test_a_step_is_torchs(name: str, passes: list[int]) -> None:
    peer, ours, exact, draw = three(name)
    fast, x = compiled(ours), draw(4)
    check(ours, peer, exact, step(fast, x), step(peer, x), step(exact, as_double(x)))
    assert passes


@pytest.mark.parametrize("dynamic", [None, True])
def test_weights_and_batches_change_from_step_to_step(dynamic: bool | None, passes: list[int]) -> None:
    peer, ours, exact, draw = three("pictures")
    fast = torch.compile(
        ours, backend="bslite", dynamic=dynamic, options={"fallback": "error", "tune": False}
    )
    runs: list[tuple[Any, nn.Module]] = [(fast, ours), (peer, peer), (exact, exact)]
    optimizers = [torch.optim.SGD(net.parameters(), 0.05, momentum=0.9) for _, net in runs]
    for number, n in enumerate((4, 4, 3, 4, 3)):
        x, losses = draw(n), []
        before = len(passes)
        for (call, net), optimizer in zip(runs, optimizers, strict=True):
            optimizer.zero_grad()
            losses.append(step(call, x.double() if net is exact else x, seed=number))
        check(ours, peer, exact, *losses)
        assert len(passes) > before
        for optimizer in optimizers:
            optimizer.step()


def test_a_batch_marked_dynamic() -> None:
    peer, ours, exact, draw = three("two graphs")
    fast = compiled(ours)
    for n in (5, 3, 5):
        x = draw(n)
        torch._dynamo.mark_dynamic(x, 0)
        for net in (ours, peer, exact):
            net.zero_grad()
        check(ours, peer, exact, step(fast, x), step(peer, x), step(exact, x.double()))


def test_inference_after_training() -> None:
    """Without gradients in training mode statistics go on; in eval mode they stand."""
    peer, ours, exact, draw = three("two graphs")
    fast, x = compiled(ours), draw(4)
    step(fast, x), step(peer, x), step(exact, x.double())
    runs: list[tuple[Any, nn.Module]] = [(fast, ours), (peer, peer), (exact, exact)]
    for mode in (True, False):
        with torch.no_grad():
            losses = [call.train(mode)(x.double() if net is exact else x) for call, net in runs]
        check(ours, peer, exact, *losses)
    losses = [call(x.double() if net is exact else x).sum() for call, net in runs]
    for (_, net), loss in zip(runs, losses, strict=True):
        net.zero_grad()
        loss.backward()
    check(ours, peer, exact, *(loss.detach() for loss in losses))


def test_frozen_parameters_and_gradients_of_the_input() -> None:
    peer, ours, exact, draw = three("pictures")
    fast, x, given = compiled(ours), draw(4), []
    for call, net in ((fast, ours), (peer, peer), (exact, exact)):
        net[0].weight.requires_grad_(False)
        given.append((x.double() if net is exact else x.clone()).requires_grad_())
        step(call, given[-1])
        assert net[0].weight.grad is None
    check(ours, peer, exact, *(x.grad for x in given))
    for _, net in ((fast, ours), (peer, peer), (exact, exact)):
        net[0].weight.requires_grad_(True)
    check(ours, peer, exact, step(fast, x), step(peer, x), step(exact, x.double()))
    assert ours[0].weight.grad is not None


def test_what_bslite_cannot_train_torch_trains_and_says_why() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(12, 4)

        def forward(self, x: Tensor) -> Tensor:
            return torch.special.i0e(self.layer.weight).sum() * x

    net, x = Odd(), rows(3)
    fast = torch.compile(net, backend="bslite", options={"tune": False})
    with pytest.warns(UserWarning, match="bslite trains no part of it"):
        fast(x).sum().backward()
    found = net.layer.weight.grad
    net.layer.weight.grad = None
    net(x).sum().backward()
    assert net.layer.weight.grad is not None
    assert torch.equal(found, net.layer.weight.grad)


def test_gradients_stop_where_they_are_switched_off() -> None:
    class Off(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.on, self.off = nn.Linear(12, 3), nn.Linear(12, 3)

        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                scale = self.off(x)
            return self.on(x) * scale + self.off(x).detach()

    torch.manual_seed(0)
    peer = Off()
    ours, exact, x = copy.deepcopy(peer), copy.deepcopy(peer).double(), rows(4)
    check(ours, peer, exact, step(compiled(ours), x), step(peer, x), step(exact, x.double()))
    assert ours.off.weight.grad is None
    assert ours.on.weight.grad is not None


def test_checkpoints_are_left_to_torch() -> None:
    """What is computed again has the same noise, which it would not have if the graph ran as it is."""
    net = nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3))
    ours, peer, x = Checkpointed(net), Checkpointed(copy.deepcopy(net)), rows(4)
    fast = torch.compile(ours, backend="bslite", options={"tune": False})
    with pytest.warns(UserWarning, match="checkpoints are torch's"):
        step(fast, x)
    step(peer, x)
    for a, b in zip(ours.parameters(), peer.parameters(), strict=True):
        near(a.grad, b.grad)


@pytest.mark.parametrize(("wanted", "why"), [(True, "gradients are enabled"), (False, "in training mode")])
def test_training_can_be_left_to_torch(wanted: bool, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dynamo, "_Compiled", None)
    net = NETS["pictures"][0]()
    fast = torch.compile(net, backend="bslite", options={"training": False})
    with torch.set_grad_enabled(wanted), pytest.warns(UserWarning, match=why):
        y = fast(images(4))
    assert y.requires_grad == wanted
