"""The builder of torch's fast path for transformers: a whole encoder layer as one operation."""

from bslite.frontends.common.moves import permute, reshape
from bslite.frontends.common.values import Value
from bslite.frontends.torch.builders import aten
from bslite.frontends.torch.operands import converted
from bslite.frontends.torch.site import Site
from bslite.frontends.torch.values import Const, Operand


@aten("_transformer_encoder_layer_fwd")
def encoder_layer(
    s: Site, x: Operand, width: int, heads: int, qkv_weight: Operand, qkv_bias: Operand, out_weight: Operand,
    out_bias: Operand, use_gelu: bool, norm_first: bool, eps: float, scale_1: Operand, shift_1: Operand,
    scale_2: Operand, shift_2: Operand, weight_1: Operand, bias_1: Operand, weight_2: Operand,
    bias_2: Operand, mask: Operand | None = None, mask_type: int | None = None,
) -> Value:  # fmt: skip
    """x ``[N, L, width]``: attention and two linear layers, each with what it is added to. Each sum is
    normalised, or with ``norm_first`` what goes into each.
    """

    def norm(x: Operand, scale: Operand, shift: Operand, last: bool = False) -> Value:
        params = {"weight": scale, "bias": shift}
        inner = None if last else s.shape
        return s.emit("layer_norm", x, inner=inner, params=params, normalized_shape=(width,), eps=eps)

    def attended(x: Operand) -> Value:
        made = attention(s, x, heads, linear(s, x, qkv_weight, qkv_bias), _taking_part(s, mask, mask_type))
        return linear(s, made, out_weight, out_bias)

    def forwarded(x: Operand) -> Value:
        wide = linear(s, x, weight_1, bias_1)
        wide = s.emit("gelu" if use_gelu else "relu", wide, inner=wide.shape)
        return linear(s, wide, weight_2, bias_2)

    if norm_first:
        x = s.emit("add", x, attended(norm(x, scale_1, shift_1)), inner=s.shape)
        return s.emit("add", x, forwarded(norm(x, scale_2, shift_2)))
    x = norm(s.emit("add", x, attended(x), inner=s.shape), scale_1, shift_1)
    return norm(s.emit("add", x, forwarded(x), inner=s.shape), scale_2, shift_2, last=True)


def linear(s: Site, x: Operand, weight: Operand, bias: Operand) -> Value:
    params = {"weight": weight, "bias": bias}
    return s.emit("linear", x, inner=(*x.shape[:-1], weight.shape[0]), params=params)


def attention(s: Site, x: Operand, heads: int, qkv: Value, mask: Operand | None) -> Value:
    """Of q, k and v side by side in ``qkv [N, L, 3*width]``; a row without a key is NaN, as it is there."""
    batch, length, width = x.shape
    apart = reshape(s, qkv, (batch, length, 3, heads, width // heads), last=False)
    apart = permute(s, apart, (2, 0, 3, 1, 4), last=False)
    thin = (1, *apart.shape[1:])
    each = [s.emit("slice", apart, inner=thin, axis=0, start=i, stop=i + 1) for i in range(3)]
    q, k, v = (reshape(s, part, thin[1:], last=False) for part in each)
    masks = [] if mask is None else [mask]
    made = s.emit("attention", q, k, v, *masks, inner=q.shape, no_key="nan" if masks else "zero")
    return reshape(s, permute(s, made, (0, 2, 1, 3), last=False), x.shape, last=False)


def _taking_part(s: Site, mask: Operand | None, kind: int | None) -> Operand | None:
    """``mask``, which is zero where a key takes part, as bools; one of ``kind`` 1 is ``[N, L]``."""
    if mask is None:
        return None
    if isinstance(mask, Const):
        part: Operand = s.derived("mask", mask.data.bool().logical_not())
    else:
        part = s.emit("not", converted(s, mask, "bool"), inner=mask.shape)
    if kind != 1:
        return part
    made: Operand = reshape(s, part, (part.shape[0], 1, 1, part.shape[1]), last=False)
    return made
