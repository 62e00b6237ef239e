"""Builders of attention."""

from __future__ import annotations

from typing import Any

from bslite.frontends.common.unsupported import Unsupported
from bslite.frontends.common.values import Value
from bslite.frontends.torch.builders import aten
from bslite.frontends.torch.site import Site
from bslite.frontends.torch.values import Operand


@aten("scaled_dot_product_attention")
def attention(
    s: Site,
    q: Operand,
    k: Operand,
    v: Operand,
    mask: Operand | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Value:
    if dropout_p:
        raise Unsupported(f"dropout_p={dropout_p}")
    inputs = [q, k, v] if mask is None else [q, k, v, mask]
    return s.emit("attention", *inputs, scale=scale, is_causal=is_causal, grouped=enable_gqa)


@aten("_scaled_dot_product_flash_attention_for_cpu")
def flash_attention(
    s: Site,
    q: Operand,
    k: Operand,
    v: Operand,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Operand | None = None,
    scale: float | None = None,
) -> Any:
    return s.results(attention(s, q, k, v, attn_mask, dropout_p, is_causal, scale=scale))


@aten("_scaled_dot_product_attention_math")
def math_attention(
    s: Site,
    q: Operand,
    k: Operand,
    v: Operand,
    mask: Operand | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    dropout_mask: Operand | None = None,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    return s.results(attention(s, q, k, v, mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa))


@aten("baddbmm")
def baddbmm(s: Site, bias: Operand, x: Operand, y: Operand, *, beta: float = 1, alpha: float = 1) -> Value:
    if beta != 1 or alpha != 1:
        raise Unsupported(f"beta={beta}, alpha={alpha}")
    return s.emit("add", s.emit("matmul", x, y, inner=(*x.shape[:-1], y.shape[-1])), bias)
