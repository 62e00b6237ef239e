"""Builders of onnxruntime's mixtures of experts: a row is computed by the layers that its scores choose."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bslite.errors import SpecError
from bslite.frontends.common.unsupported import Unsupported
from bslite.frontends.onnx.builders import onnx_op
from bslite.frontends.onnx.ops.moves import reshaped
from bslite.frontends.onnx.site import Site
from bslite.frontends.onnx.tensors import unpacked
from bslite.frontends.onnx.values import Operand, fixed, product

#: onnxruntime's name of an activation -> the op, and its attributes.
ACTIVATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "relu": ("relu", {}), "gelu": ("gelu", {"approximate": "tanh"}), "silu": ("silu", {}),
}  # fmt: skip


@onnx_op("com.microsoft:MoE")
def mixture(
    s: Site, x: Operand, scores: Operand, first: Operand, first_bias: Operand | None, second: Operand,
    second_bias: Operand | None = None, third: Operand | None = None, third_bias: Operand | None = None, *,
    activation_type: str = "relu", k: int = 1, normalize_routing_weights: int = 0, use_sparse_mixer: int = 0,
    swiglu_fusion: int = 0, activation_alpha: float = 1.0, activation_beta: float = 0.0,
    swiglu_limit: float = np.inf,
) -> Operand:  # fmt: skip
    """Rows ``[..., H]`` by the ``k`` of ``E`` experts with the largest ``scores [..., E]``, weighted by their
    softmax: ``second_e @ activation(first_e @ x + bias) + bias``. Weights are ``[E, features, H]``, ``[E, H,
    features]``; a swiglu takes two neighbours of the first layer for a gate and a value.
    """
    if third is not None or third_bias is not None or use_sparse_mixer:
        raise Unsupported("with a third layer or a sparse mixer")
    gate = _Gate(activation_type, swiglu_fusion, activation_alpha, activation_beta, swiglu_limit)
    layers = (first, first_bias), (second, second_bias)
    return _mixed(s, x, scores, layers, gate, k, bool(normalize_routing_weights))


@onnx_op("com.microsoft:QMoE")
def mixture_of_bits(
    s: Site, x: Operand, scores: Operand, first: Operand, first_scale: Operand, first_bias: Operand | None,
    second: Operand, second_scale: Operand, second_bias: Operand | None = None, third: Operand | None = None,
    third_scale: Operand | None = None, third_bias: Operand | None = None, first_zero: Operand | None = None,
    second_zero: Operand | None = None, third_zero: Operand | None = None, *, activation_type: str = "relu",
    k: int = 1, normalize_routing_weights: int = 0, use_sparse_mixer: int = 0, swiglu_fusion: int = 0,
    activation_alpha: float = 1.0, activation_beta: float = 0.0, swiglu_limit: float = np.inf,
    expert_weight_bits: int = 4, block_size: int = 0,
) -> Operand:  # fmt: skip
    """The same with weights of 4 or 8 bits, which are float32 here; shares of a row's experts always add up
    to one, as onnxruntime has it.
    """
    if third is not None or use_sparse_mixer or expert_weight_bits not in (4, 8):
        raise Unsupported(f"of {expert_weight_bits} bits, with a third layer or a sparse mixer")
    gate = _Gate(activation_type, swiglu_fusion, activation_alpha, activation_beta, swiglu_limit)
    layers = tuple(
        (_widened(s, weight, scale, zero, expert_weight_bits, what), bias)
        for what, weight, scale, zero, bias in (
            ("first", first, first_scale, first_zero, first_bias),
            ("second", second, second_scale, second_zero, second_bias),
        )
    )
    return _mixed(s, x, scores, layers, gate, k, True)


def _widened(s: Site, weight: Operand, scale: Operand, zero: Operand | None, bits: int, what: str) -> Operand:
    """Weights ``[E, K, bytes]`` with scales for rows ``[E, K]``, or blocks of them, as float32."""
    numbers = unpacked(s.array(weight, "its weights"), bits).astype(np.float32)
    scales = s.array(scale, "its scales").astype(np.float32)
    rows = scales.ndim == 2
    if zero is None:
        points = np.full_like(scales, 2.0 ** (bits - 1))
    else:
        points = unpacked(s.array(zero, "its zero points"), bits).astype(np.float32)[..., : scales.shape[-1]]
    blocks = 1 if rows else scales.shape[-1]
    if scales.shape[:2] != numbers.shape[:2] or points.shape != scales.shape or numbers.shape[-1] % blocks:
        raise SpecError(
            f"scales {list(scales.shape)}, zero points {list(points.shape)} of weights {list(numbers.shape)}"
        )
    scales, points = (
        np.repeat(a.reshape(*a.shape[:2], blocks), numbers.shape[-1] // blocks, -1) for a in (scales, points)
    )
    return s.const((numbers - points) * scales, what)


class _Gate(NamedTuple):
    """What stands between the layers of an expert: an activation's name, and the numbers of a swiglu."""

    name: str
    fusion: int
    alpha: float
    beta: float
    limit: float

    def apply(self, s: Site, y: Any) -> Any:
        """The activation of rows; of a swiglu ``gate * sigmoid(alpha * gate) * (value + beta)``, the gate at
        most ``limit``, the value within it.
        """
        if self.name != "swiglu":
            op, attrs = ACTIVATIONS[self.name]
            return s.inner(op, y, **attrs)
        gate, value = (s.inner("slice", y, axis=1, start=i, stop=None, step=2) for i in range(2))
        if self.limit < np.inf:
            gate = s.inner("clamp", gate, high=self.limit)
            value = s.inner("clamp", value, low=-self.limit, high=self.limit)
        if self.beta:
            value = s.inner("add", value, s.const(np.float32(self.beta), "beta"))
        return s.inner("mul", s.inner("silu", gate, beta=self.alpha), value)


def _mixed(
    s: Site, x: Operand, scores: Operand, layers: Sequence[tuple[Operand, Operand | None]], gate: _Gate,
    k: int, normalized: bool,
) -> Operand:  # fmt: skip
    """Rows are put in the order of their experts, so that each expert is one product of matrices."""
    (first, first_bias), (second, second_bias) = layers
    if gate.name == "swiglu" and gate.fusion != 1:
        raise Unsupported("with a swiglu whose halves are not interleaved")
    if gate.name != "swiglu" and gate.name not in ACTIVATIONS:
        raise Unsupported(f"with the activation {gate.name!r}")
    count, width = first.shape[0], x.shape[-1]
    if first.rank != 3 or second.rank != 3 or first.shape[2] != width or scores.shape[-1] != count:
        raise SpecError(
            f"rows {list(x.shape)}, scores {list(scores.shape)} and weights {list(first.shape)}, "
            f"{list(second.shape)} do not fit"
        )
    rows = fixed(product(x.shape[:-1]), "how many rows it has")
    total = rows * k

    def number(value: Any, what: str) -> Operand:
        return s.const(np.asarray(value), what)

    likely = s.inner("softmax", reshaped(s, scores, (rows, count), False), axis=1)
    chosen = s.inner("topk", likely, k=k, axis=1)
    share = s.inner("gather_elements", likely, chosen, axis=1)
    if normalized:
        share = s.inner("div", share, s.inner("sum", share, axes=(1,), keepdim=True))
    experts = s.inner("cast", reshaped(s, chosen, (total,), False), to="float32")  # which are sorted faster
    order = s.inner("topk", experts, k=total, axis=0, largest=False)
    own = s.inner("gather", reshaped(s, chosen, (total,), False), order, axis=0)
    numbers = number(np.arange(count, dtype=np.float32), "experts")
    before = s.inner("less_equal", reshaped(s, experts, (total, 1), False), numbers)
    ends = s.inner("sum", s.inner("cast", before, to="float32"), axes=(0,), keepdim=False)
    ends = s.inner("cast", ends, to="int64")

    def layer(y: Any, weight: Operand, bias: Operand | None) -> Any:
        made = s.inner("grouped_linear", y, ends, params={"weight": weight})
        return made if bias is None else s.inner("add", made, s.inner("gather", bias, own, axis=0))

    token = s.inner("floor_div", order, number(np.int64(k), "k"))
    y = layer(s.inner("gather", reshaped(s, x, (rows, width), False), token, axis=0), first, first_bias)
    y = layer(gate.apply(s, y), second, second_bias)
    back = s.inner("topk", s.inner("cast", order, to="float32"), k=total, axis=0, largest=False)
    y = reshaped(s, s.inner("gather", y, back, axis=0), (rows, k, width), False)
    y = s.inner("mul", y, reshaped(s, share, (rows, k, 1), False))
    return reshaped(s, s.inner("sum", y, axes=(1,), keepdim=False), x.shape)
