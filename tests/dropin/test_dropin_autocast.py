"""Calls under autocast: results of the dtypes that torch gives them, no less exact than torch's."""

import copy
import threading
from collections.abc import Callable
from typing import Any

import pytest
from dropin.test_dropin_narrow import NARROW, TORCHS, leaves, of_doubles, specs
from support.dropin_models import F, Net, agree, by_bslite, images, nn, said, torch, wrapped
from support.torch_modules import CASES, Case, Fn, Made

import bslite
from bslite.errors import UnsupportedError
from bslite.frontends.torch.autocast import write_casts


def no_worse(module: Any, original: Any, *args: Any, dtype: Any = torch.bfloat16) -> None:
    """Under autocast the module's results have the original's dtypes, and are at most 1.5 times as far from
    those of doubles, but for a unit of ``dtype``; autocast is as it was afterwards.
    """
    with torch.no_grad(), torch.autocast("cpu", dtype):
        want = original(*copy.deepcopy(args))
        got = module(*copy.deepcopy(args))
        assert torch.is_autocast_enabled("cpu")
        assert torch.get_autocast_dtype("cpu") is dtype
    exact = of_doubles(original, args, want)
    for ours, theirs, true in zip(leaves(got), leaves(want), leaves(exact), strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        finite = torch.isfinite(true) & torch.isfinite(theirs)
        error, allowed = (((y.double() - true)[finite]).norm() for y in (ours, theirs))
        unit = 2.0 ** -(8 if dtype is torch.bfloat16 else 11)
        assert error <= 1.5 * allowed + unit / 3 * true[finite].double().norm()


@pytest.mark.filterwarnings("ignore:Using padding='same'", "ignore:Mismatch dtype")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
def test_every_operation(case: Case) -> None:
    """Alone, and on what a linear layer makes, which is of bfloat16."""
    torch.manual_seed(0)
    alone = case.module().eval()
    behind = nn.Sequential(nn.Linear(case.shape[-1], case.shape[-1]), case.module()).eval()
    x = torch.randn(2, *case.shape)
    for net in (alone, behind):
        try:
            with torch.no_grad(), torch.autocast("cpu"):
                copy.deepcopy(net)(x.clone())
        except RuntimeError:
            continue  # torch mixes no such dtypes
        fast = wrapped(net, fallback="silent")
        no_worse(fast, net, x)
        if case.label not in TORCHS:
            by_bslite(fast)


#: What torch composes of other operations, on a value and a parameter of the shape.
COMPOSED: list[tuple[str, Callable[..., Any], tuple[int, ...]]] = [
    ("einsum", lambda x, p: torch.einsum("bij,jk->bik", x, p), (16, 8)),
    ("einsum in lists", lambda x, p: torch.einsum("bij,jk->bik", [x, p]), (16, 8)),
    ("einsum without a sum", lambda x, p: torch.einsum("bij,k->bijk", x, p), (3,)),
    ("bilinear", lambda x, p: F.bilinear(x, x, p), (8, 16, 16)),
    ("tensordot", lambda x, p: torch.tensordot(x, p, dims=([2], [0])), (16, 8)),
    ("inner", lambda x, p: torch.inner(x, p), (5, 16)),
    ("multi_dot", lambda x, p: torch.linalg.multi_dot([x[0], p, p]), (16, 16)),
    ("baddbmm", lambda x, p: torch.baddbmm(x, x, p), (4, 16, 16)),
    ("conv1d", lambda x, p: F.conv1d(x, p, padding="same"), (5, 16, 3)),
    ("attention", lambda x, p: F.scaled_dot_product_attention(x[None], x[None], x[None], p), (16, 16)),
    ("cosine", lambda x, p: F.cosine_similarity(x, p, -1), (16,)),
    ("cat", lambda x, p: torch.cat([x, p]), (1, 16, 16)),
    ("where", lambda x, p: torch.where(x > 0, x, p), (16,)),
    ("cross entropy", lambda x, p: F.cross_entropy(x[0] + p, torch.arange(16)), (16,)),
]
RECURRENT: dict[str, Callable[[], Any]] = {
    "LSTM": lambda: nn.LSTM(16, 8, batch_first=True),
    "LSTM both ways": lambda: nn.LSTM(16, 8, 2, bidirectional=True),
    "LSTM projected": lambda: nn.LSTM(16, 8, proj_size=4),
    "GRU": lambda: nn.GRU(16, 8),
    "RNN": lambda: nn.RNN(16, 8, nonlinearity="relu"),
    "attention": lambda: Made(lambda m, x: m.layer(x, x, x), layer=nn.MultiheadAttention(16, 2)),
    "encoder": lambda: nn.TransformerEncoderLayer(16, 2, 32, batch_first=True),
    **{
        f"{kind} cell": lambda cell=cell: Made(lambda m, x: m.layer(x[0]), layer=cell(16, 8))
        for kind, cell in {"LSTM": nn.LSTMCell, "GRU": nn.GRUCell, "RNN": nn.RNNCell}.items()
    },
}


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("behind", [False, True], ids=["first", "behind a layer"])
@pytest.mark.parametrize("what", [*(name for name, *_ in COMPOSED), *RECURRENT])
def test_what_torch_composes(what: str, behind: bool) -> None:
    torch.manual_seed(0)
    made = [Fn(function, *shape) for name, function, shape in COMPOSED if name == what]
    last = made[0] if made else RECURRENT[what]()
    net = nn.Sequential(nn.Linear(16, 16), last).eval() if behind else last.eval()
    x = torch.randn(4, 16, 16)
    try:
        with torch.no_grad(), torch.autocast("cpu"):
            net(x)
    except RuntimeError:
        pytest.skip("torch mixes no such dtypes")
    fast = wrapped(net, fallback="silent")
    no_worse(fast, net, x)
    if what != "multi_dot":  # which bslite lacks
        by_bslite(fast)


@NARROW
def test_a_network(dtype: Any) -> None:
    """Of any batch, beside calls without autocast."""
    net = Net().eval()
    fast = wrapped(net)
    for batch in (2, 1, 5):
        no_worse(fast, net, images(batch), dtype=dtype)
        agree(fast, net, images(batch))
    by_bslite(fast)
    with torch.no_grad(), torch.autocast("cpu", dtype):
        assert bslite.verify(fast, images()).passed
        assert bslite.bisect(net, images()).passed
    report = bslite.report(fast)
    name = str(dtype).removeprefix("torch.")
    assert sorted(kind.autocast for kind in report.kinds) == ["", "", name, name]
    assert f"under autocast to {name}: 0.0 %" in str(report)
    assert "conv1 to fc" in str(report)  # layers have their names


def test_models_of_all_sizes_hold_one_array_of_a_weight() -> None:
    net = nn.Sequential(nn.Linear(64, 64), nn.Tanh()).eval()
    fast = wrapped(net)
    with torch.no_grad(), torch.autocast("cpu"):
        for shape in ((1, 64), (2, 64), (2, 3, 64)):
            fast(torch.randn(shape))
    made = specs(fast)
    assert len(made) > 1
    assert len({p.ctypes.data for s in made for p in s.params.values() if p.ndim == 2}) == 1


def test_changed_weights_are_followed() -> None:
    net = Net().eval()
    fast = wrapped(net)
    no_worse(fast, net, images())
    with torch.no_grad():
        net.fc.weight.mul_(-2)
    no_worse(fast, net, images())
    by_bslite(fast)


class Regions(nn.Module):
    """Regions within: of another dtype, where autocast is off, and where gradients are on."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c, self.d = (nn.Linear(8, 8) for _ in range(4))

    def forward(self, x: Any) -> Any:
        y = self.a(x)
        with torch.autocast("cpu", torch.float16), torch.enable_grad():
            z = self.b(y)
            with torch.autocast("cpu", enabled=False):
                w = self.c(z.float())
        return self.d(w), z, w, y


@pytest.mark.parametrize("around", [False, True], ids=["alone", "within another"])
def test_regions_of_a_forward(around: bool) -> None:
    net, x = Regions().eval(), torch.randn(3, 8)
    fast = wrapped(net)
    with torch.no_grad(), torch.autocast("cpu", enabled=around):
        got, want = fast(x), net(x)
    for ours, theirs in zip(got, want, strict=True):
        assert ours.dtype is theirs.dtype
        torch.testing.assert_close(ours, theirs, rtol=2e-2, atol=1e-2)
    by_bslite(fast)
    assert not torch.is_autocast_enabled("cpu")


def test_what_torch_runs_has_autocast() -> None:
    """A module as a whole, and the large layers inside of one that cannot be traced."""
    net, x = (
        Made(lambda m, x: m.fc(x) * len(str(m.fc(x).float().tolist())), fc=nn.Linear(8, 8)).eval(),
        torch.ones(2, 8),
    )
    fast = wrapped(net, quiet=False, fallback="silent")
    with torch.no_grad(), torch.autocast("cpu"):
        assert fast(x).dtype is torch.bfloat16
        assert torch.equal(fast(x), net(x))
    assert sum(bslite.report(fast).calls_in_torch.values()) == 2


def test_an_error_leaves_autocast_as_it_was() -> None:
    fast = wrapped(nn.Linear(8, 8).eval(), quiet=False, fallback="silent")
    with torch.no_grad(), torch.autocast("cpu"):
        with pytest.raises(RuntimeError, match="shapes"):
            fast(torch.ones(2, 9))
        assert torch.is_autocast_enabled("cpu")
    assert not torch.is_autocast_enabled("cpu")


def test_other_threads_have_their_own() -> None:
    net, x, made = Net().eval(), images(), []
    fast = wrapped(net)

    def other() -> None:
        with torch.no_grad():
            made.append(fast(x))

    with torch.no_grad(), torch.autocast("cpu"):
        assert fast(x).dtype is torch.bfloat16
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert fast(x).dtype is torch.bfloat16
    assert made[0].dtype is torch.float32


def test_torch_compile() -> None:
    torch.compiler.reset()
    net, x = Net().eval(), images()
    compiled = torch.compile(net, backend="bslite", options={"tune": False})
    no_worse(compiled, net, x)
    with torch.no_grad():
        assert compiled(x).dtype is torch.float32


def test_training_under_autocast_is_torchs() -> None:
    net = Net().train()
    fast = bslite.optimize(net, tune=False)
    with torch.autocast("cpu"):
        assert "inference alone" in said(fast, images())[0]
        fast(images()).float().sum().backward()
    assert net.fc.weight.grad is not None


def test_that_of_another_device() -> None:
    fast = bslite.optimize(Net().eval(), tune=False)
    before = torch.is_autocast_enabled("cuda")
    torch.set_autocast_enabled("cuda", True)
    try:
        with torch.no_grad():
            assert "CUDA" in said(fast, images())[0]
    finally:
        torch.set_autocast_enabled("cuda", before)


def test_a_region_of_another_device_within_is_torchs() -> None:
    class Other(nn.Module):
        def forward(self, x: Any) -> Any:
            with torch.autocast("xpu", torch.bfloat16):
                return x @ x

    with torch.no_grad():
        program = torch.export.export(Other(), (torch.ones(2, 2),), strict=False)
    regions = [n for n in program.graph.nodes if "autocast" in str(n.target)]
    if not regions:
        pytest.skip("torch knows no such device here")
    with pytest.raises(UnsupportedError, match="xpu"):
        write_casts(program, "other")


def runs_lstms() -> None:
    """Skip where torch has no LSTM of bfloat16 for the processor."""
    with torch.no_grad(), torch.autocast("cpu"):
        try:
            nn.LSTM(16, 8)(torch.randn(4, 3, 16))
        except RuntimeError:
            pytest.skip("torch has no LSTM of bfloat16 on this processor")


def test_numbers_among_the_results() -> None:
    runs_lstms()
    net, x = (
        Made(lambda m, x: (m.layer(x), x.shape[0], x.size()), layer=nn.LSTM(16, 8)).eval(),
        torch.randn(4, 3, 16),
    )
    fast = wrapped(net)
    for length in (4, 5, 6):
        x = torch.randn(length, 3, 16)
        with torch.no_grad(), torch.autocast("cpu"):
            got, want = fast(x), net(x)
        assert got[1:] == want[1:]
        assert [y.dtype for y in leaves(got[0])] == [y.dtype for y in leaves(want[0])]
    by_bslite(fast)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("both", [False, True])
def test_packed_sequences_behind_a_layer(kind: Any, both: bool) -> None:
    pack, pad = nn.utils.rnn.pack_padded_sequence, nn.utils.rnn.pad_packed_sequence

    def forward(net: Any, x: Any, lengths: Any) -> Any:
        packed = pack(net.first(x), lengths, batch_first=True, enforce_sorted=False)
        return pad(net.cell(packed)[0], batch_first=True)[0]

    net = Made(forward, first=nn.Linear(6, 8), cell=kind(8, 5, batch_first=True, bidirectional=both)).eval()
    fast = wrapped(net)
    no_worse(fast, net, torch.randn(3, 7, 6), torch.tensor([7, 2, 4]))
    by_bslite(fast)


class Chosen(nn.Module):
    """Control flow on what a layer makes."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = (nn.Linear(16, 16) for _ in range(3))

    def forward(self, x: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda y: self.b(y), lambda y: self.c(y), (self.a(x),))


def test_beside_control_flow_it_is_torchs() -> None:
    net, x = Chosen().eval(), torch.ones(2, 16)
    fast = wrapped(net, quiet=False, fallback="silent")
    with torch.no_grad(), torch.autocast("cpu"):
        assert torch.equal(fast(x), net(x))
    assert any("control flow" in why for why in bslite.report(fast).calls_in_torch)


def test_a_trace_that_torch_does_not_run_is_refused() -> None:
    """An LSTM's result is of bfloat16 in eager mode alone, and the forward asks for its dtype."""
    runs_lstms()

    def forward(net: Any, x: Any) -> Any:
        y = net.cell(x)[0]
        masked = net.layer(x).masked_fill(x > 0, torch.finfo(y.dtype).min)
        return torch.softmax(masked, -1), y * torch.finfo(y.dtype).eps

    net, x = Made(forward, cell=nn.LSTM(16, 16), layer=nn.Linear(16, 16)).eval(), torch.randn(4, 2, 16)
    no_worse(wrapped(net, quiet=False, fallback="silent"), net, x)


def test_a_description_is_of_the_module_without_autocast() -> None:
    net, x = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2)).eval(), torch.randn(3, 8)
    with torch.no_grad(), torch.autocast("cpu"):
        spec = bslite.from_torch(net, x)
        assert torch.is_autocast_enabled("cpu")
    with torch.no_grad():
        torch.testing.assert_close(torch.from_numpy(bslite.run(spec, x.numpy())), net(x))
