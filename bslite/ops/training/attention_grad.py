"""The gradients of attention by q, k and v in one op, which engines compute without storing all scores."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from bslite.ops import attrs as a
from bslite.ops import checks
from bslite.ops.attention import OPTIONS, repeated
from bslite.ops.core import Attr, Attrs, Case, Kind, Op, ParamShapes, Shape, case, get, parse_attrs
from bslite.ops.values import Param, Value


class AttentionGrad(Op):
    """The gradients of `attention` by q ``[..., L, E]``, k and v as they are broadcast: those by its rows,
    keys, values and, ``by_mask``, scores ``[L, S]``, one after the other in ``[..., L*E + S*E + S*Ev]``.

    Inputs are q, k, v, the gradient ``[..., L, Ev]`` that comes from behind, and perhaps a mask. The weights
    are computed again.
    """

    name = "attention_grad"
    kind = Kind.CONTRACTION
    arity = (4, 5)
    attrs = (*OPTIONS, Attr("by_mask", a.boolean, False, "the scores' gradients, too"))

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        q, k, v, grad, *mask = ins
        made = get("attention").shape([q, k, v, *mask], params, attrs)
        checks.param_shape(self.name, "gradient", grad, made, "(that of the attention's value)")
        rows, depth, keys, features = *q[-2:], *v[-2:]
        sizes = rows * depth, keys * depth, keys * features, rows * keys * attrs["by_mask"]
        return (*made[:-2], sum(sizes))

    def dtype(self, ins: Sequence[str], params: Mapping[str, str], attrs: Attrs) -> str:
        super().dtype(ins[:4], params, attrs)
        return get("attention").dtype([*ins[:3], *ins[4:]], params, attrs)

    def flops(self, ins: Sequence[Shape], out: Shape, params: ParamShapes, attrs: Attrs) -> int:
        q, _, v, grad = ins[:4]
        return 2 * math.prod(grad[:-1]) * v[-2] * (3 * q[-1] + 2 * v[-1])

    def keeps_images_apart(self, ranks: Sequence[int], attrs: Attrs) -> bool:
        return get("attention").keeps_images_apart(ranks[:3], attrs)

    def as_nodes(self, ins: Sequence[Value], params: Mapping[str, Param], attrs: Attrs) -> Value:
        return self.parts(ins, attrs)

    def parts(self, ins: Sequence[Value], attrs: Attrs) -> Value:
        """The same as all scores, their softmax, and five products."""
        q, k, v, grad, *mask = ins
        if attrs["grouped"]:
            k, v = (repeated(x, q.shape[-3] // x.shape[-3]) for x in (k, v))
        scale = q.shape[-1] ** -0.5 if attrs["scale"] is None else attrs["scale"]
        scores = q.matmul(k.transposed()) * scale
        rows, keys = scores.shape[-2:]
        if attrs["is_causal"]:
            later = np.arange(keys) > np.arange(rows)[:, None]
            scores = scores + grad.tape.constant(np.where(later, -np.inf, 0.0))
        for seen in mask:
            bools = seen.dtype == "bool"
            scores = scores + (seen.where(grad.tape.constant(0.0), -math.inf) if bools else seen)
        none = scores.op("amax", axes=(-1,), keepdim=True).op("equal", -math.inf)
        safe = attrs["no_key"] == "zero" and (mask or attrs["is_causal"])
        weights = (none.where(0.0, scores) if safe else scores).op("softmax", axis=-1)
        weights = none.where(0.0, weights) if safe else weights
        by_weights = grad.matmul(v.transposed())
        by_scores = weights * (by_weights - (by_weights * weights).sum(-1, keepdim=True))
        parts = [
            by_scores.matmul(k) * scale,
            by_scores.transposed().matmul(q) * scale,
            weights.transposed().matmul(grad),
            *([by_scores] if attrs["by_mask"] else []),
        ]
        lead = grad.shape[:-2]
        first, *others = (x.expand((*lead, *x.shape[-2:])).reshape(*lead, -1) for x in parts)
        return first.op("concat", *others, axis=len(lead))

    def cases(self) -> Sequence[Case]:
        """Those of attention, and heads of several panels."""
        attention, found = get("attention"), []
        for given in (*attention.cases(), case("wide heads", (2, 70, 200), (2, 150, 200), (2, 150, 130))):
            made = attention.shape(given.inputs, {}, parse_attrs(attention, given.attrs))
            (q, k, v, *mask), floats = given.inputs, ["float32"] * 4
            attrs = {**given.attrs, "by_mask": bool(mask) and not given.dtypes}
            found.append(
                case(given.label, q, k, v, made, *mask, dtypes=[*floats, *given.dtypes[3:]], **attrs)
            )
        return found
