"""Images of bytes in torch models: pixels that become floats, results that become pixels."""

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import bslite
from bslite.errors import UnsupportedError

torch = pytest.importorskip("torch")
F = torch.nn.functional
SHAPE = (2, 3, 8, 10)

#: What bslite computes of bytes, as torch does.
TAKEN: dict[str, Callable[[Any], Any]] = {
    "float": lambda u: u.float(),
    "quotient": lambda u: u / 255,
    "product": lambda u: u * 0.5,
    "difference": lambda u: u - 127.5,
    "with integers": lambda u: u + torch.arange(10),
    "with a number of floats": lambda u: u + torch.tensor(0.5),
    "integers": lambda u: u.long() * 300,
    "other bytes": lambda u: u.to(torch.int8 if u.dtype is torch.uint8 else torch.uint8),
    "from floats": lambda u: (u.float() * 1.7 - 300).to(u.dtype),
    "from integers": lambda u: (u.int() * 3 - 1000).to(u.dtype),
    "from conditions": lambda u: (u > 100).to(u.dtype),
    "to conditions": lambda u: u.bool(),
    "compared": lambda u: (u == 5) | (u > 100) | (u < 0),
    "compared with a float": lambda u: u > 10.5,
    "compared with each other": lambda u: u >= u.flip(-1),
    "chosen": lambda u: torch.where(u > 50, u, u.flip(-1)),
    "chosen or a number": lambda u: torch.where(u > 50, u, 7),
    "filled": lambda u: u.masked_fill(u > 50, 9),
    "channels last": lambda u: u.permute(0, 2, 3, 1),
    "concatenated": lambda u: torch.cat([u, u.flip(1)], 1),
    "concatenated with floats": lambda u: torch.cat([u, u * 0.5], 1),
    "padded": lambda u: F.pad(u, (1, 2, 0, 1), value=3),
    "cut": lambda u: u[:, 1:, ::2, -5:],
    "picked": lambda u: u[:, [2, 1, 0]],
    "picked by bytes": lambda u: torch.arange(-128, 256)[u.long() + 128],
    "repeated": lambda u: u.repeat(1, 2, 1, 1),
    "summed": lambda u: u.sum(1),
    "returned with floats": lambda u: (u.flatten(1), u.float()),
}
#: What torch computes modulo 256, or by bits.
LEFT: dict[str, Callable[[Any], Any]] = {
    "sum": lambda u: u + 1,
    "product": lambda u: u * u.flip(-1),
    "whole quotient": lambda u: u // 3,
    "opposite": lambda u: -u,
    "shifted": lambda u: u >> 2,
    "a number beyond": lambda u: u > 300,
}


class Made(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, u: Any) -> Any:
        return self.function(u)


def pixels(dtype: Any) -> Any:
    """All numbers of one dtype, some of them twice."""
    info = torch.iinfo(dtype)
    return (torch.arange(480) * 7 % 256 + info.min).to(dtype).reshape(SHAPE)


def same(got: Any, want: Any) -> None:
    for one, other in zip(*((v if isinstance(v, (tuple, list)) else [v]) for v in (got, want)), strict=True):
        exact = 0 if other.dtype is not torch.float32 else 1.2e-7  # x / 255 is x times its inverse
        np.testing.assert_allclose(np.asarray(one), other.numpy(), rtol=exact, atol=0, strict=True)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8], ids=str)
@pytest.mark.parametrize("function", TAKEN.values(), ids=list(TAKEN))
def test_bytes_are_moved_compared_and_cast(function: Callable[[Any], Any], dtype: Any) -> None:
    model, u = Made(function), pixels(dtype)
    want = model(u)
    same(bslite.run(bslite.from_torch(model, u), u.numpy()), want)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # that torch runs some of it
        same(bslite.optimize(model)(u), want)


@pytest.mark.parametrize("function", LEFT.values(), ids=list(LEFT))
def test_arithmetic_of_bytes_is_torchs(function: Callable[[Any], Any]) -> None:
    model, u = Made(function), pixels(torch.uint8)
    with pytest.raises(UnsupportedError, match=r"uint8|rshift"):
        bslite.from_torch(model, u)
    with pytest.warns(UserWarning, match="bslite lacks"):
        same(bslite.optimize(model)(u), model(u))


def test_two_dtypes_become_torchs() -> None:
    """Tensors of any two dtypes, and numbers of rank 0, which count less."""
    from bslite.frontends.common.unsupported import Unsupported
    from bslite.frontends.torch.operands import promoted
    from bslite.frontends.torch.values import Const

    dtypes = [torch.bool, torch.uint8, torch.int8, torch.int32, torch.int64, torch.float32]
    operands = [torch.ones(shape, dtype=dtype) for dtype in dtypes for shape in ((2,), ())]
    for a, b in itertools.product(operands, repeat=2):
        want = torch.result_type(a, b)
        if want is torch.int16:  # of uint8 and int8
            with pytest.raises(Unsupported, match="int8 and uint8"):
                promoted(Const(a, "a"), Const(b, "b"))
        else:
            assert f"torch.{promoted(Const(a, 'a'), Const(b, 'b'))}" == str(want)


def test_a_picture_in_and_out() -> None:
    """A network whose input and output are pixels, on sizes that are left open."""
    torch.manual_seed(0)
    inside = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(8, 3, 1)
    )
    model = Made(lambda u: (inside(u.permute(0, 3, 1, 2) / 255).sigmoid() * 255).round().to(torch.uint8))
    model.inside = inside
    spec = bslite.from_torch(model.eval(), torch.zeros(1, 16, 16, 3, dtype=torch.uint8))
    u = torch.arange(2 * 16 * 16 * 3).remainder(251).to(torch.uint8).reshape(2, 16, 16, 3)
    with torch.no_grad():
        want = model(u).numpy()
    got = bslite.run(spec, u.numpy())
    assert isinstance(got, np.ndarray)
    assert got.dtype == np.uint8
    assert np.abs(got.astype(int) - want).max() <= 1  # where a number is nearly half
    with pytest.raises(bslite.InputError, match="uint8"):
        bslite.run(spec, u.numpy().astype(np.float32))
