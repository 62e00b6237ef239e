"""Scaled dot-product attention, all scores at once."""

from collections.abc import Sequence

import numpy as np

from bslite.reference.registry import Array, reference


@reference("attention")
def attention(
    q: Array,
    k: Array,
    v: Array,
    *others: Array,
    scale: float | None,
    is_causal: bool,
    grouped: bool,
    no_key: str,
    dropped: bool,
) -> Array:
    """``y = softmax(q @ k^T * scale + mask) @ v`` (arXiv 1706.03762 equation 1), scale 1/sqrt(E) if None.

    With ``dropped``, the last of the ``others`` is what the weights are multiplied by; another one is a mask.

    q ``[..., L, E]``, k ``[..., S, E]``, v ``[..., S, Ev]``. False in a mask of bools, or in the causal one,
    counts as -inf. A row whose scores are all -inf gets weights of zero, or of NaN with ``no_key`` "nan".
    """
    *masks, noise = others if dropped else (*others, 1.0)
    return _weights(q, k, masks, scale, is_causal, grouped, no_key) * noise @ repeated(v, q, grouped)


@reference("attention_grad")
def attention_grad(
    q: Array,
    k: Array,
    v: Array,
    grad: Array,
    *others: Array,
    scale: float | None,
    is_causal: bool,
    grouped: bool,
    no_key: str,
    dropped: bool,
    by_mask: bool,
) -> Array:
    """The gradients by q, k, v and, ``by_mask``, the scores: P of weights, ``dP = dy @ v^T``,
    ``dS = P * (dP - sum(P * dP))`` (arXiv 2205.14135, appendix B.2); each flat, one after the other.
    """
    *masks, noise = others if dropped else (*others, 1.0)
    weights = _weights(q, k, masks, scale, is_causal, grouped, no_key)
    k, v = (repeated(x, q, grouped) for x in (k, v))
    by_weights = grad @ np.swapaxes(v, -1, -2) * noise
    by_scores = weights * (by_weights - (by_weights * weights).sum(-1, keepdims=True))
    factor = q.shape[-1] ** -0.5 if scale is None else scale
    parts = [by_scores @ k * factor, np.swapaxes(by_scores, -1, -2) @ q * factor]
    parts += [np.swapaxes(weights * noise, -1, -2) @ grad, *([by_scores] if by_mask else [])]
    lead = grad.shape[:-2]
    return np.concatenate([np.broadcast_to(x, (*lead, *x.shape[-2:])).reshape(*lead, -1) for x in parts], -1)


def repeated(x: Array, q: Array, grouped: bool) -> Array:
    """Head h of q meets head ``h // (heads of q / heads of k)`` of k and v."""
    return np.repeat(x, q.shape[-3] // x.shape[-3], axis=-3) if grouped else x


def _weights(
    q: Array,
    k: Array,
    masks: Sequence[Array],
    scale: float | None,
    is_causal: bool,
    grouped: bool,
    no_key: str,
) -> Array:
    """The softmax of the scores."""
    k = repeated(k, q, grouped)
    scores = q @ np.swapaxes(k, -1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        scores = scores + blocked(np.tri(q.shape[-2], k.shape[-2], dtype=bool), q.dtype)
    for mask in masks:
        scores = scores + (blocked(mask, q.dtype) if mask.dtype == bool else mask)
    most = scores.max(-1, keepdims=True)
    none = most == -np.inf
    e = np.exp(scores - np.where(none, 0, most))
    return e / np.where(none & (no_key == "zero"), 1, e.sum(-1, keepdims=True))


def blocked(seen: Array, dtype: np.dtype) -> Array:
    """What is added to the scores: 0 where a key is seen, -inf where not."""
    return np.where(seen, 0, -np.inf).astype(dtype)
