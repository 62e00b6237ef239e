"""Modules of bfloat16 and float16: answers of their dtype, no less exact than torch's."""

import copy
import gc
from typing import Any

import numpy as np
import pytest
from support.dots import dots
from support.dropin_models import F, Net, by_bslite, images, nn, torch, wrapped
from support.torch_modules import CASES, Case, Fn, Made

import bslite
from bslite.dropin.runner import runner_of
from bslite.engines.cpu.engine import engine_for
from bslite.errors import SpecError, UnsupportedError
from bslite.frontends.torch.widened import widened
from bslite.spec import ModelSpec

__all__ = ["dots"]
UNIT = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
NARROW = pytest.mark.parametrize("dtype", UNIT, ids=["bfloat16", "float16"])
#: A layer that works in place, alone: its result is the argument itself, which is torch's in any dtype.
TORCHS = ("relu in place", "hardswish")


def leaves(made: Any) -> list[Any]:
    return list(torch.utils._pytree.tree_leaves(made))


def of_doubles(module: Any, args: Any, otherwise: Any) -> Any:
    """What a module computes in doubles; ``otherwise``: where it cannot."""
    try:
        with torch.no_grad():
            return copy.deepcopy(module).double()(*(x.double() if x.is_floating_point() else x for x in args))
    except RuntimeError:  # it has a dtype by name, or torch no such function of doubles
        return otherwise


def no_worse(module: Any, original: Any, *args: Any, factor: float = 1.5) -> Any:
    """The module's results are at most ``factor`` times as far from those of doubles as the original's, whose
    dtypes they have; returns them.
    """
    with torch.no_grad():
        got, want = module(*args), original(*args)
    exact = of_doubles(original, args, want)
    for ours, theirs, true in zip(leaves(got), leaves(want), leaves(exact), strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        finite = torch.isfinite(true) & torch.isfinite(theirs)
        error, allowed = (((y.double() - true)[finite]).norm() for y in (ours, theirs))
        unit = UNIT.get(ours.dtype, 2.0**-8)
        assert error <= factor * allowed + unit / 3 * true[finite].double().norm()
    return got


def specs(module: Any) -> list[ModelSpec]:
    return list(runner_of(module).specs())


@NARROW
@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("case", [c for c in CASES if c.label not in TORCHS], ids=lambda case: case.label)
def test_every_operation_takes_16_bits(case: Case, dtype: Any) -> None:
    torch.manual_seed(0)
    net, x = case.module().eval().to(dtype), torch.randn(2, *case.shape, dtype=dtype)
    try:
        with torch.no_grad():
            copy.deepcopy(net)(x.clone())
    except RuntimeError:
        pytest.skip("torch has no such function of this dtype")
    fast = wrapped(net)
    no_worse(fast, net, x)
    by_bslite(fast)


@NARROW
def test_a_network(dtype: Any) -> None:
    net = Net().eval().to(dtype)
    fast = wrapped(net)
    for batch in (2, 1, 3):
        no_worse(fast, net, images(batch).to(dtype))
    by_bslite(fast)
    assert bslite.verify(fast, images().to(dtype)).passed
    assert bslite.bisect(net, images().to(dtype)).passed
    assert "100.0 %" in str(bslite.explain(fast, limits=False))


@NARROW
def test_what_torch_runs_between_parts_gets_its_own_dtype(dtype: Any) -> None:
    def forward(net: Any, x: Any) -> Any:
        y = torch.unique_consecutive(net.first(x).tanh()[0]).sum()  # how many there are, the values say
        return net.second(x * y), y

    net = Made(forward, first=nn.Linear(8, 8), second=nn.Linear(8, 8)).eval().to(dtype)
    fast = wrapped(net, quiet=False, fallback="silent")
    no_worse(fast, net, torch.randn(2, 8, dtype=dtype), factor=4)  # one number scales all others
    assert len(specs(fast)) > 0


def test_inputs_of_32_bits_beside_parameters_of_16() -> None:
    net = Made(lambda m, x: m.fc(x.bfloat16()).float() + x, fc=nn.Linear(8, 8)).eval()
    net.fc.bfloat16()
    fast = wrapped(net)
    assert no_worse(fast, net, torch.randn(3, 8)).dtype is torch.float32
    by_bslite(fast)


@NARROW
def test_weights_written_without_a_word_are_noticed(dtype: Any) -> None:
    net, x = nn.Linear(40, 40).eval().to(dtype), torch.randn(3, 40, dtype=dtype)
    fast = wrapped(net)
    no_worse(fast, net, x)
    net.weight.data.mul_(3)
    no_worse(fast, net, x)
    with torch.no_grad():
        net.weight.copy_(torch.randn(40, 40))
    no_worse(fast, net, x)
    by_bslite(fast)


def test_models_of_a_module_hold_one_array_of_a_parameter() -> None:
    net = nn.Sequential(nn.Linear(64, 64), nn.Tanh()).eval().bfloat16()
    fast = wrapped(net)
    with torch.no_grad():
        for shape in ((1, 64), (2, 64), (2, 3, 64), (2, 4, 3, 64)):
            fast(torch.randn(shape).bfloat16())
    made = specs(fast)
    assert len(made) > 2
    assert len({s.params["0.weight"].ctypes.data for s in made}) == 1


def test_an_array_goes_with_the_models_that_hold_it() -> None:
    tensor = torch.randn(4, 4).bfloat16()
    first = widened(tensor)
    assert widened(tensor) is first
    assert np.array_equal(first, tensor.float().numpy())
    tensor.data[0, 0] += 1
    second = widened(tensor)
    assert second is not first
    assert np.array_equal(second, tensor.float().numpy())
    del second
    gc.collect()
    assert np.array_equal(widened(tensor), tensor.float().numpy())


def test_numbers_that_float16_lacks_are_there_within_a_part() -> None:
    net = Fn(lambda x: (x * x).sum(-1, keepdim=True) / 1024)
    x = torch.full((2, 64), 60.0, dtype=torch.float16)
    with torch.no_grad():
        assert torch.isinf(net(10 * x)).all()
        got = wrapped(net)(10 * x)
    assert got.dtype is torch.float16
    assert torch.equal(got, torch.full((2, 1), 64 * 600.0**2 / 1024, dtype=torch.float16))


class Routed(nn.Module):
    """A layer of bfloat16, chosen by scores of float32."""

    def __init__(self) -> None:
        super().__init__()
        self.router, self.layer = nn.Linear(64, 32), nn.Linear(64, 32)

    def forward(self, x: Any) -> Any:
        scores = F.linear(x.float(), self.router.weight.float()).softmax(-1)
        return self.layer(x) * scores.to(x.dtype)


class Attention(nn.Module):
    """Scores are of float32 if ``exact``."""

    def __init__(self, exact: bool) -> None:
        super().__init__()
        self.exact, self.qkv = exact, nn.Linear(64, 192)

    def forward(self, x: Any) -> Any:
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = q.float() @ k.float().transpose(-1, -2) if self.exact else (q @ k.transpose(-1, -2)).float()
        return (scores / 8).softmax(-1).to(x.dtype) @ v


class Masked(nn.Module):
    """Attention with a mask that is known, of ``dtype``."""

    def __init__(self, dtype: Any) -> None:
        super().__init__()
        self.mask = torch.ones(64, 64, dtype=torch.bool).tril()
        if dtype is not torch.bool:
            self.mask = torch.zeros(64, 64).masked_fill(~self.mask, torch.finfo(dtype).min).to(dtype)

    def forward(self, x: Any) -> Any:
        q, k, v = x.unflatten(-1, (3, 64)).unbind(-2)
        return F.scaled_dot_product_attention(
            q[:, None], k[:, None], v[:, None], self.mask.to(self.mask.dtype)
        )


def own(module: Any, *shape: int) -> tuple[frozenset[str] | None, list[bool]]:
    """Which parameters of its model are float32; of each layer by panels whether its factors are rounded."""
    net = module.eval().bfloat16()
    fast = wrapped(net)
    x = torch.randn(*shape).bfloat16()
    no_worse(fast, net, x)
    by_bslite(fast)
    (spec,) = specs(fast)
    (session,) = engine_for(spec)._sessions.values()
    recipes = [c.recipe for c in session.plan.consts.values()]
    return spec.unrounded, [
        r == "rounded_panels" for r in recipes if r.endswith("panels") and "bias" not in r
    ]


@pytest.mark.usefixtures("dots")
def test_products_of_bfloat16_are_a_bfloat16_model_s_own() -> None:
    assert own(nn.Linear(64, 32), 64, 64) == (frozenset(), [True])
    assert own(Net(), 2, 3, 9, 9)[0] == frozenset()
    for dtype in (torch.bool, torch.bfloat16, torch.float32):  # a mask is no factor
        assert own(Masked(dtype), 2, 64, 192)[0] == frozenset()


@pytest.mark.usefixtures("dots")
def test_products_of_float32_in_it_stay_so() -> None:
    unrounded, rounded = own(Routed(), 64, 64)
    assert unrounded is not None
    assert len(unrounded) == 1
    assert sorted(rounded) == [False, True]
    assert own(Attention(exact=True), 2, 64, 64)[0] is None
    assert own(Attention(exact=False), 2, 64, 64)[0] == frozenset()


class Beside(nn.Module):
    """A layer of bfloat16, and layers of float32 that are folded into one another."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.layer, self.own = kind, nn.Linear(64, 32), nn.Linear(64, 32)
        self.norm, self.conv = nn.BatchNorm1d(32).eval(), nn.Conv1d(64, 32, 1)

    def forward(self, x: Any, z: Any) -> Any:
        made = self.conv(z[:, :, None])[:, :, 0] if self.kind == "conv" else self.own(z)
        made = self.norm(made) if self.kind == "norm" else made * 2.7 if self.kind == "scaled" else made
        return self.layer(x), made


@pytest.mark.usefixtures("dots")
@pytest.mark.parametrize("kind", ["plain", "norm", "scaled", "conv"])
def test_what_is_made_of_weights_of_float32_stays_so(kind: str) -> None:
    net = Beside(kind).eval()
    net.layer.bfloat16()
    fast, z = wrapped(net), torch.randn(64, 64)
    with torch.no_grad():
        got = fast(torch.randn(64, 64).bfloat16(), z)[1].double()
        exact = copy.deepcopy(net).double()(torch.randn(64, 64).double(), z.double())[1]
    assert (got - exact).norm() < 2e-6 * exact.norm()


@pytest.mark.usefixtures("dots")
def test_ieee_rounds_no_factor() -> None:
    net, x = nn.Linear(256, 64).eval().bfloat16(), torch.randn(64, 256)
    spec = bslite.from_torch(copy.deepcopy(net).float(), x).replace(unrounded=frozenset())
    exact = bslite.run(spec, x.numpy(), backend="reference64")

    def error(precision: str) -> float:
        made = bslite.run(spec, x.numpy(), precision=precision)
        return float(np.linalg.norm(made - exact) / np.linalg.norm(exact))

    assert error("ieee") < 1e-6 < 1e-4 < error("float32")
    assert error("float32") == error("bfloat16") == error("bfloat16_3x")


def test_a_model_of_float16_rounds_no_factor() -> None:
    net = nn.Linear(64, 32).eval().half()
    fast = wrapped(net)
    with torch.no_grad():
        fast(torch.randn(3, 64).half())
    assert [s.unrounded for s in specs(fast)] == [None]


def test_training_is_torchs() -> None:
    net = nn.Linear(8, 8).train().bfloat16()
    fast = bslite.optimize(net, fallback="silent")
    fast(torch.randn(2, 8).bfloat16()).sum().backward()
    assert net.weight.grad is not None
    assert net.weight.grad.dtype is torch.bfloat16
    assert bslite.report(fast).calls_in_torch


def test_16_bits_within_a_step_of_training_are_torchs() -> None:
    def forward(net: Any, x: Any) -> Any:
        return net.second((net.first(x).bfloat16() * 2).float())

    nets = [Made(forward, first=nn.Linear(8, 8), second=nn.Linear(8, 8)).train() for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    fast, x = bslite.optimize(nets[0], tune=False, fallback="silent"), torch.randn(4, 8)
    fast(x).sum().backward()
    nets[1](x).sum().backward()
    assert not bslite.report(fast).calls_in_torch
    for p, q in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        assert p.grad is not None
        assert (p.grad - q.grad).norm() < 1e-2 * q.grad.norm()  # a number may be rounded the other way


@NARROW
def test_a_description_has_no_16_bits(dtype: Any) -> None:
    with pytest.raises(SpecError, match=r"weight is .*float16; convert the model with"):
        bslite.from_torch(nn.Linear(4, 4).eval().to(dtype), torch.randn(2, 4, dtype=dtype))
    with pytest.raises(UnsupportedError, match=r"returns .*float16"):
        bslite.from_torch(Fn(lambda x: x.to(dtype) * 2), torch.randn(2, 4))


@NARROW
def test_other_ways_in(dtype: Any) -> None:
    net, x = Net().eval().to(dtype), images().to(dtype)
    no_worse(torch.compile(copy.deepcopy(net), backend="bslite"), net, x)
    made = bslite.compile(net)(x)
    assert [y.dtype for y in made.values()] == [dtype]
    with torch.inference_mode():  # of whose tensors no trace is made
        strange = Net().eval().to(dtype)
        no_worse(wrapped(strange), copy.deepcopy(strange), x)
