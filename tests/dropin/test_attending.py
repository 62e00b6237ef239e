"""Attention over keys that grow from call to call: torch computes it, without copies of keys."""

import copy
from typing import Any

import pytest
from dropin.test_dropin_cache import Cache
from support.dropin_models import F, nn, torch, wrapped

import bslite


def code_of(model: Any) -> str:
    """What runs its last kind of call."""
    function = model._bslite_runner.kinds.made.values()[-1].blueprint.function
    return str(function.__self__.code)


def repeated(x: Any, times: int) -> Any:
    """Each head of keys or values for several of queries, as transformers has it."""
    batch, heads, length, width = x.shape
    x = x[:, :, None, :, :].expand(batch, heads, times, length, width)
    return x.reshape(batch, heads * times, length, width)


def interleaved(x: Any, times: int) -> Any:
    """The same heads in another order."""
    batch, heads, length, width = x.shape
    return x[:, None].expand(batch, times, heads, length, width).reshape(batch, heads * times, length, width)


class Shared(nn.Module):
    """Six heads of queries, two of keys and values."""

    def __init__(self, keys: Any = repeated, values: Any = repeated) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.qkv, self.out, self.repeats = nn.Linear(24, 10 * 8), nn.Linear(48, 24), (keys, values)

    def forward(self, x: Any, cache: Cache, mask: Any = None) -> Any:
        heads = self.qkv(x).unflatten(-1, (10, 8)).transpose(1, 2)
        k, v = cache.of(0).update(heads[:, 6:8], heads[:, 8:])
        k, v = (repeats(t, 3) for repeats, t in zip(self.repeats, (k, v), strict=True))
        y = F.scaled_dot_product_attention(heads[:, :6], k, v, mask, scale=0.3)
        return self.out(y.transpose(1, 2).flatten(2))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "repeats", [(repeated, repeated), (interleaved, interleaved), (repeated, interleaved)]
)
def test_heads_that_share_keys_read_them_where_they_are(repeats: Any, dtype: Any, masked: bool) -> None:
    net = Shared(*repeats).eval().to(dtype)
    fast, exact = wrapped(net), copy.deepcopy(net).double()
    caches = [Cache() for _ in range(3)]
    for i in range(5):
        x = torch.randn(2, 1 if i else 4, 24).to(dtype)
        mask = (torch.rand(2, 1, x.shape[1], 4 + i) < 0.8) | (torch.arange(4 + i) == 0) if masked else None
        with torch.no_grad():
            got, want, true = (
                m(x.double() if m is exact else x, c, mask)
                for m, c in zip((fast, net, exact), caches, strict=True)
            )
        assert got.dtype is dtype
        error, allowed = (got.double() - true).norm(), (want.double() - true).norm()
        assert error <= 1.5 * allowed + 1e-6 * true.norm()
    report = bslite.report(fast)
    assert not report.calls_in_torch
    code = code_of(fast)
    assert ("enable_gqa = True" in code) is (repeats == (repeated, repeated))
    assert ("aten.reshape" not in code) is (repeats == (repeated, repeated))
    assert ("aten.to.dtype" in code) is (dtype is not torch.float32)


def test_many_rows_of_16_bits_are_torchs_own() -> None:
    net = Shared().eval().bfloat16()
    fast, caches = wrapped(net), (Cache(), Cache())
    for _ in range(4):
        x = torch.randn(1, 20, 24).bfloat16()
        with torch.no_grad():
            got, want = fast(x, caches[0]), net(x, caches[1])
        assert (got - want).norm() <= 2e-2 * want.norm()
    assert "aten.to.dtype" not in code_of(fast)


class Turned(Shared):
    """Keys that are float32 in the cache, because they are multiplied by float32 after a layer."""

    def forward(self, x: Any, cache: Cache, mask: Any = None) -> Any:
        heads = self.qkv(x).unflatten(-1, (10, 8)).transpose(1, 2)
        scale = torch.ones(8) / 3
        k, v = cache.of(0).update(heads[:, 6:8] * scale, heads[:, 8:])
        y = F.scaled_dot_product_attention(heads[:, :6] * scale, repeated(k, 3), repeated(v, 3), mask)
        return self.out(y.transpose(1, 2).flatten(2))


def test_under_autocast_few_rows_read_keys_as_they_are() -> None:
    """No copy of all keys in 16 bits at each token."""
    net = Turned().eval()
    fast, exact = wrapped(net), copy.deepcopy(net)
    caches = [Cache() for _ in range(3)]
    for i in range(5):
        x = torch.randn(2, 1 if i else 4, 24)
        with torch.no_grad():
            true = exact(x, caches[2])
            with torch.autocast("cpu"):
                got, want = fast(x, caches[0]), net(x, caches[1])
        assert got.dtype is want.dtype
        assert (got - true).norm() <= 1.5 * (want - true).norm() + 1e-3 * true.norm()
    ours, theirs = (vars(c.of(0)) for c in caches[:2])
    assert [getattr(t, "dtype", None) for t in ours.values()] == [
        getattr(t, "dtype", None) for t in theirs.values()
    ]
    assert not bslite.report(fast).calls_in_torch
    code = code_of(fast)
    assert "enable_gqa = True" in code
    assert "aten.reshape" not in code
