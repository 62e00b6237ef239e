"""Builders of attention, and of products named by letters (einsum), which models write attention with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bslite.frontends.torch_context import Dims, Operand, Site, Unsupported, Value, aten
from bslite.frontends.torch_moves import reshape


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


@aten("einsum")
def einsum(s: Site, equation: str, operands: Sequence[Operand], *, path: Any = None) -> Operand:
    """Of two operands, as a matrix product: the letters that both and the result have are its batch, those
    that both have and the result has not are summed over.
    """
    left, arrow, out = equation.replace(" ", "").partition("->")
    letters = left.split(",")
    if not arrow or "." in equation or len(operands) != 2:
        raise Unsupported(f"{equation!r}; bslite takes two operands, all letters and the result written out")
    a, b = letters
    if any(len(set(word)) < len(word) for word in (a, b, out)):
        raise Unsupported(f"{equation!r}: a letter twice in one operand")
    sizes = {**dict(zip(a, operands[0].shape, strict=True)), **dict(zip(b, operands[1].shape, strict=True))}
    batch = [c for c in out if c in a and c in b]
    summed = [c for c in a if c in b and c not in out]
    rows, columns = [c for c in out if c not in b], [c for c in out if c not in a]
    if set(a) | set(b) != {*batch, *summed, *rows, *columns} or not summed:
        raise Unsupported(f"{equation!r}: it is no matrix product")

    def matrix(x: Operand, word: str, first: list[str], second: list[str]) -> Operand:
        """``x`` with the batch in front and its other letters as two axes."""
        order = [word.index(c) for c in (*batch, *first, *second)]
        if order != sorted(order):
            x = s.emit("permute", x, inner=tuple(x.shape[d] for d in order), order=order)
        return reshape(s, x, (*(sizes[c] for c in batch), product(first), product(second)), last=False)

    def product(word: list[str]) -> Any:
        count: Any = 1
        for c in word:
            count = count * sizes[c]
        return count

    x, y = matrix(operands[0], a, rows, summed), matrix(operands[1], b, summed, columns)
    made: Operand = s.emit("matmul", x, y, inner=(*x.shape[:-1], y.shape[-1]))
    order = [[*batch, *rows, *columns].index(c) for c in out]
    whole: Dims = tuple(sizes[c] for c in (*batch, *rows, *columns))
    made = reshape(s, made, whole, last=False)
    if order != sorted(order):
        made = s.emit("permute", made, order=order)
    return made
