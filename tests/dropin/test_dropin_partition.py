"""What bslite has no op for runs in torch, in the same graph, with as few cuts as possible, and is listed."""

import time
import warnings
from typing import Any

import pytest
from support.dropin_models import Stack, agree, by_bslite, images, near, nn, said, torch, wrapped
from support.torch_modules import CASES, Fn, Made
from support.torchvision_models import model as torchvision_model

import bslite
from bslite.dropin import tune as tuning
from bslite.ops.movement import Concat


class Odd(nn.Module):
    """A linear layer, what bslite does not have, and another linear layer."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.before, self.after, self.function = nn.Linear(8, 8), nn.Linear(8, 8), function

    def forward(self, x: Any) -> Any:
        return self.after(self.function(self.before(x).relu()).relu())


def inverse(x: Any) -> Any:
    return torch.linalg.inv(x + 20 * torch.eye(8))


def two_results(x: Any) -> Any:
    q, r = torch.linalg.qr(x + 20 * torch.eye(8))
    return q + 0.1 * r


def erfinv(x: Any) -> Any:
    return torch.special.erfinv(0.5 * torch.tanh(x))


def nothing_left(x: Any) -> Any:
    """A sum over whole blocks of 16 rows, of 8 rows."""
    return x + x[:, : x.shape[1] // 16 * 16].relu().sum(1, keepdim=True)


def padded(x: Any) -> Any:
    """Padding around nothing."""
    return x + torch.nn.functional.pad(x[..., :0].exp(), (4, 4))


def many(x: Any) -> Any:
    """More values put together than an op takes."""
    return torch.cat([x] * (Concat.arity[1] + 1), 1).amax(1, keepdim=True) + x


def parts(module: Any) -> list[str]:
    (kind,) = bslite.report(module).kinds
    return [p.runs_in for p in kind.parts]


def quietly(module: Any, original: Any, *args: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return agree(module, original, *args)


class Counted(nn.Module):
    """A value says how long one of the results is."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x: Any, lengths: Any) -> Any:
        most = lengths.max().item()
        torch._check(most >= 2)
        return self.fc(x), torch.arange(most).float() * 2 + 1


def test_a_size_that_values_say_is_not_the_batch() -> None:
    net = Counted().eval()
    fast = bslite.optimize(net, tune=False, fallback="silent")
    with torch.no_grad():
        for rows, longest in ((2, 7), (3, 9), (9, 3)):
            x, lengths = torch.randn(rows, 8), torch.tensor([2, longest])
            for made, want in zip(fast(x, lengths), net(x, lengths), strict=True):
                torch.testing.assert_close(made, want)
    assert bslite.report(fast).calls_in_torch == {}
    assert all({p.runs_in for p in kind.parts} == {"bslite"} for kind in bslite.report(fast).kinds)


@pytest.mark.parametrize(
    "function", [inverse, two_results, erfinv, nothing_left, padded, many], ids=lambda f: f.__name__
)
def test_an_unsupported_operation_in_the_middle(function: Any) -> None:
    net = Odd(function).eval()
    fast = wrapped(net, fallback="warn")
    for batch in (2, 5, 1):
        quietly(fast, net, torch.randn(batch, 8, 8))
    for kind in bslite.report(fast).kinds:
        assert [p.runs_in for p in kind.parts] == ["bslite", "bslite"]
        assert 0 < kind.torch_share < 1


def test_two_cuts() -> None:
    net = nn.Sequential(Odd(inverse), nn.Tanh(), Odd(erfinv)).eval()
    fast = wrapped(net, fallback="silent")
    agree(fast, net, torch.randn(3, 8, 8))
    assert parts(fast) == ["bslite"] * 3


def test_branches_that_meet_make_no_more_parts_than_needed() -> None:
    """The branch beside the cut goes with the part before or after it."""

    def branches(net: Any, x: Any) -> Any:
        left = erfinv(torch.tanh(net.a(x)))
        right = net.b(x).relu()
        return net.d(torch.cat([net.c(left), right], -1)[..., :8] + right)

    net = Made(branches, **{name: nn.Linear(8, 8) for name in "abcd"}).eval()
    fast = wrapped(net, fallback="silent")
    agree(fast, net, torch.randn(4, 8))
    assert parts(fast) == ["bslite", "bslite"]


class Weighed(nn.Module):
    """Numbers for each image that are computed from nothing but how many images there are."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        weights = torch.special.erfinv(torch.ones(x.shape[0], 8).cumsum(1).exp().cumsum(1) * 1e-4)
        return self.fc(torch.special.erfinv(x)) + weights


def test_a_part_that_takes_no_more_than_a_size() -> None:
    net = Weighed().eval()
    fast = wrapped(net, quiet=False)
    for batch in (3, 5, 2):
        quietly(fast, net, torch.rand(batch, 8) * 0.9)
    assert parts(fast) == ["bslite", "bslite"]
    assert not bslite.report(fast).calls_in_torch


def test_the_warning_lists_everything_at_once() -> None:
    net = nn.Sequential(Odd(inverse), nn.Sequential(Odd(erfinv)), Odd(erfinv)).eval()
    fast = wrapped(net, fallback="warn")
    with torch.no_grad():
        (text,) = said(fast, torch.randn(3, 8, 8))
        assert said(fast, torch.randn(4, 8, 8)) == []
    first, *lines = text.splitlines()
    assert first.startswith("model 'Sequential': bslite lacks some of its operations; ")
    assert first.endswith("% of the flops is torch's:")
    assert lines[0] == "  2 x aten.special_erfinv.default; at 1.0, 2"
    assert any("linalg" in line and line.endswith("; at 0") for line in lines)


def test_operations_that_read_each_other_are_all_listed() -> None:
    """Two that bslite lacks, one reading the other's result, and a form that it lacks behind both."""

    def forward(x: Any) -> Any:
        return torch.lgamma(torch.digamma(x.tanh() + 3)).round(decimals=1)

    net = Odd(forward).eval()
    with torch.no_grad():
        (text,) = said(wrapped(net, fallback="warn"), torch.randn(3, 8, 8))
    with pytest.raises(bslite.UnsupportedError) as caught:
        bslite.optimize(net, torch.randn(3, 8, 8), fallback="error", tune=False)
    for message in (text, str(caught.value)):
        for operation in ("aten.lgamma.default", "aten.digamma.default", "aten.round.decimals: "):
            assert message.count(operation) == 1, message


def test_error_and_silent() -> None:
    x = torch.randn(3, 8, 8)
    with pytest.raises(bslite.UnsupportedError, match="special_erfinv"):
        bslite.optimize(Odd(erfinv).eval(), x, fallback="error", tune=False)
    fast = bslite.optimize(Odd(erfinv).eval(), fallback="silent", tune=False)
    with torch.no_grad():
        assert said(fast, x) == []
    assert parts(fast) == ["bslite", "bslite"]


def test_control_flow_on_data_runs_in_torch_as_it_is() -> None:
    net = Made(lambda net, x: net.fc(x) if float(x.sum()) > 0 else x * 2, fc=nn.Linear(4, 4)).eval()
    fast = wrapped(net, fallback="warn")
    x = torch.randn(3, 4).abs()
    with torch.no_grad():
        (text,) = said(fast, x)
    assert "torch.export cannot trace it" in text
    agree(fast, net, x)
    agree(fast, net, -x)
    assert "cannot trace it" in str(bslite.report(fast))
    with pytest.raises(bslite.UnsupportedError, match="Could not guard on data"):
        bslite.optimize(net, x, fallback="error")


@pytest.mark.parametrize(
    ("function", "batches"),
    [
        (lambda x: x.relu().squeeze(), (3, 1, 2)),
        (lambda x: x.relu() if x.shape[0] > 4 else x.tanh(), (3, 6, 1, 2, 3, 6)),
    ],
)
def test_a_branch_on_the_batch(function: Any, batches: tuple[int, ...]) -> None:
    net = Fn(function)
    fast = wrapped(net)
    for batch in batches:
        agree(fast, net, torch.randn(batch, 5, 1))
    by_bslite(fast)


def test_a_buffer_changed_by_the_forward_runs_in_torch() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(3))

        def forward(self, x: Any) -> Any:
            self.count += 1
            return x + self.count

    net = Counter().eval()
    fast = wrapped(net, fallback="silent")
    x = torch.zeros(2, 3)
    with torch.no_grad():
        answers = [float(fast(x).max()) for _ in range(4)]
    assert answers == [1, 2, 3, 4]


def test_work_in_place_beside_a_cut() -> None:
    """Parts run at another moment than their nodes did; a write must not overtake a read."""

    def writing(x: Any) -> Any:
        y = x * 2
        before = y.relu() + 1
        y.add_(torch.special.erfinv(torch.tanh(x) * 0.5))
        after = y.sigmoid()
        return before, after, y

    agree(wrapped(Fn(writing), fallback="silent"), Fn(writing), torch.randn(3, 5))


def test_random_numbers_stay_in_torch() -> None:
    net = Made(lambda net, x: net.fc(x + torch.rand_like(x)), fc=nn.Linear(4, 4)).eval()
    fast = wrapped(net, fallback="silent")
    x = torch.randn(3, 4)
    with torch.no_grad():
        fast(x)
        torch.manual_seed(1)
        want = net(x)
        torch.manual_seed(1)
        near(fast(x), want)
    assert not torch.equal(fast(x), fast(x))


def test_other_dtypes_on_the_way() -> None:
    net = Odd(lambda x: (x.double() * 1.5).half().float()).eval()
    fast = wrapped(net, fallback="silent")
    agree(fast, net, torch.randn(3, 8))
    assert parts(fast) == ["bslite", "bslite"]


def test_an_index_out_of_range_is_torchs_error() -> None:
    net = nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 4)).eval()
    fast = wrapped(net, fallback="warn")
    agree(fast, net, torch.tensor([[1, 2, 9]]))
    by_bslite(fast)
    bad = torch.tensor([[1, 2, 10]])
    with torch.no_grad(), pytest.warns(UserWarning, match="out of"), pytest.raises(IndexError):
        fast(bad)


@pytest.mark.parametrize("slower", ["bslite", "torch"])
def test_a_part_measured_slower_stays_in_torch(slower: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = (2.0, 1.0) if slower == "bslite" else (1.0, 2.0)
    measured: list[int] = []
    monkeypatch.setattr(tuning, "compare", lambda a, b, _: (a(), b(), measured.append(1)) and seconds)
    net = nn.Sequential(Odd(inverse), Odd(erfinv)).eval()
    fast = bslite.optimize(net, fallback="silent")
    agree(fast, net, torch.randn(3, 8, 8))
    times = 6 if slower == "bslite" else 3  # what seems slower is measured once more
    assert len(measured) == times
    (kind,) = bslite.report(fast).kinds
    other = "torch" if slower == "bslite" else "bslite"
    assert {p.runs_in for p in kind.parts} == {other}
    assert {p.seconds for p in kind.parts} == {seconds}
    text = str(bslite.report(fast))
    assert "measured" in text
    assert ("every part is faster in torch" in text) == (slower == "bslite")
    agree(fast, net, torch.randn(5, 8, 8))
    assert len(measured) == times


def test_a_part_is_slower_only_if_it_is_when_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([(3.0, 1.5), (1.0, 2.0)])
    monkeypatch.setattr(tuning, "compare", lambda a, b, _: next(answers))
    net = nn.Linear(8, 8).eval()
    fast = bslite.optimize(net, fallback="silent")
    agree(fast, net, torch.randn(3, 8))
    by_bslite(fast)
    ((part,),) = (kind.parts for kind in bslite.report(fast).kinds)
    assert part.seconds == (1.0, 1.5)


def test_only_the_slow_part_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([(1.0, 2.0), (2.0, 1.0), (3.0, 1.0), (1.0, 2.0)])
    monkeypatch.setattr(tuning, "compare", lambda a, b, _: next(answers))
    net = nn.Sequential(Odd(inverse), Odd(erfinv)).eval()
    fast = bslite.optimize(net, fallback="silent")
    agree(fast, net, torch.randn(3, 8, 8))
    assert parts(fast) == ["bslite", "torch", "bslite"]
    net[0].after.weight.data.mul_(2)
    agree(fast, net, torch.randn(3, 8, 8))


def test_measuring_measures() -> None:
    for pause in (0.0, 0.001):
        ours, theirs = tuning.compare(lambda: None, lambda: sum(range(20000)), pause)
        assert 0 < ours < theirs


def test_a_measurement_begins_when_others_threads_have_come_to_rest() -> None:
    """What runs within the pause does not count; what takes longer than several pauses is not run again."""
    quick, slow = list[int](), list[int]()
    tuning.compare(lambda: quick.append(1), lambda: (time.sleep(0.02), slow.append(1)), 0.002)
    assert len(slow) == 1 + 2  # two turns tell them apart
    assert len(quick) > 1 + 2


def test_values_that_pass_through_memory_without_numbers_are_measured() -> None:
    """As DeepSeek's attention does: new memory of the kind of a value, filled by parts."""

    def filled(owner: Any, x: Any) -> Any:
        value = owner.layer(x).view(2, 3, 8).transpose(1, 2)
        made = value.new_empty(2, 8, 3)
        made[:, :5], made[:, 5:] = value[:, :5], value[:, 5:].sin()
        return made @ made.transpose(1, 2)

    net = Made(filled, layer=nn.Linear(8, 8)).eval()
    fast = bslite.optimize(net, tune=True, fallback="error")
    x = torch.randn(6, 8)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), net(x))


def test_nothing_is_measured_without_tuning(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> Any:
        raise AssertionError("measured")

    monkeypatch.setattr(tuning, "compare", never)
    net = Stack().eval()
    agree(wrapped(net), net, torch.randn(2, 12))


@pytest.mark.networks
@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2"])
def test_a_network_from_torchvision(name: str) -> None:
    net = torchvision_model(name)
    fast = bslite.optimize(net, fallback="error")
    for batch in (2, 1):
        agree(fast, net, images(batch, 64))
    for kind in bslite.report(fast).kinds:
        assert len(kind.parts) == 1
        assert kind.parts[0].seconds is not None


@pytest.mark.networks
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.label)
def test_whatever_from_torch_takes(case: Any) -> None:
    """Nothing of it stays in torch, with a free batch and with a batch of one."""
    torch.manual_seed(0)
    net = case.module().eval()
    if getattr(net, "inplace", False):  # on the user's own tensor, which bslite leaves to torch
        net = nn.Sequential(nn.Tanh(), net).eval()
    fast = wrapped(net)
    for batch in (3, 1):
        agree(fast, net, torch.randn(batch, *case.shape))
    by_bslite(fast)


def test_what_readers_broadcast_leaves_a_part_in_full() -> None:
    """A row for all images, which a product reads in the part that makes it and in the next one."""

    def forward(m: Any, x: Any) -> Any:
        row = m.first(x[:1]).relu().expand(x.shape[0], -1)
        y = m.first(x) * row
        return m.last(torch.lgamma(y.abs() + 1) * row).relu()

    net = Made(forward, first=nn.Linear(8, 8), last=nn.Linear(8, 8)).eval()
    fast = wrapped(net, quiet=False, fallback="silent")
    for batch in (3, 5):
        agree(fast, net, torch.randn(batch, 8))
    assert bslite.report(fast).calls_in_torch == {}
