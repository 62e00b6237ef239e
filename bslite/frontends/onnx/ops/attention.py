"""Builder of Attention in the forms that the fused op computes; the rest is written out as a function."""

from typing import Any

from bslite.errors import SpecError
from bslite.frontends.common.unsupported import Unsupported
from bslite.frontends.onnx.builders import onnx_op
from bslite.frontends.onnx.ops.moves import permuted, reshaped
from bslite.frontends.onnx.site import Site
from bslite.frontends.onnx.values import Operand


@onnx_op("Attention")
def attention(
    s: Site, q: Operand, k: Operand, v: Operand, mask: Operand | None = None, past_key: Operand | None = None,
    past_value: Operand | None = None, lengths: Operand | None = None, *, is_causal: int,
    q_num_heads: int | None, kv_num_heads: int | None, scale: float | None, softcap: float,
    softmax_precision: int | None = None, qk_matmul_output_mode: int = 0, left_window_size: int = -1,
    right_window_size: int = -1,
) -> Operand:  # fmt: skip
    """q ``[N, heads, L, E]``, or ``[N, L, heads*E]`` with the number of heads; k and v likewise."""
    if past_key is not None or past_value is not None or lengths is not None or softcap or any(s.used[1:]):
        raise Unsupported("with a past, lengths, softcap, or more than its first output")
    if softmax_precision not in (None, 1) or max(left_window_size, right_window_size) >= 0:
        raise Unsupported(f"with softmax_precision={softmax_precision} or a window")
    flat = q.rank == 3
    if flat:
        if not q_num_heads or not kv_num_heads:
            raise SpecError("inputs of rank 3 need q_num_heads and kv_num_heads")
        q, k, v = (
            heads_apart(s, q, q_num_heads),
            heads_apart(s, k, kv_num_heads),
            heads_apart(s, v, kv_num_heads),
        )
    if not q.rank == k.rank == v.rank == 4:
        raise SpecError(f"its inputs have ranks {q.rank}, {k.rank} and {v.rank}, expected 3 or 4")
    if mask is not None and (mask.rank < 2 or mask.shape[-1] != k.shape[2]):
        raise Unsupported("with a mask shorter than the keys")
    how: dict[str, Any] = {"is_causal": bool(is_causal), "grouped": q.shape[1] != k.shape[1], "scale": scale}
    made = (s.inner if flat else s.emit)("attention", q, k, v, *([] if mask is None else [mask]), **how)
    if not flat:
        return made
    return heads_together(s, made)


def heads_together(s: Site, x: Operand) -> Operand:
    """``[N, heads, L, E]`` as ``[N, L, heads*E]``, the node's result."""
    n, heads, rows, width = x.shape
    together = permuted(s, x, (0, 2, 1, 3), last=False)
    return reshaped(s, together, (n, rows, heads * width))


def heads_apart(s: Site, x: Operand, heads: int) -> Operand:
    """``[N, L, heads*E]`` as ``[N, heads, L, E]``."""
    n, rows, width = x.shape
    if not isinstance(width, int) or heads < 1 or width % heads:
        raise SpecError(f"{width} features do not make {heads} heads")
    apart = reshaped(s, x, (n, rows, heads, width // heads), last=False)
    return permuted(s, apart, (0, 2, 1, 3), last=False)
