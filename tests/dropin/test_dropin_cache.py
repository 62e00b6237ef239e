"""A cache of keys and values: an object that the forward changes, and that grows by each token."""

import copy
import re
from collections.abc import Iterator
from typing import Any

import pytest
from support.dropin_models import F, agree, nn, torch, wrapped
from support.torch_modules import Made

import bslite
from bslite.dropin.kinds import Kinds
from bslite.engines.cpu import constants, engine

VOCABULARY, WIDTH, HEADS = 50, 32, 4


class Layer:
    """What one layer keeps; ``seen`` counts the tokens."""

    def __init__(self) -> None:
        self.keys: Any = None
        self.values: Any = None
        self.seen = 0

    def update(self, keys: Any, values: Any) -> tuple[Any, Any]:
        if self.keys is not None:
            keys, values = torch.cat([self.keys, keys], 2), torch.cat([self.values, values], 2)
        self.keys, self.values, self.seen = keys, values, self.seen + keys.shape[2] - self.seen
        return keys, values


class Cache:
    """Layers, made as they are met."""

    def __init__(self) -> None:
        self.layers: list[Layer] = []

    def of(self, i: int) -> Layer:
        if i == len(self.layers):
            self.layers.append(Layer())
        return self.layers[i]


class Block(nn.Module):
    def __init__(self, place: int) -> None:
        super().__init__()
        self.place = place
        self.norm, self.qkv, self.out = (
            nn.LayerNorm(WIDTH),
            nn.Linear(WIDTH, 3 * WIDTH),
            nn.Linear(WIDTH, WIDTH),
        )
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Any, cache: Cache, mask: Any) -> Any:
        q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1))
        k, v = cache.of(self.place).update(k, v)
        y = F.scaled_dot_product_attention(q, k, v, mask[:, None, None].bool() if mask is not None else None)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(x)))


class Decoder(nn.Module):
    """A token after the other; makes a cache if it is given none."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block(i) for i in range(2))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids: Any, cache: Any = None, mask: Any = None) -> Any:
        cache = Cache() if cache is None else cache
        x = self.table(ids)
        for block in self.blocks:
            x = block(x, cache, mask)
        return {"logits": self.head(x), "cache": cache}


def ids(batch: int, length: int) -> Any:
    return torch.randint(0, VOCABULARY, (batch, length), generator=torch.Generator().manual_seed(length))


def steps(model: Any, batch: int, masked: bool, tokens: int = 6) -> Iterator[tuple[Any, Any]]:
    """The results of a prompt of five tokens and of more, one by one, with the cache after each."""
    cache, n = Cache(), 5
    for i in range(tokens):
        given = ids(batch, n if not i else 1)
        mask = torch.ones(batch, n + i) if masked else None
        with torch.no_grad():
            made = model(given, cache, mask)
        assert made["cache"] is cache
        yield made["logits"], cache


@pytest.mark.parametrize(
    ("batch", "masked", "dtype"),
    [
        (1, False, torch.float32),
        (3, True, torch.float32),
        (1, False, torch.bfloat16),
        (3, True, torch.float16),
    ],
)
def test_a_cache_grows_without_another_trace_or_plan(batch: int, masked: bool, dtype: Any) -> None:
    net = Decoder().eval().to(dtype)
    fast, exact = wrapped(net), copy.deepcopy(net).double()
    made = (steps(m, batch, masked) for m in (fast, net, exact))
    for (ours, cache), (theirs, plain), (truth, held) in zip(*made, strict=True):
        values = [(x.layers[1].keys, x.layers[0].values) for x in (cache, plain, held)]
        for got, want, true in [(ours, theirs, truth), *zip(*values, strict=True)]:
            assert got.dtype is want.dtype is dtype
            error, allowed = (got.double() - true).norm(), (want.double() - true).norm()
            assert error <= 4 * allowed + 1e-6 * true.norm()
        assert [layer.seen for layer in cache.layers] == [layer.seen for layer in held.layers]
        assert type(cache.layers[0].seen) is int
    report = bslite.report(fast)
    assert not report.calls_in_torch
    assert len(report.kinds) == 2  # the prompt and any token after it
    assert len(report.kinds[1].parts) == 3  # around two attentions
    assert re.search(rf"inputs .*4 x \[{batch}, \d+, 5 to \d+, \d+\]", str(report)), str(report)
    models = [m for e in fast._bslite_runner._state.executables.values() for m in e.models]
    assert all(len(m._calls) <= 1 for m in models)


def test_longer_caches_are_served_as_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Decoder().eval()
    fast = wrapped(net)
    for _ in steps(fast, 1, masked=True, tokens=3):
        pass
    sought = []
    find = Kinds.find
    monkeypatch.setattr(Kinds, "find", lambda self, *args: sought.append(args) or find(self, *args))
    for (ours, _), (theirs, _) in zip(*(steps(m, 1, True, 9) for m in (fast, net)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    assert not sought
    cache = Cache()
    with torch.no_grad():
        net(ids(1, 5), cache, torch.ones(1, 5))
        held = copy.deepcopy(cache)
        mask = torch.ones(1, 6, dtype=torch.float64)  # another dtype, of sizes that suit
        torch.testing.assert_close(
            fast(ids(1, 1), cache, mask)["logits"], net(ids(1, 1), held, mask)["logits"], rtol=1e-4, atol=1e-5
        )
        assert len(sought) == 1
        short = Cache()
        net(ids(1, 1), short, torch.ones(1, 1))  # one token, which a trace would take for fixed
        held = copy.deepcopy(short)
        mask = torch.ones(1, 2)
        torch.testing.assert_close(
            fast(ids(1, 1), short, mask)["logits"], net(ids(1, 1), held, mask)["logits"], rtol=1e-4, atol=1e-5
        )
        assert len(sought) == 2


class Pairs(nn.Module):
    """Takes and returns keys and values as a tuple of pairs."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.qkv = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids: Any, past: Any = None) -> Any:
        x = self.words(ids)
        q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        if past is not None:
            k, v = torch.cat([past[0][0], k], 2), torch.cat([past[0][1], v], 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=past is None)
        return self.out(x + y.transpose(1, 2).flatten(2)), ((k, v),)


def test_a_tuple_of_pairs_grows_without_another_trace_or_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    plans, build = [], engine.build_plan
    monkeypatch.setattr(engine, "build_plan", lambda *a, **k: (plans.append(1), build(*a, **k))[1])
    net = Pairs().eval()
    fast, past, made = wrapped(net), None, []
    for i in range(6):
        ids = torch.randint(0, VOCABULARY, (1, 1 if i else 7))
        with torch.no_grad():
            want, _ = net(ids, past)
            got, past = fast(ids, past)
        assert float((got - want).norm() / want.norm()) < 1e-5
        made.append(len(plans))
    assert made[1:] == [made[1]] * 5
    assert len(bslite.report(fast).kinds) == 2


class Wide(nn.Module):
    """A product with more weights than an L2 holds, as GPT-2 stores them: ``[in, out]``."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(1024, 1024) / 32), nn.Parameter(torch.zeros(1024))

    def forward(self, x: Any) -> Any:
        return torch.addmm(self.bias, x.view(-1, 1024), self.weight)


def test_weights_are_packed_once_for_the_prompt_and_for_each_token(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = []
    make = constants.make
    monkeypatch.setattr(
        constants, "make", lambda const, *a: (packed.append(const.recipe), make(const, *a))[1]
    )
    net = Wide().eval()
    fast = wrapped(net)
    for tokens in (9, 1, 17, 1):
        agree(fast, net, torch.randn(1, tokens, 1024))
    assert packed.count("panels") == 1


def test_a_cache_that_the_forward_makes_is_another_one_each_time() -> None:
    net = Decoder().eval()
    fast = wrapped(net)
    with torch.no_grad():
        first, second = fast(ids(1, 5)), fast(ids(1, 5))
        first["cache"].layers[0].keys.zero_()
        third = fast(ids(1, 5))
        want = net(ids(1, 5))
    for made in (second, third):
        agree(lambda made=made: made["cache"].layers[0].keys, lambda: want["cache"].layers[0].keys)
    assert first["cache"] is not second["cache"]
    assert first["cache"].layers[0] is not second["cache"].layers[0]
    assert type(first["cache"]) is Cache


class Counter:
    def __init__(self) -> None:
        self.calls, self.size = 0, 4


def multiplies(net: Any, x: Any, counter: Counter) -> Any:
    counter.calls += 1
    return net.fc(x) * counter.calls


def repeats(net: Any, x: Any, counter: Counter) -> Any:
    for _ in range(counter.calls):
        x = net.fc(x)
    counter.calls += 1
    return x / counter.size


@pytest.mark.parametrize(("forward", "left"), [(multiplies, 0), (repeats, 7)])
def test_numbers_that_change_in_an_object_do_not_trace_for_ever(forward: Any, left: int) -> None:
    """A trace leaves them free where it can; others are few."""
    net, x = Made(forward, fc=nn.Linear(4, 4)).eval(), torch.randn(2, 4)
    fast, ours, theirs = bslite.optimize(net, tune=False, fallback="silent"), Counter(), Counter()
    with torch.no_grad():
        for _ in range(12):
            torch.testing.assert_close(fast(x, ours), net(x, theirs))
    assert ours.calls == theirs.calls == 12
    assert type(ours.calls) is int
    assert sum(bslite.report(fast).calls_in_torch.values()) == left


WINDOW = 6


class Sliding(Layer):
    """Keeps the last tokens alone."""

    def update(self, keys: Any, values: Any) -> tuple[Any, Any]:
        if self.keys is not None:
            keys, values = torch.cat([self.keys, keys], 2), torch.cat([self.values, values], 2)
        self.seen += keys.shape[2] - (0 if self.keys is None else self.keys.shape[2])
        self.keys, self.values = keys[:, :, -WINDOW + 1 :], values[:, :, -WINDOW + 1 :]
        return keys, values


class SlidingCache(Cache):
    def of(self, i: int) -> Layer:
        if i == len(self.layers):
            self.layers.append(Sliding() if i else Layer())
        return self.layers[i]


class Places(Decoder):
    """Adds to the last logit the first place that is still seen."""

    def forward(self, ids: Any, cache: Any = None, mask: Any = None) -> Any:
        made = super().forward(ids, cache, mask)
        seen = cache.layers[1].seen
        made["logits"] = made["logits"] + torch.arange(VOCABULARY) * max(seen - WINDOW + 1, 0)
        return made


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("kind", [Decoder, Places])
def test_a_cache_that_forgets_counts_on(kind: Any, batch: int) -> None:
    net = kind().eval()
    fast = wrapped(copy.deepcopy(net), fallback="silent")
    for prompt in (8, 3):
        ours, theirs = SlidingCache(), SlidingCache()
        with torch.no_grad():
            for i in range(16):
                given = ids(batch, 1 if i else prompt)
                torch.testing.assert_close(fast(given, ours)["logits"], net(given, theirs)["logits"])
        assert [(layer.seen, type(layer.seen)) for layer in ours.layers] == [(prompt + 15, int)] * 2
        if prompt == 8:  # past the window from the start
            assert not bslite.report(fast).calls_in_torch
    assert sum(bslite.report(fast).calls_in_torch.values()) <= 2  # where the window fills
    assert len(bslite.report(fast).kinds) <= 8


def test_an_object_whose_tensor_is_written_to_is_left_to_torch() -> None:
    class Static:
        def __init__(self) -> None:
            self.held = torch.zeros(2, 4)

    class Writing(nn.Module):
        def forward(self, x: Any, state: Static) -> Any:
            state.held[:1] = x[:1]
            return x @ state.held.T

    x, ours, theirs = torch.randn(2, 4), Static(), Static()
    fast = bslite.optimize(Writing().eval(), tune=False, fallback="silent")
    with torch.no_grad():
        torch.testing.assert_close(fast(x, ours), Writing()(x, theirs))
    torch.testing.assert_close(ours.held, theirs.held)


def test_a_result_that_hides_tensors_is_left_to_torch() -> None:
    class Slots:
        __slots__ = ("y",)

    class Hiding(nn.Module):
        def forward(self, x: Any) -> Any:
            made = Slots()
            made.y = x.relu()
            return made

    fast = bslite.optimize(Hiding().eval(), tune=False, fallback="silent")
    assert type(fast(torch.ones(2, 4)).y) is torch.Tensor
    assert bslite.report(fast).calls_in_torch
