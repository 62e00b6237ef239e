"""Builders of Fourier transforms, as products with a matrix of sines and cosines, and of mel weights."""

import numpy as np

from bslite.errors import SpecError
from bslite.frontends.common.unsupported import Unsupported
from bslite.frontends.onnx.builders import onnx_op
from bslite.frontends.onnx.ops.moves import axis_of, permuted, reshaped
from bslite.frontends.onnx.site import Site
from bslite.frontends.onnx.tensors import dtype_name
from bslite.frontends.onnx.values import Known, Operand, fixed
from bslite.spec import Array

MOST = 2**24  # elements of a transform's matrix: beyond, it is no product that anyone wants


def turns(length: int, bins: int) -> Array:
    """The angles of a transform, ``[bins, length]``, within one turn: ``2 pi (k n mod length) / length``."""
    if length < 1 or length * bins > MOST:
        raise Unsupported(f"of {length} points")
    return np.asarray(2 * np.pi / length * (np.outer(np.arange(bins), np.arange(length)) % length))


@onnx_op("DFT", since=17)
def dft(
    s: Site, x: Operand, dft_length: Operand | None = None, axis_given: Operand | None = None, *,
    axis: int = -2, inverse: int, onesided: int,
) -> Operand:  # fmt: skip
    """x ``[..., n, ..., 1 or 2]``: real, or real and imaginary part. The axis became an input in opset 20."""
    if axis_given is not None:
        axis = int(s.number(axis_given, "its axis"))
    axis = axis_of(axis, x.rank)
    parts, n = x.shape[-1], fixed(x.shape[axis], "the length of the signal")
    if axis == x.rank - 1 or parts not in (1, 2):
        raise SpecError(f"along axis {axis} of {list(x.shape)}: the last size is 1 or 2, behind that axis")
    if onesided and not inverse and parts == 2:
        raise Unsupported("onesided, of complex numbers")
    length = None if dft_length is None else int(s.number(dft_length, "its dft_length"))
    if onesided and inverse:
        matrix = to_real(n, length or 2 * (n - 1))[..., :parts]
    else:
        matrix = to_complex(n, length or n, bool(inverse), bool(onesided))[..., :parts]
    made, kinds = matrix.shape[:2]
    rows = [i for i in range(x.rank - 1) if i != axis]
    order = (*rows, axis, x.rank - 1)
    moved = permuted(s, x, order, last=False)
    outer = tuple(x.shape[i] for i in rows)
    flat = reshaped(s, moved, (*outer, n * parts), last=False)
    weight = s.const(matrix.reshape(made * kinds, n * parts).astype(np.float32), "matrix")
    product = s.inner("linear", flat, params={"weight": weight})
    apart = reshaped(s, product, (*outer, made, kinds), last=order == tuple(range(x.rank)))
    return permuted(s, apart, tuple(np.argsort(order).tolist()))


def to_complex(points: int, length: int, inverse: bool, onesided: bool) -> Array:
    """The matrix ``[bin, part, point, part]`` of a transform of ``points``, to which zeros are appended, or
    of which the last are cut, until they are ``length``.
    """
    angles = turns(length, length // 2 + 1 if onesided else length)[:, :points]
    real, imaginary = np.cos(angles), (1 if inverse else -1) * np.sin(angles)
    made = np.zeros((len(angles), 2, points, 2))
    within = slice(angles.shape[1])
    made[:, 0, within, 0], made[:, 1, within, 0] = real, imaginary
    made[:, 0, within, 1], made[:, 1, within, 1] = -imaginary, real
    return made / length if inverse else made


def to_real(bins: int, length: int) -> Array:
    """The matrix ``[point, 1, bin, part]`` from the first half of a transform back to ``length`` numbers."""
    used = min(bins, length // 2 + 1)
    angles = turns(length, used).T  # [point, bin]
    twice = np.full(used, 2.0)
    twice[0] = 1
    if length % 2 == 0 and used == length // 2 + 1:
        twice[-1] = 1
    made = np.zeros((length, 1, bins, 2))
    made[:, 0, :used, 0] = np.cos(angles) * twice / length
    made[:, 0, :used, 1] = -np.sin(angles) * twice / length
    return made


@onnx_op("STFT", since=17)
def stft(
    s: Site, signal: Operand, frame_step: Operand, window: Operand | None = None,
    frame_length: Operand | None = None, *, onesided: int,
) -> Operand:  # fmt: skip
    """signal ``[N, L]`` or ``[N, L, 1]`` -> ``[N, frames, bins, 2]``: a convolution with windowed waves."""
    step = int(s.number(frame_step, "its frame_step"))
    taper = None if window is None else s.array(window, "its window").reshape(-1)
    if frame_length is not None:
        length = int(s.number(frame_length, "its frame_length"))
    elif taper is not None:
        length = taper.size
    else:
        raise SpecError("it has neither a window nor a frame_length")
    if taper is not None and taper.size > length:
        raise SpecError(f"its window of {taper.size} is longer than its frames of {length}")
    if signal.rank == 3 and signal.shape[2] == 2:
        raise Unsupported("of complex numbers")
    if step < 1 or signal.rank not in (2, 3) or (signal.rank == 3 and signal.shape[2] != 1):
        raise SpecError(f"of {list(signal.shape)} by steps of {step}")
    angles = turns(length, length // 2 + 1 if onesided else length)
    waves = np.stack([np.cos(angles), -np.sin(angles)], 1).reshape(2 * len(angles), 1, length)
    if taper is not None:
        before = (length - taper.size) // 2
        waves = waves * np.pad(taper.astype(np.float64), (before, length - taper.size - before))
    batch, samples = signal.shape[:2]
    row = reshaped(s, signal, (batch, 1, samples), last=False)
    weight = s.const(waves.astype(np.float32), "waves")
    made = s.inner("conv1d", row, params={"weight": weight}, stride=step)  # [N, bins * 2, frames]
    frames = made.shape[2]
    apart = permuted(s, made, (0, 2, 1), last=False)
    return reshaped(s, apart, (batch, frames, len(angles), 2))


@onnx_op("MelWeightMatrix", since=17)
def mel_weights(
    s: Site, bins: Operand, length: Operand, rate: Operand, low: Operand, high: Operand, *,
    output_datatype: int,
) -> Known:  # fmt: skip
    """Triangles equally far apart in mels, over the bins of a transform; ONNX's definition, by reference."""

    def make(n: Array, size: Array, sampled: Array, first: Array, last: Array) -> Array:
        count, width = int(n.item()), int(size.item()) // 2 + 1
        if count < 0 or (count + 2) * width > MOST:
            raise ValueError(f"{count} bins of {width}")
        ends = 2595 * np.log10(1 + np.array([first.item(), last.item()]) / 700)
        step = (ends[1] - ends[0]) / (count + 2)
        hertz = 700 * (np.power(10, (np.arange(count + 2) * step + ends[0]) / 2595) - 1)
        places = ((int(size.item()) + 1) * hertz // int(sampled.item())).astype(np.int64)
        made = np.zeros((width, count))
        for i in range(count):
            left, top, right = places[i : i + 3]
            if top == left:
                made[top, i] = 1
            else:
                made[left : top + 1, i] = (np.arange(left, top + 1) - left) / (top - left)
            if right > top:
                made[top:right, i] = (right - np.arange(top, right)) / (right - top)
        return made.astype(dtype_name(output_datatype))

    return s.compute(make, *(s.known(x, "its input") for x in (bins, length, rate, low, high)))
