"""Convolution and its transpose, straight from their definitions, along any number of axes."""

import math
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import numpy as np

from bslite.reference.registry import Array, reference

Sizes = tuple[int, ...]


def every(start: int, step: int, count: int) -> slice:
    """``count`` indices from ``start`` on, ``step`` apart."""
    return slice(start, start + step * (count - 1) + 1, step)


def windows(sizes: Sequence[int], kernel: Sizes, stride: Sizes, dilation: Sizes) -> tuple[int, ...]:
    """How many windows lie along each axis."""
    axes = zip(sizes, kernel, stride, dilation, strict=True)
    return tuple((h - d * (r - 1) - 1) // s + 1 for h, r, s, d in axes)


def inner(indices: Iterable[int | slice]) -> tuple[Any, ...]:
    """An index along the last axes."""
    return (Ellipsis, *indices)


@reference("conv1d", "conv2d", "conv3d")
def conv(
    x: Array,
    *,
    weight: Array,
    bias: Array | None = None,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    groups: int,
) -> Array:
    """``y[n,k,p,q] = bias[k] + sum_{c,r,s} x[n,c,p*sh + r*dh - top,q*sw + s*dw - left] * weight[k,c,r,s]``.

    x ``[N, C, H, W]``, weight ``[K, C/groups, R, S]`` -> ``[N, K, P, Q]``; group g's outputs see only group
    g's inputs. The same along one axis or three.
    """
    axes = len(stride)
    x = np.pad(x, ((0, 0), (0, 0), *zip(padding[:axes], padding[axes:], strict=True)))
    n, _, *sizes = x.shape
    k, cg, *kernel = weight.shape
    out = windows(sizes, tuple(kernel), stride, dilation)
    x = x.reshape(n, groups, cg, *sizes)
    filters = weight.reshape(groups, k // groups, cg, *kernel)
    y = np.zeros((n, groups, k // groups, math.prod(out)), x.dtype)
    for taps in product(*map(range, kernel)):
        seen = [every(i * d, s, p) for i, d, s, p in zip(taps, dilation, stride, out, strict=True)]
        tap = x[inner(seen)].reshape(n, groups, cg, -1)
        y += filters[inner(taps)] @ tap  # [K/g, C/g] @ [N, g, C/g, P*Q]
    y = y.reshape(n, k, *out)
    return y if bias is None else y + bias.reshape(-1, *[1] * axes)


@reference("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def conv_transpose(
    x: Array,
    *,
    weight: Array,
    bias: Array | None = None,
    stride: Sizes,
    padding: Sizes,
    output_padding: Sizes,
    dilation: Sizes,
    groups: int,
) -> Array:
    """``y[n,k,h*sh + r*dh - top,w*sw + s*dw - left] = bias[k] + sum of x[n,c,h,w] * weight[c,k,r,s]``.

    x ``[N, C, H, W]``, weight ``[C, K/groups, R, S]`` -> ``[N, K, P, Q]``, ``P = (H-1)*sh - top - bottom +
    dh*(R-1) + output_padding + 1``: what falls outside is lost. The same along one axis or three.
    """
    axes = len(stride)
    n, c, *sizes = x.shape
    _, kg, *kernel = weight.shape
    full = [
        (h - 1) * s + d * (r - 1) + 1 + extra
        for h, s, r, d, extra in zip(sizes, stride, kernel, dilation, output_padding, strict=True)
    ]
    x = x.reshape(n, groups, c // groups, -1)
    filters = weight.reshape(groups, c // groups, kg, *kernel)
    y = np.zeros((n, groups, kg, *full), x.dtype)
    for taps in product(*map(range, kernel)):
        made = [every(i * d, s, h) for i, d, s, h in zip(taps, dilation, stride, sizes, strict=True)]
        part = filters[inner(taps)].swapaxes(1, 2) @ x  # [g, K/g, C/g] @ [N, g, C/g, H*W]
        y[inner(made)] += part.reshape(n, groups, kg, *sizes)
    kept = [slice(p, h - q) for p, q, h in zip(padding[:axes], padding[axes:], full, strict=True)]
    y = y.reshape(n, groups * kg, *full)[inner(kept)]
    return y if bias is None else y + bias.reshape(-1, *[1] * axes)


@reference("conv1d_grad_weight", "conv2d_grad_weight", "conv3d_grad_weight")
def conv_grad_weight(
    x: Array, grad: Array, *, kernel: Sizes, stride: Sizes, before: Sizes, dilation: Sizes, groups: int
) -> Array:
    """``dw[k,c,r,s] = sum_{n,p,q} x[n,c,p*sh + r*dh - top,q*sw + s*dw - left] * g[n,k,p,q]``.

    x ``[N, C, H, W]``, zero outside, g ``[N, K, P, Q]`` -> ``[K, C/groups, R, S]``; the same along one axis
    or three.
    """
    n, c, *sizes = x.shape
    _, k, *out = grad.shape
    axes = list(zip(sizes, kernel, stride, before, dilation, out, strict=True))
    behind = [max(0, (p - 1) * s + (r - 1) * d + 1 - b - h) for h, r, s, b, d, p in axes]
    x = np.pad(x, ((0, 0), (0, 0), *zip(before, behind, strict=True)))
    x = x.reshape(n, groups, c // groups, *x.shape[2:])
    g = grad.reshape(n, groups, k // groups, -1)
    made = np.zeros((groups, k // groups, c // groups, *kernel), x.dtype)
    for taps in product(*map(range, kernel)):
        seen = [every(i * d, s, p) for i, (_, _, s, _, d, p) in zip(taps, axes, strict=True)]
        tap = x[inner(seen)].reshape(n, groups, c // groups, -1)
        made[inner(taps)] = (g @ tap.swapaxes(2, 3)).sum(0)  # [K/g, pixels] @ [pixels, C/g]
    return made.reshape(k, c // groups, *kernel)
