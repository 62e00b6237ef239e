"""Builders of Fourier transforms, of whole axes (``torch.fft``) and short-time (stft, istft)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bslite.frontends.common.fourier import Transform, centred, from_short_time, short_time, transformed
from bslite.frontends.common.moves import reshape
from bslite.frontends.common.unsupported import Unsupported, Varies
from bslite.frontends.common.values import Value
from bslite.frontends.torch.builders import aten, complex_aten, operation
from bslite.frontends.torch.ops import repeat
from bslite.frontends.torch.ops.complex_moves import shifted
from bslite.frontends.torch.site import Site
from bslite.frontends.torch.values import Const, Operand, Pairs, RealParts
from bslite.spec import Array

#: By ``norm``: the power of the number of points by which what a transform and its inverse make is divided.
POWERS = {None: (0.0, 1.0), "backward": (0.0, 1.0), "ortho": (0.5, 0.5), "forward": (1.0, 0.0)}


def _scale(norm: str | None, inverse: bool, points: int) -> float:
    if norm not in POWERS:
        raise Unsupported(f"norm={norm!r}")
    return float(points ** -POWERS[norm][inverse])


def _length(x: Any, axis: int, size: Any) -> int:
    length = x.shape[axis] if size in (None, -1) else size
    if not isinstance(length, int):
        raise Varies("along an axis whose size is free")
    return length


@complex_aten("fft_fft", "fft_ifft", "fft_rfft", "fft_irfft")
def along_one(s: Site, x: Pairs | Operand, n: Any = None, dim: int = -1, norm: str | None = None) -> Any:
    return along(s, x, [dim], None if n is None else [n], norm)


@complex_aten("fft_fft2", "fft_ifft2", "fft_rfft2", "fft_irfft2")
def along_two(
    s: Site, x: Pairs | Operand, sizes: Any = None, dim: Sequence[int] = (-2, -1), norm: str | None = None
) -> Any:
    return along(s, x, dim, sizes, norm)


@complex_aten("fft_fftn", "fft_ifftn", "fft_rfftn", "fft_irfftn")
def along_some(
    s: Site, x: Pairs | Operand, sizes: Any = None, dim: Any = None, norm: str | None = None
) -> Any:
    if dim is None:
        rank = len(x.shape)
        dim = [d % rank for d in range(-(rank if sizes is None else len(sizes)), 0)]
    return along(s, x, dim, sizes, norm)


def along(s: Site, x: Pairs | Operand, dim: Sequence[int], sizes: Any, norm: str | None) -> Any:
    """One axis after the other; that of the real numbers first, or in the inverse last."""
    kind = s.operation.removeprefix("fft_")
    inverse, of_real = "i" in kind, kind.startswith(("r", "ir"))
    axes = [d % len(x.shape) for d in dim]
    if not axes or len(set(axes)) != len(axes):
        raise Unsupported(f"along axes {list(dim)}")
    lengths = [_length(x, a, n) for a, n in zip(axes, sizes or [None] * len(axes), strict=True)]
    if of_real and inverse and (sizes is None or sizes[-1] in (None, -1)):
        lengths[-1] = 2 * (lengths[-1] - 1)
    scales = [_scale(norm, inverse, n) for n in lengths]
    steps = list(zip(axes, lengths, scales, strict=True))
    paired = isinstance(x, Pairs)
    value: Any = x.parts if isinstance(x, Pairs) else x
    if value.dtype != "float32":
        raise Unsupported(f"of {value.dtype}")
    real = all(operation(user) == "real" for user in s.users)
    for i, (axis, length, scale) in enumerate(steps if inverse else steps[::-1]):
        last = i == len(steps) - 1
        if of_real and inverse and last:
            return transformed(s, value, axis, Transform(length, True, scale, half=True), paired=True)
        how = Transform(length, inverse, scale, onesided=of_real and not inverse and i == 0)
        value = transformed(s, value, axis, how, paired=paired, real=real and last)
        paired = True
    return RealParts(value) if real else Pairs(value)


@aten("fft_hfft")
@complex_aten("fft_hfft", "fft_ihfft")
def of_half(s: Site, x: Pairs | Operand, n: Any = None, dim: int = -1, norm: str | None = None) -> Any:
    """Of a half, the conjugate of the one that ``rfft`` makes, real numbers; and the way back."""
    axis, inverse, paired = dim % len(x.shape), s.operation == "fft_ihfft", isinstance(x, Pairs)
    value: Any = x.parts if isinstance(x, Pairs) else x
    if value.dtype != "float32":
        raise Unsupported(f"of {value.dtype}")
    length = _length(x, axis, n)
    if not inverse and n in (None, -1):
        length = 2 * (length - 1)
    how = Transform(length, inverse, _scale(norm, inverse, length), onesided=inverse, half=not inverse)
    made = transformed(s, value, axis, how, paired=paired)
    return Pairs(made) if inverse else made


@complex_aten("_fft_c2c")
def complex_to_complex(s: Site, x: Pairs, dim: Sequence[int], normalization: int, forward: bool) -> Pairs:
    return _plain(s, x, dim, normalization, not forward)


@complex_aten("_fft_r2c")
def real_to_complex(s: Site, x: Operand, dim: Sequence[int], normalization: int, onesided: bool) -> Pairs:
    return _plain(s, x, dim, normalization, False, onesided)


def _plain(
    s: Site, x: Pairs | Operand, dim: Sequence[int], normalization: int, inverse: bool, onesided: bool = False
) -> Pairs:
    """torch's inner form; ``normalization``: divided by 1, by the root of the points, by the points."""
    value: Any = x.parts if isinstance(x, Pairs) else x
    paired, rank = isinstance(x, Pairs), len(x.shape)
    for i, d in enumerate(reversed(dim)):
        length = _length(x, d % rank, None)
        scale = length ** (-normalization / 2)
        how = Transform(length, inverse, scale, onesided and i == 0)
        value = transformed(s, value, d % rank, how, paired=paired)
        paired = True
    return Pairs(value)


@complex_aten("_fft_c2r")
def complex_to_real(s: Site, x: Pairs, dim: Sequence[int], normalization: int, last: int) -> Operand:
    rest = _plain(s, x, dim[:-1], normalization, True) if len(dim) > 1 else x
    how = Transform(last, True, last ** (-normalization / 2), half=True)
    made: Operand = transformed(s, rest.parts, dim[-1] % len(x.shape), how, paired=True)
    return made


@aten("fft_fftshift", "fft_ifftshift")
def shift(s: Site, x: Operand, dim: Any = None) -> Operand:
    """Bin 0 to the middle, or back."""
    axes = list(range(len(s.shape))) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    sizes = [x.shape[a] for a in axes]
    if not all(isinstance(n, int) for n in sizes):
        raise Varies("along an axis whose size is free")
    back = s.operation == "fft_ifftshift"
    return repeat.roll(s, x, [(n + 1) // 2 if back else n // 2 for n in sizes], axes)


@complex_aten("fft_fftshift", "fft_ifftshift")
def complex_shift(s: Site, x: Pairs, dim: Any = None) -> Pairs:
    axes = list(range(len(x.shape))) if dim is None else dim
    return Pairs(shift(s, x.parts, shifted([axes] if isinstance(axes, int) else list(axes))))


def _window(given: Operand | None, length: int, n_fft: int) -> Array:
    if given is None:
        return centred(np.ones(length), n_fft)
    if not isinstance(given, Const):
        raise Unsupported("whose window is computed from the input")
    return centred(given.data.detach().cpu().double().numpy(), n_fft)


@complex_aten("stft")
def stft(
    s: Site, x: Operand, n_fft: int, hop_length: int | None = None, win_length: int | None = None,
    window: Operand | None = None, normalized: bool = False, onesided: bool | None = None, *_: Any,
    align_to_window: bool | None = None, **__: Any,
) -> Pairs:  # fmt: skip
    """``[..., L]`` to ``[..., bins, frames]``."""
    if isinstance(x, Pairs) or align_to_window:
        raise Unsupported("of complex numbers, or with align_to_window")
    taper = _window(window, win_length or n_fft, n_fft)
    one = onesided or onesided is None
    how = Transform(n_fft, scale=n_fft**-0.5 if normalized else 1.0, onesided=one, taper=taper)
    lines = reshape(s, x, (x.shape[0] if len(x.shape) == 2 else 1, x.shape[-1]), last=False)
    made = short_time(s, lines, how, hop_length or n_fft // 4, s.shape[-2])
    return Pairs(reshape(s, made, s.shape, last=False))


@complex_aten("stft.center")
def stft_centred(
    s: Site, x: Operand, n_fft: int, hop_length: int | None = None, win_length: int | None = None,
    window: Operand | None = None, center: bool = True, pad_mode: str = "reflect", *rest: Any, **named: Any,
) -> Pairs:  # fmt: skip
    """With half a transform's points mirrored at both ends, if ``center``."""
    if center and isinstance(x, (Value, Const)):
        ends = [0] * (len(x.shape) - 1) + [n_fft // 2]
        mode = {"replicate": "edge", "circular": "wrap"}.get(pad_mode, pad_mode)
        longer = (*x.shape[:-1], x.shape[-1] + 2 * (n_fft // 2))
        x = s.emit("pad", x, inner=longer, pads=(*ends, *ends), value=0.0, mode=mode)
    return stft(s, x, n_fft, hop_length, win_length, window, *rest, **named)


@complex_aten("istft")
def istft(
    s: Site, x: Pairs, n_fft: int, hop_length: int | None = None, win_length: int | None = None,
    window: Operand | None = None, center: bool = True, normalized: bool = False,
    onesided: bool | None = None, length: int | None = None, return_complex: bool = False,
) -> Operand:  # fmt: skip
    """``[..., bins, frames]`` to ``[..., L]``, over the sum of the squares of the windows there."""
    hop, taper = hop_length or n_fft // 4, _window(window, win_length or n_fft, n_fft)
    *_, bins, frames = x.shape
    if return_complex or bins != n_fft // 2 + 1:
        raise Unsupported("to complex numbers")
    if not isinstance(frames, int) or not isinstance(length or 0, int):
        raise Varies("of frames whose number is free")
    whole = n_fft + hop * (frames - 1)
    envelope = np.zeros(whole)
    for i in range(frames):
        envelope[i * hop : i * hop + n_fft] += taper**2
    start = n_fft // 2 if center else 0
    stop = whole - start if length is None else min(start + length, whole)
    inside = envelope[start:stop]
    if inside.size == 0 or inside.min() < 1e-11:
        raise Unsupported("whose windows leave a sample out")
    batch = x.shape[0] if len(x.shape) == 3 else 1
    how = Transform(n_fft, True, n_fft**-0.5 if normalized else 1 / n_fft, half=True)
    made = from_short_time(s, reshape(s, x.parts, (batch, bins, frames, 2), last=False), how, hop, taper)
    made = s.emit("slice", made, inner=(batch, 1, stop - start), axis=2, start=start, stop=stop)
    made = s.emit("mul", made, s.const((1 / inside).astype(np.float32), "envelope"), inner=made.shape)
    if length is not None and length > stop - start:
        pads = (0, 0, 0, 0, 0, length - (stop - start))
        made = s.emit("pad", made, inner=(batch, 1, length), pads=pads, value=0.0, mode="constant")
    done: Operand = reshape(s, made, s.shape)
    return done
