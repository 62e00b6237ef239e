"""The gradients of attention by q, k and v in one op, which engines compute without storing all scores."""

import math
from collections.abc import Mapping, Sequence

from bslite.ops import attrs as a
from bslite.ops import checks
from bslite.ops.attention import OPTIONS, OfHeads, in_products
from bslite.ops.core import Attr, Attrs, Case, ParamShapes, Shape, case, get, parse_attrs
from bslite.ops.values import Param, Value


class AttentionGrad(OfHeads):
    """The gradients of `attention` by q ``[..., L, E]``, k and v as they are broadcast: those by its rows,
    keys, values and, ``by_mask``, scores ``[L, S]``, one after the other in ``[..., L*E + S*E + S*Ev]``.

    Inputs are q, k, v, the gradient ``[..., L, Ev]`` that comes from behind, and what else attention reads.
    The weights are computed again.
    """

    name = "attention_grad"
    arity = (4, 6)
    reads = ("q", "k", "v", "grad")
    attrs = (*OPTIONS, Attr("by_mask", a.boolean, False, "the scores' gradients, too"))

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        given = dict(zip(self.roles(len(ins), attrs), ins, strict=True))
        lead, rows, features = self._sizes(given, attrs)
        made = (*lead, rows, features)
        checks.param_shape(self.name, "gradient", given["grad"], made, "(that of the attention's value)")
        keys, depth = given["k"][-2:]
        return (*lead, rows * depth + keys * (depth + features) + rows * keys * attrs["by_mask"])

    def flops(self, ins: Sequence[Shape], out: Shape, params: ParamShapes, attrs: Attrs) -> int:
        q, _, v, grad = ins[:4]
        return 2 * math.prod(grad[:-1]) * v[-2] * (3 * q[-1] + 2 * v[-1])

    def keeps_images_apart(self, ranks: Sequence[int], attrs: Attrs) -> bool:
        return get("attention").keeps_images_apart(ranks, attrs)

    def as_nodes(self, ins: Sequence[Value], params: Mapping[str, Param], attrs: Attrs) -> Value:
        return self.parts(ins, attrs)

    def parts(self, ins: Sequence[Value], attrs: Attrs) -> Value:
        """The same as all scores, their softmax, and five products."""
        given = dict(zip(self.roles(len(ins), attrs), ins, strict=True))
        lead, parts = given["grad"].shape[:-2], in_products(given, given["grad"], attrs)
        first, *others = (
            parts[role].expand((*lead, *parts[role].shape[-2:])).reshape(*lead, -1)
            for role in ("q", "k", "v", *["mask"] * attrs["by_mask"])
        )
        return first.op("concat", *others, axis=len(lead))

    def cases(self) -> Sequence[Case]:
        """Those of attention, and heads of several panels."""
        attention, found = get("attention"), []
        for given in (*attention.cases(), case("wide heads", (2, 70, 200), (2, 150, 200), (2, 150, 130))):
            attrs = parse_attrs(attention, given.attrs)
            q, k, v, *rest = given.inputs
            made = attention.shape(given.inputs, {}, attrs)
            by_mask = len(rest) > attrs["dropped"] and not given.dtypes
            dtypes = ["float32"] * 4 + [*given.dtypes[3:]]
            found.append(
                case(given.label, q, k, v, made, *rest, dtypes=dtypes, by_mask=by_mask, **given.attrs)
            )
        return found
