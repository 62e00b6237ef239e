"""Convolution, straight from its definition."""

from __future__ import annotations

import numpy as np

from bslite.reference.registry import Array, reference


@reference("conv2d")
def conv2d(
    x: Array,
    *,
    weight: Array,
    bias: Array | None = None,
    stride: tuple[int, int],
    padding: tuple[int, int, int, int],
    dilation: tuple[int, int],
    groups: int,
) -> Array:
    """``y[n,k,p,q] = bias[k] + sum_{c,r,s} x[n,c,p*sh + r*dh - top,q*sw + s*dw - left] * weight[k,c,r,s]``.

    x ``[N, C, H, W]``, weight ``[K, C/groups, R, S]`` -> ``[N, K, P, Q]``; group g's outputs see only
    group g's inputs.
    """
    (sh, sw), (dh, dw), (top, left, bottom, right) = stride, dilation, padding
    x = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    n, _, h, w = x.shape
    k, cg, r, s = weight.shape
    p = (h - dh * (r - 1) - 1) // sh + 1
    q = (w - dw * (s - 1) - 1) // sw + 1
    x = x.reshape(n, groups, cg, h, w)
    filters = weight.reshape(groups, k // groups, cg, r, s)
    y = np.zeros((n, groups, k // groups, p * q), x.dtype)
    for i in range(r):
        for j in range(s):
            tap = x[..., i * dh : i * dh + sh * (p - 1) + 1 : sh, j * dw : j * dw + sw * (q - 1) + 1 : sw]
            y += filters[..., i, j] @ tap.reshape(n, groups, cg, p * q)  # [K/g, C/g] @ [N, g, C/g, P*Q]
    y = y.reshape(n, k, p, q)
    return y if bias is None else y + bias[:, None, None]
