"""Scaled dot-product attention: what transformers compute between tokens."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from bslite.errors import SpecError
from bslite.ops import attrs as a
from bslite.ops import checks
from bslite.ops.core import Attr, Attrs, Kind, Op, ParamShapes, Shape, case
from bslite.ops.values import Applied, Gradients, Value

FEW = 8  # rows below which the products alone are faster than an op that packs all keys three times
HEADS = ((2, 3, 10, 8),) * 3  # q, k and v of most cases

OPTIONS = (
    Attr("scale", a.optional(a.real), None, "of the scores; 1/sqrt(E) if None"),
    Attr("is_causal", a.boolean, False, "row i sees keys 0 to i only"),
    Attr("grouped", a.boolean, False, "k and v have fewer heads (axis -3): each serves as many of q's"),
    Attr("no_key", a.choice("zero", "nan"), "zero", "weights of a row with every key masked"),
)


class Attention(Op):
    """``softmax(q @ k^T * scale + mask) @ v`` of q ``[..., L, E]``, k ``[..., S, E]`` and v ``[..., S, Ev]``;
    the leading axes broadcast. The mask broadcasts to ``[..., L, S]``: floats are added to the scores, bools
    are true where a key takes part.
    """

    name = "attention"
    kind = Kind.CONTRACTION
    arity = (3, 4)
    attrs = OPTIONS
    torch_name = "scaled_dot_product_attention"
    onnx_name = "Attention"

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        q, k, v = ins[:3]
        for x, layout in ((q, "q [..., L, E]"), (k, "k [..., S, E]"), (v, "v [..., S, Ev]")):
            checks.rank_at_least(self.name, x, 2, layout)
        if q[-1] != k[-1] or k[-2] != v[-2]:
            raise SpecError(
                f"op 'attention': q {list(q)}, k {list(k)} and v {list(v)} do not fit; expected "
                "[..., L, E], [..., S, E] and [..., S, Ev]"
            )
        if attrs["grouped"] and k[:-1] != v[:-1]:
            raise SpecError(f"op 'attention': grouped heads: k {list(k)} and v {list(v)} must have as many")
        lead = checks.broadcast(self.name, [q[:-2], *(heads_repeated(q, x, attrs)[:-2] for x in (k, v))])
        if len(ins) == 4:
            scores = (*lead, q[-2], k[-2])
            if checks.broadcast(self.name, [ins[3], scores]) != scores:
                raise SpecError(
                    f"op 'attention': mask {list(ins[3])} is larger than the scores {list(scores)}"
                )
        return (*lead, q[-2], v[-1])

    def dtype(self, ins: Sequence[str], params: Mapping[str, str], attrs: Attrs) -> str:
        made = super().dtype(ins[:3], params, attrs)
        if len(ins) == 4 and ins[3] not in ("float32", "bool"):
            raise SpecError(f"op 'attention': the mask is {ins[3]}, expected float32 or bool")
        return made

    def vjp(self, at: Applied, grad: Value) -> Gradients:
        """One op makes them all; where k, v or a mask were repeated, their gradients are added up."""
        q, k, v = at.inputs[:3]
        lead, rows = grad.shape[:-2], q.shape[-2]
        parts = in_products(at.inputs, grad, at.attrs)[: len(at.inputs)] if rows < FEW else []
        if not parts:
            by_mask, start = 3 in at.wanted, 0
            made = q.op("attention_grad", k, v, grad, *at.inputs[3:], by_mask=by_mask, **at.attrs)
            for shape in [x.shape[-2:] for x in (q, k, v)] + [(rows, k.shape[-2])] * by_mask:
                part = made.sliced(len(lead), start, start + math.prod(shape))
                parts.append(part.reshape(*lead, *shape))
                start += math.prod(shape)
        each = q.shape[-3] // k.shape[-3] if at.attrs["grouped"] else 1
        parts[1:3] = (_together(part, each) for part in parts[1:3])
        return {i: part.sum_to(x.shape) for i, (part, x) in enumerate(zip(parts, at.inputs, strict=False))}

    def flops(self, ins: Sequence[Shape], out: Shape, params: ParamShapes, attrs: Attrs) -> int:
        depth, keys = ins[1][-1], ins[1][-2]
        return 2 * math.prod(out[:-1]) * keys * (depth + out[-1])

    def keeps_images_apart(self, ranks: Sequence[int], attrs: Attrs) -> bool:
        return len(set(ranks)) == 1 and ranks[0] >= (4 if attrs["grouped"] else 3)

    samples = [
        case("one by one", (1, 1), (1, 1), (1, 1)),
        case("one query", (1, 2, 1, 5), (1, 2, 7, 5), (1, 2, 7, 3)),
        case("one key", (2, 6, 4), (2, 1, 4), (2, 1, 9)),
        case("heads", *HEADS),
        case("matrices", (17, 33), (19, 33), (19, 65)),
        case("scale", *HEADS, scale=0.5),
        case("negative scale", *HEADS, scale=-1.0),
        case("mask for all", *HEADS, (10, 10)),
        case("mask of keys", *HEADS, (2, 1, 1, 10)),
        case("mask of rows", *HEADS, (2, 3, 10, 1)),
        case("bool mask", (2, 3, 5, 8), (2, 3, 40, 8), (2, 3, 40, 8), (5, 40),
             dtypes=["float32"] * 3 + ["bool"]),
        case("bool mask, rows without a key", (3, 6, 4), (3, 2, 4), (3, 2, 4), (3, 6, 2),
             dtypes=["float32"] * 3 + ["bool"]),
        case("causal", *HEADS, is_causal=True),
        case("causal, fewer keys", (2, 9, 4), (2, 5, 4), (2, 5, 4), is_causal=True),
        case("causal, fewer rows", (2, 5, 4), (2, 20, 4), (2, 20, 4), is_causal=True),
        case("causal and masked", *HEADS, (10, 10), is_causal=True),
        case("blocks of keys", (2, 20, 16), (2, 600, 16), (2, 600, 24)),
        case("blocks of keys, causal", (1, 700, 8), (1, 700, 8), (1, 700, 8), is_causal=True),
        case("blocks of keys, masked", (2, 2, 40, 8), (2, 2, 530, 8), (2, 2, 530, 8), (40, 530)),
        case("windows", (4, 3, 49, 32), (4, 3, 49, 32), (4, 3, 49, 32), (3, 49, 49)),
        case("grouped heads", (2, 6, 7, 8), (2, 2, 9, 8), (2, 2, 9, 8), grouped=True),
        case("heads broadcast", (2, 3, 7, 8), (1, 3, 9, 8), (3, 9, 4)),
        case("as softmax has it", *HEADS, no_key="nan"),
    ]  # fmt: skip


def heads_repeated(q: Shape, x: Shape, attrs: Attrs) -> Shape:
    """The shape of k or v with as many heads as q; SpecError if theirs do not divide."""
    if not attrs["grouped"]:
        return x
    if len(q) < 3 or len(x) != len(q) or q[-3] % x[-3]:
        raise SpecError(
            f"op 'attention': grouped heads: q {list(q)} has them in axis -3, {list(x)} must have a divisor"
        )
    return (*x[:-3], q[-3], *x[-2:])


def in_products(ins: Sequence[Value], grad: Value, attrs: Attrs) -> list[Value]:
    """The gradients by q, k, v, each as it is broadcast, and by the scores: all scores, their softmax, and
    five products. ``ins``: q, k, v, perhaps a mask.
    """
    q, k, v, *mask = ins
    if attrs["grouped"]:
        k, v = (_repeated(x, q.shape[-3] // x.shape[-3]) for x in (k, v))
    scale = q.shape[-1] ** -0.5 if attrs["scale"] is None else attrs["scale"]
    scores = q.matmul(k.transposed()) * scale
    rows, keys = scores.shape[-2:]
    if attrs["is_causal"]:
        later = np.arange(keys) > np.arange(rows)[:, None]
        scores = scores + grad.tape.constant(np.where(later, -np.inf, 0.0))
    for seen in mask:
        bools = seen.dtype == "bool"
        scores = scores + (seen.where(grad.tape.constant(0.0), -math.inf) if bools else seen)
    if safe := attrs["no_key"] == "zero" and (mask or attrs["is_causal"]):
        none = scores.op("amax", axes=(-1,), keepdim=True).op("equal", -math.inf)
        scores = none.where(0.0, scores)
    weights = scores.op("softmax", axis=-1)
    weights = none.where(0.0, weights) if safe else weights
    by_weights = grad.matmul(v.transposed())
    by_scores = weights * (by_weights - (by_weights * weights).sum(-1, keepdim=True))
    return [
        by_scores.matmul(k) * scale,
        by_scores.transposed().matmul(q) * scale,
        weights.transposed().matmul(grad),
        by_scores,
    ]


def _repeated(x: Value, each: int) -> Value:
    """Every head ``each`` times."""
    if each == 1:
        return x
    *lead, heads, rows, depth = x.shape
    apart = x.reshape(*lead, heads, 1, rows, depth).expand((*lead, heads, each, rows, depth))
    return apart.reshape(*lead, heads * each, rows, depth)


def _together(x: Value, each: int) -> Value:
    """The sum over what `_repeated` repeats."""
    if each == 1:
        return x
    *lead, heads, rows, depth = x.shape
    return x.reshape(*lead, heads // each, each, rows, depth).sum(len(lead) + 1)
