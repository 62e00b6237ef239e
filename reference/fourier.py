"""Discrete Fourier transforms, by numpy.fft."""

import numpy as np

from bslite.reference.registry import Array, reference


@reference("fourier")
def fourier(
    x: Array, *, window: Array | None = None, axis: int, length: int, source: str, inverse: bool,
    onesided: bool, real: bool, scale: float,
) -> Array:  # fmt: skip
    """``y[k] = scale * sum_n x[n] exp(-2 pi i n k / length)``, or with the other sign (numpy's definition).

    A half x stands for its points and, as their conjugates, those of the other half; the ends have none.
    """
    axis %= x.ndim
    z = x if source == "real" else x[..., 0] + 1j * x[..., 1]
    if window is not None:
        z = z * window.reshape([n if i == axis else 1 for i, n in enumerate(z.shape)])
    if source == "half":
        half = length // 2 + 1
        missing = [(0, half - n if i == axis else 0) for i, n in enumerate(z.shape)]
        points = np.moveaxis(np.pad(z, missing), axis, -1)
        points[..., 0].imag = 0
        if length % 2 == 0:
            points[..., -1].imag = 0
        mirrored = points[..., 1 : (length + 1) // 2][..., ::-1].conj()
        z = np.moveaxis(np.concatenate([points, mirrored], -1), -1, axis)
    y = np.fft.ifft(z, length, axis, "forward") if inverse else np.fft.fft(z, length, axis)
    if onesided:
        y = y.take(range(length // 2 + 1), axis)
    y = y * scale
    return y.real if real else np.stack([y.real, y.imag], -1)
