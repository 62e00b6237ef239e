"""Complex numbers inside a model, as pairs: arithmetic, moves, products, Fourier transforms."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.check import assert_three_way, rel_l2
from support.torch_modules import Fn, Made, nn, torch
from support.torch_three_way import by_torch

import bslite
from bslite import UnsupportedError, from_torch, reference

fft, parts, z = torch.fft, torch.view_as_real, torch.view_as_complex
C = torch.complex64


def window(n: int) -> Any:
    return torch.hann_window(n, dtype=torch.float64)


def spectrum(x: Any, **how: Any) -> Any:
    """A short-time transform whose window is of the input's precision."""
    return torch.stft(x, 64, 16, window=window(64).to(x.dtype), return_complex=True, **how)


def back(waves: Any, **how: Any) -> Any:
    return torch.istft(waves, 64, 16, window=window(64).to(waves.real.dtype), **how)


def turned(x: Any, angles: Any) -> Any:
    """Rotary positions, as Llama's first code has them."""
    made = z(x.reshape(*x.shape[:-1], -1, 2)) * torch.polar(torch.ones_like(angles), angles)
    return parts(made).flatten(-2)


def conv(x: Any, w: Any) -> Any:
    """A long convolution by transforms."""
    n = 2 * x.shape[-1]
    return fft.irfft(fft.rfft(x, n=n) * fft.rfft(w, n=n), n=n)[..., : x.shape[-1]]


def written(x: Any) -> Any:
    """The low modes of an image's transform, mixed, as neural operators do."""
    waves = fft.rfft2(x)
    out = torch.zeros(x.shape[0], 2, *waves.shape[2:], dtype=waves.dtype)
    out[:, :, :3, :3] = torch.einsum("bixy,io->boxy", waves[:, :, :3, :3], 1j * waves[0, :, :2, 0])
    return fft.irfft2(out, s=x.shape[-2:])


def wide(x: Any) -> Any:
    """Complex numbers of the same precision."""
    return torch.promote_types(x.dtype, C)


def put(into: Any, x: Any) -> Any:
    """Real numbers written into complex ones."""
    into[:, 1:3] = x
    return into


CASES: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "abs, angle": (lambda x: z(x).abs() + z(x).angle(), (5, 2)),
    "arithmetic": (lambda x: parts((3 - 1j) * z(x) + 1j - z(x) / 2 - x[..., 0]), (5, 2)),
    "a real number times a complex one": (lambda x: parts(x * 2j + x / (1 - 2j) + 1j / (x + 9)), (5,)),
    "positional alpha": (lambda x: parts(torch.rsub(z(x), 2, alpha=3) + z(x).add(z(x), alpha=2j)), (5, 2)),
    "small quotient": (lambda x: parts(z(x * 1e-25) / z(x.flip(1) * 1e-25)), (5, 2)),
    "large quotient": (lambda x: parts(z(x * 1e25) / z(x.flip(1) * 1e25)), (5, 2)),
    "the batch added": (lambda x: parts(z(x) + x.shape[0]), (5, 2)),
    "parts that broadcast": (lambda x: parts(torch.complex(x[:, :, None], x[:, None])), (5,)),
    "real and complex": (lambda x: parts(torch.einsum("bi,bi->bi", x[..., 0], z(x))), (5, 2)),
    "sums of real ones": (lambda x: parts(x[..., 0].sum(1, dtype=wide(x)) * z(x)[0, 0].sum()), (2, 2)),
    "real numbers written": (lambda x: parts(put(z(x) * 2j, x[:, :2, 0])), (5, 2)),
    "quotient": (lambda x: parts((1 + z(x)) / (z(x) + 3j)), (5, 2)),
    "reciprocal, square": (lambda x: parts((z(x) ** 2).reciprocal()), (5, 2)),
    "exp, log": (lambda x: torch.exp(z(x)).real + torch.log(z(x)).imag, (5, 2)),
    "tanh": (lambda x: parts(torch.tanh(3 * z(x))), (50, 2)),
    "root, powers": (lambda x: parts(torch.sqrt(z(x)) + z(x) ** 3 + z(x) ** -0.7), (50, 2)),
    "real ones": (lambda x: parts(x.to(wide(x)) * 2j + torch.complex(x, x)), (5,)),
    "choice": (lambda x: parts(torch.where(x[..., 0] > 0, z(x), 2j)), (5, 2)),
    "sums": (lambda x: parts(z(x).sum(1) + z(x).mean(-1).cumsum(-1)), (5, 5, 2)),
    "moves": (
        lambda x: parts(torch.cat([z(x).transpose(1, -1), z(x).mT.flip(-1).conj()], -1)[:, 1:].roll(1, -1)),
        (4, 5, 2),
    ),
    "picked": (lambda x: parts(torch.stack(z(x).unbind(-1), 1)[:, [3, 0, 2]].reshape(-1, 12)), (4, 5, 2)),
    "product": (lambda x: parts(z(x) @ z(x).mH), (4, 5, 2)),
    "contraction": (lambda x: torch.einsum("bik,bjk->bji", z(x), z(x) - 1).imag, (4, 5, 2)),
    "fft": (lambda x: fft.fft(x, norm="ortho").real, (10,)),
    "fft cut": (lambda x: parts(fft.fft(x, n=7, dim=1)), (10, 3)),
    "fft padded": (lambda x: parts(fft.fft(x, n=360, dim=1)), (350, 3)),
    "ifft": (lambda x: parts(fft.ifft(z(x), norm="forward")), (256, 2)),
    "rfft": (lambda x: fft.rfft(x, dim=1).abs(), (33, 3)),
    "rfft long": (lambda x: parts(fft.rfft(x, dim=1)), (500, 3)),
    "rfft of a prime": (lambda x: parts(fft.rfft(x)), (331,)),
    "hfft": (lambda x: fft.hfft(z(x), dim=1), (9, 3, 2)),
    "ihfft": (lambda x: fft.ihfft(x, n=30, dim=1, norm="ortho").abs(), (40, 3)),
    "hfft of real ones": (lambda x: fft.hfft(x, n=25, norm="forward"), (13,)),
    "irfft": (lambda x: fft.irfft(z(x), dim=1), (9, 3, 2)),
    "irfft odd": (lambda x: fft.irfft(z(x), n=333), (167, 2)),
    "irfft cut": (lambda x: fft.irfft(z(x), n=200), (120, 2)),
    "irfft padded": (lambda x: fft.irfft(z(x), n=400), (120, 2)),
    "fftn": (lambda x: fft.fftn(x, dim=(1, 2)).real, (12, 192)),
    "fft2": (lambda x: parts(fft.ifft2(fft.fft2(x)[..., :5])), (3, 7, 6)),
    "rfft2": (lambda x: fft.irfft2(fft.rfft2(x) * (1 + 2j), s=(8, 7)), (3, 8, 7)),
    "shift": (lambda x: fft.ifftshift(fft.fftshift(fft.fft2(x), dim=-1).abs(), dim=(-2, -1)), (3, 15, 14)),
    "stft": (lambda x: parts(spectrum(x)), (400,)),
    "stft uncentred": (lambda x: spectrum(x, center=False, onesided=False).abs(), (400,)),
    "stft constant": (lambda x: spectrum(x, pad_mode="constant", normalized=True).abs(), (400,)),
    "istft": (lambda x: back(spectrum(x)), (400,)),
    "istft longer": (lambda x: back(spectrum(x).reshape(-1, 33, 26), length=410), (400,)),
    "convolution": (lambda x: conv(x, x.flip(-1)), (3, 200)),
    "rotary": (lambda x: turned(x, x[..., :4]), (6, 8)),
    "modes": (written, (3, 8, 10)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_torch(name: str) -> None:
    torch.manual_seed(len(name))
    function, shape = CASES[name]
    module, x = Fn(function).eval(), torch.randn(3, *shape)
    spec = from_torch(module, x)
    if name != "modes":  # which mixes the images of a batch
        assert spec.inputs[0].shape == ("N", *shape)
    made, alone = (bslite.run(spec, x.numpy(), threads=n) for n in (2, 1))
    (peer,), (exact,) = by_torch(module, x)
    assert made.tobytes() == alone.tobytes()
    assert_three_way(made, peer, exact)
    (ours,) = reference.run(spec, [x.numpy()], np.float64)  # whose sines are rounded to float32
    assert rel_l2(ours, exact) < 3e-7
    optimized = bslite.optimize(module, fallback="error", tune=False)
    with torch.no_grad():
        np.testing.assert_allclose(optimized(x), module(x), rtol=1e-4, atol=1e-4)


def spectral() -> Any:
    """A layer with a parameter and a buffer of complex numbers."""

    def forward(m: Any, x: Any) -> Any:
        z = torch.einsum("bik,iok->bok", fft.rfft(x), m.weight) + m.bias
        return fft.irfft(z * m.turn, n=x.shape[-1])

    torch.manual_seed(0)
    weight, bias = (nn.Parameter(torch.randn(n, dtype=C)) for n in ((4, 3, 9), (3, 1)))
    made = Made(forward, weight=weight, bias=bias)
    made.register_buffer("turn", torch.polar(torch.ones(9), torch.arange(9.0)))
    return made.eval()


def test_weights_are_followed() -> None:
    module, x = spectral(), torch.randn(2, 4, 16)
    optimized = bslite.optimize(copy.deepcopy(module), fallback="error", tune=False)
    with torch.no_grad():
        np.testing.assert_allclose(optimized(x), module(x), rtol=1e-4, atol=1e-5)
        for m in (optimized, module):
            m.weight.mul_(2j)
        np.testing.assert_allclose(optimized(x), module(x), rtol=1e-4, atol=1e-5)
        made = torch.compile(copy.deepcopy(module), backend="bslite")
        np.testing.assert_allclose(made(x), module(x), rtol=1e-4, atol=1e-5)


class Between(nn.Module):  # type: ignore[name-defined]
    """Complex numbers on both sides of an operation that stays in torch."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(32, 32), nn.Linear(32, 32)

    def forward(self, x: Any) -> Any:
        z = fft.fft(self.first(x).relu())
        z = torch.linalg.inv(z @ z.mH + torch.eye(32)) @ z
        return self.last(z.real + z.imag).relu()


def test_parts_hand_over_real_numbers() -> None:
    torch.manual_seed(0)
    module, x = Between().eval(), torch.randn(4, 32, 32)
    optimized = bslite.optimize(copy.deepcopy(module), fallback="silent", tune=False)
    with torch.no_grad():
        np.testing.assert_allclose(optimized(x), module(x), rtol=1e-3, atol=1e-5)
    assert "linalg_inv" in str(bslite.report(optimized))
    assert "last" in str(bslite.report(optimized))  # the layers around it run in bslite


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: fft.fft(x), "returns complex64"),
        (lambda x: fft.fft(x, n=131101).real[:, :16], "131101"),
        (lambda x: fft.fft(x).roll(1).real, "all of a complex tensor, flat"),
        (lambda x: torch.tan(fft.fft(x)).real, "aten.tan"),
        (lambda x: (fft.fft(x) * torch.ones(16, dtype=torch.complex128)).abs().float(), "complex128"),
        (lambda x: torch.stft(x, 8, return_complex=True, window=x[0, :8]).abs(), "window is computed"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*window")
def test_what_is_lacking_is_named(function: Any, words: str) -> None:
    module, x = Fn(function).eval(), torch.randn(2, 16)
    with pytest.raises(UnsupportedError, match=words):
        from_torch(module, x)
    optimized = bslite.optimize(module, fallback="silent", tune=False)
    with torch.no_grad():
        assert torch.equal(optimized(x), module(x))


def test_trains_through_transforms() -> None:
    torch.manual_seed(0)

    def forward(m: Any, x: Any) -> Any:
        return m.last(fft.irfft(fft.rfft(m.first(x).relu(), dim=1) * m.turn, n=16, dim=1))

    module = Made(forward, first=nn.Linear(8, 32), last=nn.Linear(32, 8))
    module.register_buffer("turn", torch.polar(torch.ones(9, 1), torch.arange(9.0)[:, None]))
    x, other = torch.randn(4, 16, 8), bslite.optimize(copy.deepcopy(module).train(), tune=False)
    for m in (module.train(), other):
        m(x).square().sum().backward()
    for own, theirs in zip(other.parameters(), module.parameters(), strict=True):
        np.testing.assert_allclose(own.grad, theirs.grad, rtol=1e-4, atol=1e-4)
    assert "0.0 % of the flops in torch" in str(bslite.report(other))


@pytest.mark.filterwarnings("ignore:.*runs in torch")
@pytest.mark.parametrize("learned", [True, False])
def test_what_has_no_gradient_trains_in_torch(learned: bool) -> None:
    """A parameter of complex numbers; numbers written into complex ones."""
    if learned:
        module, x = spectral(), torch.randn(2, 4, 16)
    else:
        module, x = Made(lambda m, x: written(m.first(x)), first=nn.Conv2d(3, 3, 1)), torch.randn(2, 3, 8, 10)
    other = bslite.optimize(copy.deepcopy(module).train(), tune=False)
    for m in (module.train(), other):
        m(x).square().sum().backward()
    for own, theirs in zip(other.parameters(), module.parameters(), strict=True):
        torch.testing.assert_close(own.grad, theirs.grad, rtol=1e-5, atol=1e-3)  # layers inside are ours
