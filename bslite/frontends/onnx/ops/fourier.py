"""Builders of Fourier transforms, and of mel weights."""

import numpy as np

from bslite.errors import SpecError
from bslite.frontends.common.fourier import Transform, centred, short_time, transformed
from bslite.frontends.common.unsupported import Unsupported
from bslite.frontends.onnx.builders import onnx_op
from bslite.frontends.onnx.ops.moves import axis_of, permuted, reshaped
from bslite.frontends.onnx.site import Site
from bslite.frontends.onnx.tensors import dtype_name
from bslite.frontends.onnx.values import Known, Operand, fixed
from bslite.spec import Array

MOST = 2**24  # elements of a matrix of mel weights: beyond, it is none that anyone wants


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
    length = length or (2 * (n - 1) if onesided and inverse else n)
    if parts == 1:
        x = reshaped(s, x, x.shape[:-1], last=False)
    if onesided and inverse:
        how = Transform(length, inverse=True, scale=1 / length, half=True)
        made = transformed(s, x, axis, how, paired=parts == 2)
        return reshaped(s, made, (*made.shape, 1))
    how = Transform(length, bool(inverse), 1 / length if inverse else 1.0, bool(onesided))
    return transformed(s, x, axis, how, paired=parts == 2)


@onnx_op("STFT", since=17)
def stft(
    s: Site, signal: Operand, frame_step: Operand, window: Operand | None = None,
    frame_length: Operand | None = None, *, onesided: int,
) -> Operand:  # fmt: skip
    """signal ``[N, L]`` or ``[N, L, 1]`` -> ``[N, frames, bins, 2]``."""
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
    batch, samples = signal.shape[:2]
    if isinstance(samples, int) and samples < length:
        raise SpecError(f"of {samples} samples by frames of {length}")
    taper = np.ones(length) if taper is None else centred(taper, length)
    how = Transform(length, onesided=bool(onesided), taper=taper)
    made = short_time(s, reshaped(s, signal, (batch, samples), last=False), how, step, ())
    return permuted(s, made, (0, 2, 1, 3))


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
