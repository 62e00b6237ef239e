"""Scaled dot-product attention, all scores at once."""

import numpy as np

from bslite.reference.registry import Array, reference


@reference("attention")
def attention(
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None = None,
    *,
    scale: float | None,
    is_causal: bool,
    grouped: bool,
    no_key: str,
) -> Array:
    """``y = softmax(q @ k^T * scale + mask) @ v`` (arXiv 1706.03762 equation 1), scale 1/sqrt(E) if None.

    q ``[..., L, E]``, k ``[..., S, E]``, v ``[..., S, Ev]``. False in a mask of bools, or in the causal one,
    counts as -inf. A row whose scores are all -inf gets weights of zero, or of NaN with ``no_key`` "nan".
    """
    if grouped:  # head h of q meets head h // (heads of q / heads of k) of k and v
        k, v = (np.repeat(x, q.shape[-3] // x.shape[-3], axis=-3) for x in (k, v))
    scores = q @ np.swapaxes(k, -1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        scores = scores + blocked(np.tri(q.shape[-2], k.shape[-2], dtype=bool), q.dtype)
    if mask is not None:
        scores = scores + (blocked(mask, q.dtype) if mask.dtype == bool else mask)
    most = scores.max(-1, keepdims=True)
    none = most == -np.inf
    e = np.exp(scores - np.where(none, 0, most))
    if no_key == "zero":
        return e / np.where(none, 1, e.sum(-1, keepdims=True)) @ v
    return e / e.sum(-1, keepdims=True) @ v


def blocked(seen: Array, dtype: np.dtype) -> Array:
    """What is added to the scores: 0 where a key is seen, -inf where not."""
    return np.where(seen, 0, -np.inf).astype(dtype)
