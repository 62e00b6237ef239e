"""Builders of onnxruntime's own attention operators (the set com.microsoft), which its optimizer writes.

https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bslite.errors import SpecError
from bslite.frontends.common.unsupported import Unsupported
from bslite.frontends.onnx.builders import onnx_op
from bslite.frontends.onnx.ops.attention import heads_apart, heads_together
from bslite.frontends.onnx.ops.layers import matmul
from bslite.frontends.onnx.ops.moves import reshaped
from bslite.frontends.onnx.ops.shapes import sizes_of
from bslite.frontends.onnx.site import Site
from bslite.frontends.onnx.values import Dim, Operand, fixed, product
from bslite.spec import Array

HIDDEN = -10000.0  # what is added to the score of a key that a mask hides, where the node does not say


@onnx_op("com.microsoft:Attention")
def attention(
    s: Site, x: Operand, weight: Operand, bias: Operand | None = None, mask: Operand | None = None,
    past: Operand | None = None, added: Operand | None = None, *, num_heads: int, unidirectional: int = 0,
    scale: float = 0.0, mask_filter_value: float = HIDDEN, qkv_hidden_sizes: Sequence[int] | None = None,
) -> Any:  # fmt: skip
    """``x`` [N, L, D] times ``weight`` [D, q + k + v], the three parts of which are attention's inputs."""
    width = fixed(weight.shape[-1], "the width of its weight")
    sizes = list(qkv_hidden_sizes or [width // 3] * 3)
    if len(sizes) != 3 or sum(sizes) != width:
        raise SpecError(f"qkv_hidden_sizes {sizes} for a weight of {width} columns")
    made = matmul(Site(s.store, f"{s.name}.qkv", "MatMul", 13, [True]), x, weight)
    made = made if bias is None else s.inner("add", made, bias)
    q, k, v = parts_of(s, made, sizes, num_heads)
    causal = bool(unidirectional)
    if past is not None:
        if past.rank != 5 or past.shape[0] != 2:
            raise SpecError(f"its past is {list(past.shape)}, expected [2, N, heads, rows, features]")
        before = [
            reshaped(s, s.inner("slice", past, axis=0, start=i, stop=i + 1), past.shape[1:], last=False)
            for i in (0, 1)
        ]
        k, v = (s.inner("concat", *pair, axis=2) for pair in zip(before, (k, v), strict=True))
        if causal:
            late = hidden_behind(s, q, k)
            added, causal = late if added is None else s.inner("add", added, late), False
    made = attended(s, q, k, v, mask, added, causal, scale, mask_filter_value)
    if not any(s.used[1:2]):
        return made, None
    both = [reshaped(s, x, (1, *x.shape), last=False) for x in (k, v)]
    return made, s.inner("concat", *both, axis=0)


def hidden_behind(s: Site, q: Operand, k: Operand) -> Operand:
    """What is added to scores ``[1, 1, rows, keys]`` where the last row sees all keys, each before it one
    less.
    """

    def made(of_q: Array, of_k: Array) -> Array:
        rows, keys = int(of_q[2]), int(of_k[2])
        seen = np.tri(rows, keys, keys - rows, dtype=bool)
        return np.where(seen, np.float32(0), np.finfo(np.float32).min)[None, None]

    return s.compute(made, sizes_of(q, s), sizes_of(k, s))


def parts_of(s: Site, made: Operand, sizes: Sequence[int], num_heads: int) -> list[Operand]:
    """Parts of these ``sizes`` of the last axis, their heads apart."""
    ends = np.cumsum(sizes).tolist()
    parts = [
        s.inner("slice", made, axis=made.rank - 1, start=end - size, stop=end)
        for end, size in zip(ends, sizes, strict=True)
    ]
    return [heads_apart(s, part, num_heads) for part in parts]


@onnx_op("com.microsoft:MultiHeadAttention")
def multi_head_attention(
    s: Site, query: Operand, key: Operand | None = None, value: Operand | None = None,
    bias: Operand | None = None, mask: Operand | None = None, added: Operand | None = None,
    past_key: Operand | None = None, past_value: Operand | None = None, *, num_heads: int,
    unidirectional: int = 0, scale: float = 0.0, mask_filter_value: float = HIDDEN,
) -> Any:  # fmt: skip
    """q, k and v [N, L, heads * E], or k and v [N, heads, L, E]. Also gives keys and values with the past."""
    if key is None or value is None or query.rank != 3 or {key.rank, value.rank} - {3, 4}:
        raise Unsupported("with query, key and value in one tensor")
    given, parts = (query, key, value), []
    starts = np.cumsum([0, *(fixed(x.shape[-1], "its width") for x in given)]).tolist()
    for i, x in enumerate(given):
        if bias is not None and x.rank == 3:
            cut = s.compute(lambda b, i=i: b[starts[i] : starts[i + 1]], bias)
            x = s.inner("add", x, cut)
        parts.append(heads_apart(s, x, num_heads) if x.rank == 3 else x)
    q, k, v = parts
    if past_key is not None and past_value is not None:
        k, v = s.inner("concat", past_key, k, axis=2), s.inner("concat", past_value, v, axis=2)
        if unidirectional:
            late, unidirectional = hidden_behind(s, q, k), 0
            added = late if added is None else s.inner("add", added, late)
    made = attended(s, q, k, v, mask, added, bool(unidirectional), scale, mask_filter_value)
    return made, k, v, None


def attended(
    s: Site, q: Operand, k: Operand, v: Operand, mask: Operand | None, added: Operand | None, causal: bool,
    scale: float, hidden: float,
) -> Operand:  # fmt: skip
    """``[N, L, heads * E]`` of heads apart. ``mask``: 1 for each key to be seen, [N, keys] or for each query,
    or how many keys are seen, see `within`; ``added``: to the scores.
    """
    n, _, rows, _ = q.shape
    if mask is not None:
        keys = k.shape[2]
        if mask.rank == 1:
            mask = within(s, mask, n, k)
        if mask.rank not in (2, 3) or mask.shape[-1] != keys:
            raise Unsupported(f"with a mask {list(mask.shape)} of {keys} keys")
        seen = s.inner("cast", mask, to="float32") if mask.dtype != "float32" else mask
        low = s.inner("mul", seen, s.const(np.float32(-hidden), "seen"))
        low = s.inner("add", low, s.const(np.float32(hidden), "hidden"))
        low = reshaped(s, low, (n, 1, 1 if mask.rank == 2 else rows, keys), last=False)
        added = low if added is None else s.inner("add", added, low)
    masks = [] if added is None else [added]
    made = s.inner("attention", q, k, v, *masks, is_causal=causal, grouped=False, scale=scale or None)
    return heads_together(s, made)


def within(s: Site, ends: Operand, n: Dim, k: Operand) -> Operand:
    """Which keys each row sees, [N, keys]: those before its end, and not before its start if there is one.

    ``ends``: [N]; [2N] with the starts after them; or [3N + 2], of which the first N count.
    """
    size, starts = ends.shape[0], None
    if size == product([n, 2]):
        pairs = reshaped(s, ends, (2, n), last=False)
        ends, starts = (s.inner("slice", pairs, axis=0, start=i, stop=i + 1) for i in (0, 1))
    elif size != n:
        have, rows = fixed(size, "the size of its mask"), fixed(n, "the batch")
        if have != 3 * rows + 2:
            raise SpecError(f"its mask is [{have}] for {rows} sequences, expected [N], [2N] or [3N + 2]")
        ends = s.inner("slice", ends, axis=0, start=0, stop=rows)
    places = s.compute(lambda shape: np.arange(shape[2], dtype=ends.dtype).reshape(1, -1), sizes_of(k, s))
    seen: Operand = s.inner("less", places, reshaped(s, ends, (n, 1), last=False))
    if starts is not None:
        late = s.inner("greater_equal", places, reshaped(s, starts, (n, 1), last=False))
        seen = s.inner("and", seen, late)
    return seen
