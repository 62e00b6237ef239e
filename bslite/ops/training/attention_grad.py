"""The gradients of attention by q, k and v in one op, which engines compute without storing all scores."""

import math
from collections.abc import Mapping, Sequence

from bslite.ops import attrs as a
from bslite.ops import checks
from bslite.ops.attention import OPTIONS, in_products
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
        lead = grad.shape[:-2]
        parts = in_products([q, k, v, *mask], grad, attrs)[: 3 + attrs["by_mask"]]
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
