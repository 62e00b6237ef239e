"""What `from_torch` refuses, and what it says then."""

import contextlib
from typing import Any

import pytest
from support.torch_modules import F, Fn, nn, torch

import bslite
from bslite import from_torch

IMAGE = torch.randn(2, 3, 8, 8)


def refuse(error: type[Exception], net: Any, example: Any = IMAGE) -> str:
    """The message that ``net`` is refused with."""
    with pytest.raises(error) as caught:
        from_torch(net, example)
    return str(caught.value)


def test_everything_unsupported_is_listed_at_once() -> None:
    odd, again = (Fn(lambda x: torch.lgamma(torch.digamma(x))) for _ in range(2))
    inner = nn.Sequential(again, Fn(torch.erfinv))
    net = nn.Sequential(nn.Conv2d(3, 4, 1), odd, nn.ReLU(), inner, Fn(torch.i0))
    lines = refuse(bslite.UnsupportedError, net.eval()).splitlines()
    assert lines[0] == "model 'Sequential' needs what bslite does not have:"
    assert sorted(lines[1:]) == [
        "  1 x aten.erfinv.default; at 3.1",
        "  1 x aten.i0.default; at 4",
        "  2 x aten.digamma.default; at 1, 3.0",
        "  2 x aten.lgamma.default; at 1, 3.0",
    ]


def test_forms_behind_what_is_unsupported_are_looked_at() -> None:
    """Of one result and of several, of sizes that depend on the batch; what bslite has is not listed."""

    def forward(x: Any) -> Any:
        a = F.adaptive_max_pool2d(torch.digamma(x).relu(), 2, return_indices=True)[1]
        sign, log = torch.linalg.slogdet(x)
        return a, sign.round(decimals=2), log.tanh().double()

    lines = refuse(bslite.UnsupportedError, Fn(forward).eval()).splitlines()[1:]
    several = "more than its first result is used"
    for part in ("1 x aten.digamma.default;", several, "slogdet", "decimals=2", "makes float64"):
        assert sum(part in line for line in lines) == 1, (part, lines)
    assert len(lines) == 5


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: torch.digamma(x), "1 x aten.digamma.default; at the model's own forward"),
        (lambda x: F.adaptive_max_pool2d(x, 2, return_indices=True), "more than its first result is used"),
        (lambda x: x.clamp(float("nan"), 1), "a bound is NaN"),
        (lambda x: x.round(decimals=2), "decimals=2"),
        (lambda x: F.batch_norm(x, x[0, :, 0, 0], x[0, :, 1, 0]), "its running_mean is computed from the"),
        (lambda x: F.batch_norm(x, x[0, :, 0, 0], x[0, :, 1, 0], training=True), "the running statistics"),
        (lambda x: F.dropout(x, training=True), "called with training=True"),
        (lambda x: x.double(), "makes float64; bslite has float32, int64, int32, bool"),
        (lambda x: x + torch.rand(8), "aten.rand.default"),
        (lambda x: (x, torch.arange(3, dtype=torch.int16)), "a forward that returns int16"),
        (lambda x: (x, 3), "a forward that returns 3"),
        (lambda x: (x, x.shape[0]), "a forward that returns a size"),
        (lambda x: torch.unique(x), "depends on the data"),
        (lambda x: torch.nonzero(x), "depends on the data"),
        (lambda x: torch.take_along_dim(x, x.argsort(1)), "flattened"),
    ],
)
def test_forms_of_operations_that_do_not_fit(function: Any, reason: str) -> None:
    assert reason in refuse(bslite.UnsupportedError, Fn(function).eval())


def test_training_mode() -> None:
    assert "call .eval()" in refuse(bslite.SpecError, nn.BatchNorm2d(3).train())
    net = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)).eval()
    net[1].train()
    assert "(1)" in refuse(bslite.SpecError, net)


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_parameters_of_another_dtype(dtype: str) -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 1)).eval().to(getattr(torch, dtype))
    message = refuse(bslite.SpecError, net)
    assert f"0.weight is {dtype}, 0.bias is {dtype}" in message
    assert ".float()" in message


def test_parameters_without_values() -> None:
    assert "meta device: weight" in refuse(bslite.SpecError, nn.Conv2d(3, 4, 1, device="meta").eval())


def test_examples_that_do_not_fit() -> None:
    net = nn.Conv2d(3, 4, 1).eval()
    assert "float64 [2, 3, 8, 8]" in refuse(bslite.InputError, net, IMAGE.double())
    assert "example input 1 is float16" in refuse(bslite.InputError, net, (IMAGE, torch.zeros(3).half()))
    assert "too many positional arguments" in refuse(bslite.InputError, net, (IMAGE, IMAGE))
    assert "no tensor" in refuse(bslite.InputError, net, ())


def test_no_module() -> None:
    assert "got function" in refuse(bslite.UnsupportedError, refuse)


def test_control_flow_on_data_names_the_layer() -> None:
    deciding = Fn(lambda x: x.tanh() if x.sum() > 0 else x)
    message = refuse(bslite.UnsupportedError, nn.Sequential(nn.ReLU(), nn.Sequential(deciding)).eval())
    assert (
        "model 'Sequential': torch.export cannot trace it at layer '1.0': Could not guard on data" in message
    )


def test_a_wrong_example_size_names_the_layer() -> None:
    net = nn.Sequential(nn.ReLU(), nn.Conv2d(5, 4, 1)).eval()
    assert "at layer '1'" in refuse(bslite.UnsupportedError, net)


def test_a_forward_that_changes_a_buffer() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(8))

        def forward(self, x: Any) -> Any:
            self.count += 1
            return x + self.count

    net = Counter().eval()
    assert "a forward that changes 'count'" in refuse(bslite.UnsupportedError, net)
    assert float(net.count.sum()) == 0


def test_torch_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(bslite.EngineError, match=r"pip install 'bslite\[torch\]'"):
        from_torch(torch.nn.Tanh(), None)


class Asking(nn.Module):  # type: ignore[name-defined]
    """Does something else where it is traced."""

    def forward(self, x: Any) -> Any:
        return x * 2 if torch.compiler.is_compiling() else x * 3


def test_comparing_a_trace_changes_nothing() -> None:
    """Buffers, attributes, the state of random numbers."""

    class Counting(nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0
            self.register_buffer("mean", torch.zeros(3))
            self.register_buffer("var", torch.ones(3))

        def forward(self, x: Any) -> Any:
            if not torch.compiler.is_compiling():
                self.calls += 1
                torch.rand(3)
                self.mean.add_(1)
            return x * 2

    class Normed(Counting):
        def forward(self, x: Any) -> Any:
            return F.batch_norm(x, self.mean, self.var, training=True, momentum=0.5)

    for module in (Counting().eval(), Normed().eval()):
        torch.manual_seed(0)
        before = torch.get_rng_state()
        with contextlib.suppress(bslite.UnsupportedError):
            from_torch(module, torch.randn(2, 3) + 3)
        torch.randn(2, 3)  # as many numbers as the example
        after = torch.get_rng_state()
        torch.set_rng_state(before)
        for _ in range(2):
            torch.randn(2, 3)
        assert torch.equal(torch.get_rng_state(), after)
        assert module.calls == 0
        assert torch.equal(module.mean, torch.zeros(3))


def test_a_trace_of_something_else_is_refused() -> None:
    module, x = Asking().eval(), torch.randn(2, 5)
    message = refuse(bslite.UnsupportedError, module, x)
    assert "its trace computes something else than its forward: a relative distance of 3.3e-01" in message
    fast = bslite.optimize(module, fallback="silent")
    assert torch.equal(fast(x), x * 3)
    assert "something else" in str(bslite.report(fast))
