"""Forms of operations that fewer models use: products with vectors, norms by the batch, order statistics."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.torch_modules import F, Fn, Made, nn, torch

import bslite
from bslite import from_torch

WINDOWS, LINE = torch.arange(12.0).reshape(3, 4) / 7, torch.arange(5.0) - 2
MATRIX, STACK = torch.arange(20.0).reshape(5, 4) / 9, torch.arange(40.0).reshape(2, 5, 4) / 11
CASES: dict[str, tuple[Any, tuple[int, ...], str]] = {
    "matrix by a vector": (lambda x: x @ LINE, (3, 5), ""),
    "a vector by matrices": (lambda x: LINE[:3] @ x, (3, 5), ""),
    "mv": (lambda x: torch.mv(x, LINE), (5,), ""),
    "addmv": (lambda x: torch.addmv(LINE[:1], x, LINE, beta=0.5, alpha=2), (5,), ""),
    "addmm, scaled": (lambda x: torch.addmm(x[:, :4], x, MATRIX, beta=0.5, alpha=3), (5,), ""),
    "linear, weight computed": (lambda x: F.linear(x, x[0].tanh(), LINE[:3]), (3, 5), ""),
    "conv2d, weight computed": (lambda x: F.conv2d(x, x[:1, :, :2, :2].tanh(), LINE[:1]), (3, 7, 6), ""),
    "conv1d, weight and bias computed": (
        lambda x: F.conv1d(x, x[0, :, :4].reshape(6, 1, 2), x[0, :, :2].flatten(), groups=3),
        (3, 5),
        "",
    ),
    "transposed, bias computed": (
        lambda x: F.conv_transpose1d(x, STACK[:, :4].transpose(0, 1), x[0, 0, :2], stride=2),
        (4, 5),
        "",
    ),
    "bilinear": (
        Made(lambda m, x: m.both(x, x[..., :4].tanh()), both=nn.Bilinear(5, 4, 3)),
        (3, 5),
        "slice tanh linear reshape reshape matmul flatten add",
    ),
    "bilinear, of rows": (
        Made(lambda m, x: m.both(x, x.exp()), both=nn.Bilinear(5, 5, 2, bias=False)),
        (5,),
        "",
    ),
    "norm by the batch": (lambda x: F.batch_norm(x, None, None, training=True), (3, 4, 5), ""),
    "BatchNorm2d without statistics": (nn.BatchNorm2d(3, track_running_stats=False), (3, 4, 5), ""),
    "kthvalue": (lambda x: x.kthvalue(3, 1)[0], (5, 4), "topk slice gather_elements flatten"),
    "median": (lambda x: x.median(-1, keepdim=True)[0], (5, 4), ""),
    "fmax": (lambda x: torch.fmax(x.sqrt(), WINDOWS), (3, 4), ""),
    "fmin": (lambda x: torch.fmin(x.sqrt(), x.log()), (3, 4), ""),
    "diagonal": (lambda x: x.diagonal(1, 1, 2), (5, 4), "flatten slice"),
    "diagonal, below": (lambda x: x.diagonal(-2, 2, 1), (5, 4), ""),
    "diag of a vector": (lambda x: x @ torch.diag(LINE.to(x) * x[0, 0], 1)[:5, 1:], (3, 5), ""),
    "diag_embed": (lambda x: torch.diag_embed(x), (3, 5), ""),
    "diag_embed, below, other axes": (lambda x: torch.diag_embed(x, -2, 0, 2), (3, 5), ""),
    "diag_embed, above, turned": (lambda x: torch.diag_embed(x, 1, -1, 1), (3, 5), ""),
    "diag": (lambda x: (x.mT @ x).diag(1), (5,), ""),
    "cdist": (lambda x: torch.cdist(x, MATRIX), (6, 4), ""),
    "cdist, by a product": (lambda x: torch.cdist(x, x.flip(1) + 1), (200, 12), ""),
    "cdist, p=1": (lambda x: torch.cdist(MATRIX.tanh(), x, p=1), (6, 4), ""),
    "unfold": (lambda x: x.unfold(1, 3, 2), (9, 4), "gather permute"),
    "unfold, last": (lambda x: x.unfold(-1, 4, 1), (2, 9), "gather"),
    "searchsorted": (
        lambda x: torch.searchsorted(LINE.sort()[0], x.log(), side="right").float(),
        (3, 4),
        "log reshape greater not cast sum cast",
    ),
    "searchsorted, rows": (
        lambda x: torch.searchsorted(x.sort(-1)[0], x.flip(-1)[..., 1:]).float() + x[..., 1:],
        (3, 4),
        "",
    ),
    "bucketize": (lambda x: torch.bucketize(x.log(), LINE.sort()[0], out_int32=True).float(), (3, 4), ""),
    "bucketize, right": (
        lambda x: torch.bucketize(x.round(), LINE.round().sort()[0], right=True).float(),
        (3, 4),
        "",
    ),
    "isin": (lambda x: torch.isin(x.floor(), LINE).float(), (3, 4), "floor reshape equal amax cast"),
    "isin, inverted": (lambda x: torch.isin(x.floor(), LINE, invert=True).float(), (3, 4), ""),
}


@pytest.mark.filterwarnings("ignore:.*the batch is fixed")
@pytest.mark.parametrize(("function", "shape", "made"), CASES.values(), ids=CASES)
def test_agrees_with_torch(function: Callable[..., Any], shape: tuple[int, ...], made: str) -> None:
    torch.manual_seed(0)
    module = (function if isinstance(function, nn.Module) else Fn(function)).eval()
    spec = from_torch(module, torch.randn(2, *shape))
    names = " ".join(n.op for n in spec.nodes if n.op != "constant")
    assert not made or names == made
    for batch in (2, 3) if spec.inputs[0].shape[0] == "N" else (2,):
        x = torch.randn(batch, *shape)
        with torch.no_grad():
            want = module(x).numpy()
        for backend in ("reference", "cpu"):
            got = bslite.run(spec, x.numpy(), backend=backend)
            assert got.shape == want.shape
            np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
            there = ~np.isnan(want)
            assert np.linalg.norm((got - want)[there]) <= 2e-6 * np.linalg.norm(want[there])


def test_median_of_nan() -> None:
    x = torch.randn(3, 5)
    x[1, 2] = torch.nan
    spec = from_torch(Fn(lambda x: x.median(1)[0]).eval(), x)
    np.testing.assert_array_equal(bslite.run(spec, x.numpy()), x.median(1)[0].numpy())


def test_windows_over_one_image() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d((2, 3))).eval()
    x = torch.randn(3, 12, 14)
    with torch.no_grad():
        want = net(x).numpy()
        got = bslite.optimize(net, tune=False)(x).numpy()
    assert got.shape == want.shape
    assert np.linalg.norm(got - want) <= 2e-6 * np.linalg.norm(want)


def test_an_operation_that_writes_to_its_inputs_unsaid() -> None:
    """``native_batch_norm``: what it writes out to shows that it changes the running statistics."""

    def forward(x: Any, mean: Any, var: Any) -> Any:
        return tuple(2 * r for r in torch.native_batch_norm(x, None, None, mean, var, True, 0.1, 1e-5))

    torch.manual_seed(0)
    x, statistics = torch.randn(4, 3, 5), (torch.zeros(3), torch.ones(3))
    ours, theirs = ([t.clone() for t in statistics] for _ in range(2))
    got = bslite.optimize(Fn(forward).eval(), tune=False, fallback="silent")(x, *ours)
    want = forward(x, *theirs)
    for a, b in zip([*got, *ours], [*want, *theirs], strict=True):
        assert torch.equal(a, b)


def test_a_module_without_operations() -> None:
    x = torch.randn(2, 3)
    assert torch.equal(bslite.optimize(Fn(lambda x: x).eval(), tune=False, fallback="silent")(x), x)


def test_regions_where_gradients_are_switched_on() -> None:
    class Regions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x: Any) -> Any:
            y = self.a(x)
            with torch.enable_grad():
                z = self.b(y).relu()
                with torch.no_grad():
                    w = z * 2
                z = z + w
            with torch.set_grad_enabled(True):
                z = z.clone()
                z.add_(1)
            return z + y, w

    net, x = Regions().eval(), torch.randn(4, 8)
    for got, want in zip(bslite.run(from_torch(net, x), x), net(x), strict=True):
        np.testing.assert_allclose(got, want.detach().numpy(), rtol=1e-5, atol=1e-5)
