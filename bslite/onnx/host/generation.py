"""onnxruntime's own operators of language models that write text, with sequences of different lengths.

https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

import functools
from typing import Any

import numpy as np

from bslite.api import run
from bslite.errors import InputError, UnsupportedError
from bslite.onnx.host.node import host_op
from bslite.reference import FUNCTIONS
from bslite.spec import Array, GraphBuilder, ModelSpec

MS = "com.microsoft:"
PROMPT = 16  # rows from which on a plan for so many, which all layers share, takes less time than it saves


@host_op(f"{MS}GroupQueryAttention")
def group_query_attention(
    query: Array, key: Array | None = None, value: Array | None = None, past_key: Array | None = None,
    past_value: Array | None = None, lengths: Array | None = None, most: Array | None = None,
    cos: Array | None = None, sin: Array | None = None, places: Array | None = None,
    added: Array | None = None, sinks: Array | None = None, *, num_heads: int, kv_num_heads: int,
    scale: float = 0.0, do_rotary: int = 0,
    rotary_interleaved: int = 0, local_window_size: int = -1, softcap: float = 0.0,
    smooth_softmax: int = 0, kv_cache_bit_width: int = 0, k_quant_type: str = "NONE",
    v_quant_type: str = "NONE", qk_output: int = 0, threads: int | None = None, engine: bool = False,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """Causal attention, several heads of queries to one of keys: the result, keys and values with the past.

    ``query`` [N, L, heads * E], with keys and values behind it if those are left out; the past [N, kv heads,
    P, E]. ``lengths``: of each sequence with its past, less one; ``most``: the largest of them.
    ``sinks``: of each head, the score of a key that has no value; 0 for ``smooth_softmax``.
    """
    if lengths is None or most is None:
        raise InputError("it has no lengths")
    if qk_output or {k_quant_type, v_quant_type} != {"NONE"}:
        raise UnsupportedError("with qk_output, or a past of integers")
    if num_heads % kv_num_heads:
        raise InputError(f"{num_heads} heads, which {kv_num_heads} of keys do not divide")
    if smooth_softmax and sinks is None:
        sinks = np.zeros(num_heads, query.dtype)
    n, rows, width = query.shape
    if key is None or value is None:
        each = width // (num_heads + 2 * kv_num_heads)
        ends = np.cumsum([num_heads * each, kv_num_heads * each]).tolist()
        query, key, value = np.split(query, ends, 2)
    else:
        each = width // num_heads
    q, k, v = (
        x.reshape(n, rows, -1, each).transpose(0, 2, 1, 3) for x in (query, key, value)
    )  # [N, heads, L, E]
    ends = [int(e) + 1 for e in lengths.reshape(-1)]
    whole = int(most.reshape(-1)[0])
    prompt = whole == rows
    held = 0 if past_key is None else past_key.shape[2]
    present = [np.zeros((n, kv_num_heads, max(held, whole), each), query.dtype) for _ in range(2)]
    made = np.zeros((n, num_heads, rows, each), query.dtype)
    for b, end in enumerate(ends):
        before = 0 if prompt else end - rows
        if before < 0 or before > held or before + rows > present[0].shape[2]:
            raise InputError(f"a sequence of {end} with {rows} new rows after {held}")
        at = before + np.arange(rows) if places is None else places[b]
        queries, keys = q[b], k[b]
        if do_rotary:
            if cos is None or sin is None:
                raise InputError("do_rotary without tables")
            queries, keys = (_turned(x, cos[at], sin[at], bool(rotary_interleaved)) for x in (queries, keys))
        for store, new, past in ((present[0], keys, past_key), (present[1], v[b], past_value)):
            if past is not None:
                store[b, :, :before] = past[b, :, :before]
            store[b, :, before : before + rows] = new
        bias = None if added is None else added[min(b, len(added) - 1)]
        how: dict[str, Any] = {"scale": scale, "softcap": softcap, "window": local_window_size, "bias": bias}
        how["sinks"] = sinks
        values = queries, present[0][b], present[1][b]
        plain = before == 0 and bias is None and not softcap and local_window_size <= 0 and sinks is None
        if engine and plain and rows >= PROMPT and query.dtype == np.float32:
            spec = _causal(num_heads, kv_num_heads, each, scale)
            made[b] = run(spec, [x[None, :, :rows].copy() for x in values], threads=threads)[0]
        else:
            made[b] = _attended(*values, before, **how)
    return made.transpose(0, 2, 1, 3).reshape(n, rows, -1), present[0], present[1]


def _attended(
    q: Array,
    k: Array,
    v: Array,
    before: int,
    *,
    scale: float,
    softcap: float,
    window: int,
    bias: Array | None,
    sinks: Array | None,
) -> Array:
    """[heads, L, E]: what each query takes of the keys up to its own place."""
    heads, rows, each = q.shape
    total = before + rows
    share = heads // len(k)
    keys, values = k[:, :total], v[:, :total]
    grouped = q.reshape(len(k), share * rows, each)
    scores = (grouped @ keys.swapaxes(1, 2) * (scale or each**-0.5)).reshape(heads, rows, total)
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    if bias is not None:
        scores = scores + bias[..., :total]
    own, place = before + np.arange(rows)[:, None], np.arange(total)
    seen = place <= own
    if window > 0:
        seen &= place > own - window
    scores = np.where(seen, scores, -np.inf)
    if sinks is not None:
        column = np.broadcast_to(sinks.reshape(-1, 1, 1), (heads, rows, 1))
        scores = np.concatenate([scores, column], -1)
    weights = FUNCTIONS["softmax"](scores.astype(q.dtype), axis=-1)[..., :total]
    return np.asarray((weights.reshape(len(k), share * rows, total) @ values).reshape(heads, rows, each))


@functools.cache
def _causal(heads: int, own: int, each: int, scale: float) -> ModelSpec:
    """Attention of a prompt: each query takes of the keys up to its own, of a head that several share."""
    g = GraphBuilder("attention")
    counts = ("q", heads), ("k", own), ("v", own)
    inputs = [g.input(name, (1, n, "L", each), (1, n, PROMPT, each)) for name, n in counts]
    grouped = heads != own
    made = g.add("attention", "made", *inputs, scale=scale or None, is_causal=True, grouped=grouped)
    return g.build(made)


def _turned(x: Array, cos: Array, sin: Array, interleaved: bool) -> Array:
    """Heads [heads, L, E] turned by the angles [L, R / 2] in their first R features."""
    size = 2 * cos.shape[-1]
    made = x.copy()
    half = size // 2
    low, high = (slice(0, size, 2), slice(1, size, 2)) if interleaved else (slice(half), slice(half, size))
    a, b = x[..., low], x[..., high]
    made[..., low], made[..., high] = a * cos - b * sin, a * sin + b * cos
    return made


@host_op(f"{MS}NGramRepeatBlock")
def block_repeats(ids: Array, scores: Array, *, ngram_size: int) -> Array:
    """Scores with minus infinity for each word that would write a run of ``ngram_size`` words again."""
    made, keep = scores.copy(), ngram_size - 1
    for row, words in enumerate(ids):
        last = words[len(words) - keep :]
        for start in range(len(words) - keep):
            if np.array_equal(words[start : start + keep], last):
                made[row, int(words[start + keep])] = -np.inf
    return made


@host_op(f"{MS}Unique")
def unique(x: Array) -> tuple[Array, Array, Array]:
    """Each value once, in the order of first places, where each came from, and how often."""
    values, first, inverse, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
    order = np.argsort(first, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return values[order], place[inverse.reshape(-1)].astype(np.int64), counts[order].astype(np.int64)
