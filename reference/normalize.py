"""Normalisation layers at inference."""

import math

import numpy as np

from bslite.reference.activation import erfc, sigmoid
from bslite.reference.registry import Array, reference


def per_channel(value: Array, rank: int) -> Array:
    """``[C]`` as ``[C, 1, ...]``, which broadcasts over ``[N, C, ...]`` of ``rank`` dimensions."""
    return value.reshape(-1, *(1,) * (rank - 2))


def standardize(x: Array, axes: tuple[int, ...], eps: float) -> Array:
    """``(x - mean) / sqrt(var + eps)`` over ``axes``; the variance divides by n, not n - 1."""
    centred = x - x.mean(axes, keepdims=True)
    variance = np.square(centred).mean(axes, keepdims=True)
    return centred / np.sqrt(variance + eps)


def affine(y: Array, weight: Array | None, bias: Array | None) -> Array:
    """``y * weight + bias``, without what is left out."""
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def affine_channels(y: Array, weight: Array | None, bias: Array | None) -> Array:
    """`affine` with parameters ``[C]``."""
    return affine(y, *(None if v is None else per_channel(v, y.ndim) for v in (weight, bias)))


@reference("batch_norm")
def batch_norm(
    x: Array,
    *,
    running_mean: Array,
    running_var: Array,
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float,
) -> Array:
    """``y = (x - mean[c]) / sqrt(var[c] + eps) * weight[c] + bias[c]``, arXiv 1502.03167 algorithm 2.

    x ``[N, C, ...]``, parameters ``[C]``.
    """
    y = (x - per_channel(running_mean, x.ndim)) / np.sqrt(per_channel(running_var, x.ndim) + eps)
    return affine_channels(y, weight, bias)


@reference("layer_norm")
def layer_norm(
    x: Array,
    *,
    weight: Array | None = None,
    bias: Array | None = None,
    normalized_shape: tuple[int, ...],
    eps: float,
) -> Array:
    """``y = (x - mean) / sqrt(var + eps) * weight + bias`` over the trailing axes, arXiv 1607.06450.

    x ``[..., *normalized_shape]``, weight and bias ``normalized_shape``.
    """
    y = standardize(x, tuple(range(-len(normalized_shape), 0)), eps)
    return affine(y, weight, bias)


@reference("rms_norm")
def rms_norm(
    x: Array, *, weight: Array | None = None, normalized_shape: tuple[int, ...], eps: float
) -> Array:
    """``y = x / sqrt(mean(x^2) + eps) * weight`` over the trailing axes, arXiv 1910.07467 equation 4.

    x ``[..., *normalized_shape]``, weight ``normalized_shape``.
    """
    axes = tuple(range(-len(normalized_shape), 0))
    y = x / np.sqrt(np.square(x).mean(axes, keepdims=True) + eps)
    return y if weight is None else y * weight


@reference("normalize")
def normalize(x: Array, *, axis: int, eps: float) -> Array:
    """``y = x / max(sqrt(sum(x^2)), eps)`` along ``axis``."""
    return x / np.maximum(np.sqrt(np.square(x).sum(axis, keepdims=True)), x.dtype.type(eps))


@reference("group_norm")
def group_norm(
    x: Array, *, weight: Array | None = None, bias: Array | None = None, num_groups: int, eps: float
) -> Array:
    """``y = (x - mean) / sqrt(var + eps) * weight[c] + bias[c]`` over C/num_groups channels and all pixels.

    x ``[N, C, ...]``, weight and bias ``[C]``; arXiv 1803.08494 equations 1, 2 and 7.
    """
    groups = x.reshape(x.shape[0], num_groups, -1)  # [N, G, C/G * pixels]
    y = standardize(groups, (2,), eps).reshape(x.shape)
    return affine_channels(y, weight, bias)


@reference("lrn")
def lrn(x: Array, *, size: int, alpha: float, beta: float, k: float) -> Array:
    """``y[c] = x[c] / (k + alpha/size * sum_{c'} x[c']^2)^beta``, ``c' = c - size//2 ... c + (size-1)//2``.

    x ``[N, C, ...]``. Section 3.3 of the AlexNet paper, with torch's division of alpha by size.
    """
    around = [(0, 0)] * x.ndim
    around[1] = (size // 2, (size - 1) // 2)
    squares = np.pad(np.square(x), around)
    total = np.zeros_like(x)
    for i in range(size):
        total += squares[:, i : i + x.shape[1]]
    return x / (k + alpha / size * total) ** beta


@reference("batch_stats")
def batch_stats(x: Array) -> Array:
    """``[mean[c], mean((x - mean[c])^2)]`` over images and pixels, arXiv 1502.03167 algorithm 1.

    x ``[N, C, ...]``; ``[2, C]``. In float64 in any case, as reductions are.
    """
    axes = (0, *range(2, x.ndim))
    return np.stack([x.mean(axes, np.float64), x.var(axes, np.float64)])


@reference("batch_norm_given")
def batch_norm_given(
    x: Array, stats: Array, weight: Array | None = None, bias: Array | None = None, *, eps: float, own: bool
) -> Array:
    """``x * scale + shift``, with ``scale = weight / sqrt(var + eps)``, ``shift = bias - mean * scale``.

    As torch has it, by means and variances ``[2, C]``; whether they are x's ``own`` matters to gradients.
    """
    scale = 1 / np.sqrt(stats[1] + eps) * (1 if weight is None else weight)
    return scale_shift(x, scale, -stats[0] * scale + (0 if bias is None else bias))


@reference("scale_shift")
def scale_shift(x: Array, scale: Array, shift: Array) -> Array:
    """``x * scale[c] + shift[c]``; x ``[N, C, ...]``, scale and shift ``[C]``."""
    return x * per_channel(scale, x.ndim) + per_channel(shift, x.ndim)


@reference("activation_grad")
def activation_grad(g: Array, x: Array, *, of: str) -> Array:
    """``g * f'(x)`` of an activation f; 0 where the slope is 0, and g where it is 1, whatever g is.

    Of NaN the slope of relu is 1, as in torch, of relu6 0.
    """
    if of == "relu":
        return np.where(x <= 0, 0, g)
    if of == "relu6":
        return np.where((x > 0) & (x < 6), g, 0)
    if of == "hardswish":
        return np.where(x <= -3, 0, np.where(x >= 3, g, g * (x / 3 + 0.5)))
    if of == "gelu":
        return g * (erfc(x * -math.sqrt(0.5)) / 2 + x * np.exp(-0.5 * np.square(x)) / math.sqrt(2 * math.pi))
    if of == "gelu_tanh":
        a, b = math.sqrt(8 / math.pi), 0.044715  # (1 + tanh(z / 2)) / 2 is the sigmoid of z
        z = a * (x + b * x**3)
        return g * (sigmoid(z) + x * sigmoid(z) * sigmoid(-z) * a * (1 + 3 * b * np.square(x)))
    assert of == "silu", of
    s = sigmoid(x)
    return g * (s * (1 + x * (1 - s)))


def _through(grad: Array, x: Array, through: str, scale: Array | None, shift: Array | None) -> Array:
    """The gradient by the value of a batch norm, ``x * scale + shift``, before an activation."""
    if through == "identity":
        return grad
    assert scale is not None
    assert shift is not None
    return activation_grad(grad, scale_shift(x, scale, shift), of=through)


@reference("batch_sums")
def batch_sums(
    grad: Array,
    x: Array,
    stats: Array,
    scale: Array | None = None,
    shift: Array | None = None,
    *,
    through: str,
) -> Array:
    """``[sum(g), sum(g * (x - mean[c]))]`` over images and pixels; g and x ``[N, C, ...]``, ``[2, C]``."""
    axes, g = (0, *range(2, x.ndim)), _through(grad, x, through, scale, shift).astype(np.float64)
    centred = x.astype(np.float64) - per_channel(stats[0], x.ndim)
    return np.stack([g.sum(axes), (g * centred).sum(axes)])


@reference("batch_norm_grad")
def batch_norm_grad(
    grad: Array,
    x: Array,
    stats: Array,
    sums: Array,
    scale: Array,
    shift: Array | None = None,
    *,
    eps: float,
    through: str,
) -> Array:
    """``scale * (g - s0/n - (x - mean) * s1 / (n * (var + eps)))``, arXiv 1502.03167 section 3.

    g and x ``[N, C, ...]`` of n elements a channel, statistics and `batch_sums` ``[2, C]``, scale ``[C]``.
    """
    g, n = _through(grad, x, through, scale, shift), x.size // x.shape[1]
    means = per_channel(sums[0] / n, x.ndim)
    slopes = per_channel(sums[1] / n / (stats[1] + eps), x.ndim)
    return per_channel(scale, x.ndim) * (g - means - (x - per_channel(stats[0], x.ndim)) * slopes)
