"""Buffers that a forward writes to in training, other than as torch's batch norm does: bslite trains around
them, and keeps what the forward would have written.
"""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support.torch_modules import Made
from support.training import alike, step
from torch import Tensor, nn
from torch.nn.utils import parametrizations

import bslite
from bslite.dropin.runner import runner_of

R = torch.randn


def averaged(m: Any, x: Tensor) -> Tensor:
    """What is read after it was written."""
    h = m.a(x)
    with torch.no_grad():
        m.mean.mul_(0.9).add_(h.mean(0), alpha=0.1)
    return m.b(h - m.mean)


def normed(m: Any, x: Tensor) -> Tensor:
    """What is read before it is written: gradients are of the old values."""
    h = m.a(x)
    y = (h - m.mean) / (m.scale + 1e-3).sqrt() * m.scale.clone()
    m.mean.lerp_(h.detach().mean(0), 0.1)
    m.scale.data.mul_(0.9).add_(h.data.var(0), alpha=0.1)
    return m.b(y)


def codebook(m: Any, x: Tensor) -> Any:
    """Vector quantisation with averages for gradients (van den Oord et al. 2017, appendix A)."""
    z = m.a(x)
    far = z.square().sum(1, keepdim=True) - 2 * z @ m.codes.t() + m.codes.square().sum(1)
    nearest = far.argmin(1)
    found = F.embedding(nearest, m.codes)
    chosen = F.one_hot(nearest, len(m.codes)).to(z.dtype)
    m.used.data.mul_(0.9).add_(chosen.sum(0), alpha=0.1)
    m.sums.data.mul_(0.9).add_(chosen.t() @ z.detach(), alpha=0.1)
    m.codes.data.copy_(m.sums / (m.used + 0.1).unsqueeze(1))
    return m.b(z + (found - z).detach()), F.mse_loss(z, found.detach())


def windows(m: Any, x: Tensor) -> Tensor:
    """Parts of a buffer, by turns with the whole."""
    h = m.a(x)
    with torch.no_grad():
        m.codes[1:3] = h[:2]
        m.codes.neg_()
        m.codes[:, 2] += h[0, 1]
        m.codes.t()[4].fill_(0.5)
    return m.b(h + m.codes.mean(0))


def counts(m: Any, x: Tensor) -> Tensor:
    """A counter that does not count by one, and one that does; what is written with ``out=``."""
    m.seen += x.shape[0]
    m.steps += 1
    h = m.a(x)
    with torch.no_grad():
        torch.maximum(m.mean, h.amax(0), out=m.mean)
    return m.b(h) / m.seen + m.steps


def frozen(m: Any, x: Tensor) -> Tensor:
    """A parameter that does not learn, and a buffer that is written to where it is not read."""
    with torch.no_grad():
        m.table.copy_(0.9 * m.table + 0.1 * m.a.weight)
        m.mean.zero_()
    return m.b(F.linear(x, m.table) + m.a(x))


def net_of(forward: Callable[..., Any]) -> Any:
    torch.manual_seed(0)
    net: Any = Made(forward, a=nn.Linear(8, 8), b=nn.Linear(8, 8))
    for name, value in (("mean", R(8)), ("scale", R(8).abs()), ("codes", R(6, 8)), ("used", torch.ones(6))):
        net.register_buffer(name, value)
    net.register_buffer("sums", net.codes.clone())
    net.register_buffer("seen", torch.ones((), dtype=torch.int64))
    net.register_buffer("steps", torch.zeros((), dtype=torch.int64))
    net.table = nn.Parameter(R(8, 8), requires_grad=False)
    return net.train()


@pytest.mark.parametrize("forward", [averaged, normed, codebook, windows, counts, frozen])
def test_states_are_kept(forward: Callable[..., Any]) -> None:
    alike(net_of(forward), [(R(5, 8),) for _ in range(3)])


@pytest.mark.parametrize("norm", [parametrizations.spectral_norm, nn.utils.spectral_norm])
def test_spectral_norms_iterate(norm: Callable[..., nn.Module]) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(norm(nn.Linear(8, 6)), nn.ReLU(), norm(nn.Linear(6, 3))).train()
    alike(net, [(R(5, 8),) for _ in range(3)])


def test_states_are_those_of_the_module() -> None:
    """Written in place, whoever holds them."""
    net = net_of(averaged)
    fast: Any = bslite.optimize(net, training=True, tune=False, fallback="silent")
    held, before = net.mean, net.mean.clone()
    step(fast, (R(5, 8),))
    assert held is net.mean is fast.mean
    assert not torch.equal(held, before)
    (trained,) = bslite.report(fast).training
    assert trained.torch_share < 1


def shown(m: Any, x: Tensor) -> Any:
    m.mean.mul_(0.5)
    return m.b(m.a(x)), m.mean


def assigned(m: Any, x: Tensor) -> Tensor:
    h = m.a(x)
    m.mean = 0.9 * m.mean + 0.1 * h.detach().mean(0)
    return m.b(h - m.mean)


def decayed(m: Any, x: Tensor) -> Tensor:
    with torch.no_grad():
        m.a.weight.mul_(0.9)  # once a call, whoever looks at it meanwhile
    return m.b(m.a(x))


def through_data(m: Any, x: Tensor) -> Tensor:
    """Values change, and autograd does not know."""
    h = m.a(x)
    h.data.mul_(3)
    return m.b(h)


LEFT = {
    "changes 'b_mean' in place": shown,
    "another tensor in the place of 'mean'": assigned,
    "changes 'a.weight' in place": decayed,
    "in place shows elsewhere": through_data,
}


@pytest.mark.parametrize("reason", LEFT)
def test_other_writing_is_left_to_torch(reason: str) -> None:
    net = net_of(LEFT[reason])
    alike(net, [(R(5, 8),) for _ in range(2)], reason=reason)


def test_gradients_to_a_buffer_are_torchs() -> None:
    """One call of this is all that torch's autograd can do."""

    def forward(m: Any, x: Tensor) -> Tensor:
        h = m.a(x)
        m.codes[0] += h[0]
        return m.b(h * m.codes[0])

    net = net_of(forward)
    fast: Any = bslite.optimize(net, training=True, tune=False, fallback="silent")
    assert step(fast, (R(5, 8),)).requires_grad
    assert net.codes.requires_grad  # as after a call of torch's
    (reason,) = runner_of(fast).in_torch
    assert "in place" in reason


def test_data_is_followed() -> None:
    """``x.data`` in eval mode: of an input, a parameter, a buffer; with gradients it has none."""

    def forward(m: Any, x: Tensor) -> Tensor:
        return m.b(x.data @ m.a.weight.data.t() + m.a(x) + m.mean.data)

    net = net_of(forward).eval()
    fast: Any = bslite.optimize(net, tune=False, fallback="error")
    x = R(5, 8)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), net(x))
        net.a.weight.mul_(2)
        torch.testing.assert_close(fast(x), net(x))
    spec = bslite.from_torch(net, x)
    torch.testing.assert_close(torch.from_numpy(bslite.run(spec, x.numpy())), net(x).detach())
    alike(net.train(), [(R(5, 8),) for _ in range(2)])
    assert "data" not in vars(torch.Tensor)


class Decays(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            if self.weight.norm() > 0.1:
                self.weight.mul_(0.9)
        return super().forward(x)


class Bounded(nn.Linear):
    """A bound on weights, as networks for brain signals have it (Lawhern et al. 2018)."""

    def forward(self, x: Tensor) -> Tensor:
        self.weight.data = torch.renorm(self.weight.data, p=2, dim=0, maxnorm=0.3)
        return super().forward(x)


@pytest.mark.parametrize("kind", [Decays, Bounded])
@pytest.mark.parametrize("training", [False, True])
def test_looking_at_a_forward_changes_no_parameter(kind: type[nn.Linear], training: bool) -> None:
    """A forward that changes its weights is torch's, and changes them once a call."""
    torch.manual_seed(0)
    net = kind(8, 6).train(training)
    peer, fast = copy.deepcopy(net), bslite.optimize(net, training=True, tune=False, fallback="silent")
    with torch.set_grad_enabled(training):
        for _ in range(3):
            x = R(5, 8)
            torch.testing.assert_close(fast(x), peer(x))
            torch.testing.assert_close(net.weight, peer.weight)


def test_a_weight_that_a_hook_makes_is_there_after_a_call() -> None:
    """For penalties: of the old spectral norm, whose vectors move once a call."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.utils.spectral_norm(nn.Linear(8, 6)), nn.Linear(6, 3)).train()

    def run(module: Any, inputs: Any) -> Tensor:
        made = module(*inputs)
        (made.square().mean() + module[0].weight.square().sum()).backward()
        return made

    alike(net, [(R(5, 8),) for _ in range(3)], run)


def tied(learns: bool, buffer: bool) -> Any:
    """A second tensor in the memory of a weight, that no gradient of the weight flows to."""
    torch.manual_seed(0)
    net: Any = Made(lambda m, x: m.b(m.a(x).relu()) + x @ m.other, a=nn.Linear(8, 8), b=nn.Linear(8, 8))
    if buffer:
        net.register_buffer("other", net.a.weight.detach())
    else:
        net.other = nn.Parameter(net.a.weight.detach(), learns)
    return net.train()


@pytest.mark.parametrize(("learns", "buffer"), [(True, False), (False, False), (False, True)])
def test_tensors_in_one_memory_have_gradients_of_their_own(learns: bool, buffer: bool) -> None:
    gradients = []
    x = R(5, 8)
    for wrap in (lambda m: m, lambda m: bslite.optimize(m, training=True, tune=False, fallback="silent")):
        net = tied(learns, buffer)  # made twice: a copy would have two memories
        step(wrap(net), (x,))
        gradients.append([p.grad for p in net.parameters()])
    torch.testing.assert_close(gradients[1], gradients[0])


def test_a_state_that_is_an_argument_changes_there_too() -> None:
    def forward(m: Any, x: Tensor) -> Tensor:
        h = m.a(x.clone())
        with torch.no_grad():
            m.codes.mul_(0.5)
        return h + x

    net = net_of(forward)
    peer = copy.deepcopy(net)
    fast: Any = bslite.optimize(net, training=True, tune=False, fallback="silent")
    x = R(6, 8)
    torch.testing.assert_close(fast(x), peer(x))
    torch.testing.assert_close(fast(net.codes), peer(peer.codes))
    torch.testing.assert_close(net.codes, peer.codes)
    torch.testing.assert_close(fast(net.codes[0]), peer(peer.codes[0]))  # of which a trace would be made
    torch.testing.assert_close(net.codes, peer.codes)
    assert "shares memory" in "; ".join(runner_of(fast).in_torch)
