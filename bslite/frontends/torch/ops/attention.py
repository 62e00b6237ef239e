"""Builders of attention."""

from typing import Any

from bslite.frontends.common.unsupported import Unsupported
from bslite.frontends.torch.builders import aten
from bslite.frontends.torch.site import Site
from bslite.frontends.torch.values import Operand


@aten("scaled_dot_product_attention", "_scaled_dot_product_attention_math")
def attention(
    s: Site, q: Operand, k: Operand, v: Operand, mask: Operand | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, dropout_mask: Operand | None = None, *, scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:  # fmt: skip
    if dropout_p:
        raise Unsupported(f"dropout_p={dropout_p}")
    inputs = [q, k, v] if mask is None else [q, k, v, mask]
    return s.results(s.emit("attention", *inputs, scale=scale, is_causal=is_causal, grouped=enable_gqa))


@aten("bslite.attention")
def dropped_attention(
    s: Site, q: Operand, k: Operand, v: Operand, mask: Operand | None, noise: Operand, is_causal: bool,
    scale: float | None, grouped: bool,
) -> Any:  # fmt: skip
    """With a dropout; see `bslite.frontends.torch.noise`."""
    inputs = [q, k, v, *([] if mask is None else [mask]), noise]
    return s.emit("attention", *inputs, scale=scale, is_causal=is_causal, grouped=grouped, dropped=True)


@aten("_scaled_dot_product_flash_attention_for_cpu")
def flash_attention(
    s: Site, q: Operand, k: Operand, v: Operand, dropout_p: float = 0.0, is_causal: bool = False, *,
    attn_mask: Operand | None = None, scale: float | None = None,
) -> Any:  # fmt: skip
    return attention(s, q, k, v, attn_mask, dropout_p, is_causal, scale=scale)
