"""Scaled dot-product attention: what transformers compute between tokens."""

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

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
    Attr("dropped", a.boolean, False, "the last input is noise that the weights are multiplied by"),
)


class OfHeads(Op):
    """Base of attention and its gradient: they take ``reads``, perhaps a mask, and with ``dropped`` noise."""

    kind = Kind.CONTRACTION
    reads: ClassVar[tuple[str, ...]]

    def roles(self, inputs: int, attrs: Attrs) -> tuple[str, ...]:
        """What each of so many inputs is; SpecError if they are too few or too many."""
        masks = inputs - len(self.reads) - attrs["dropped"]
        if masks not in (0, 1):
            raise SpecError(
                f"op {self.name!r} takes {', '.join(self.reads)}, perhaps a mask, and noise if dropped; got "
                f"{inputs} inputs with dropped={attrs['dropped']}"
            )
        return (*self.reads, *("mask",) * masks, *("noise",) * attrs["dropped"])

    def dtype(self, ins: Sequence[str], params: Mapping[str, str], attrs: Attrs) -> str:
        for role, got in zip(self.roles(len(ins), attrs), ins, strict=True):
            if got != "float32" and not (role == "mask" and got == "bool"):
                expected = "float32 or bool" if role == "mask" else "float32"
                raise SpecError(f"op {self.name!r}: {role} is {got}, expected {expected}")
        return "float32"

    def _sizes(self, ins: Mapping[str, Shape], attrs: Attrs) -> tuple[Shape, int, int]:
        """The axes around the matrices, rows of q, and features of v, of inputs by role."""
        q, k, v = ins["q"], ins["k"], ins["v"]
        for x, layout in ((q, "q [..., L, E]"), (k, "k [..., S, E]"), (v, "v [..., S, Ev]")):
            checks.rank_at_least(self.name, x, 2, layout)
        if q[-1] != k[-1] or k[-2] != v[-2]:
            raise SpecError(
                f"op {self.name!r}: q {list(q)}, k {list(k)} and v {list(v)} do not fit; expected "
                "[..., L, E], [..., S, E] and [..., S, Ev]"
            )
        if attrs["grouped"] and k[:-1] != v[:-1]:
            raise SpecError(f"op {self.name!r}: grouped heads: k {list(k)} and v {list(v)} must have as many")
        lead = checks.broadcast(
            self.name, [q[:-2], *(self._heads_repeated(q, x, attrs)[:-2] for x in (k, v))]
        )
        scores = (*lead, q[-2], k[-2])
        for role in ("mask", "noise"):
            if role in ins and checks.broadcast(self.name, [ins[role], scores]) != scores:
                raise SpecError(
                    f"op {self.name!r}: {role} {list(ins[role])} is larger than the scores {list(scores)}"
                )
        return lead, q[-2], v[-1]

    def _heads_repeated(self, q: Shape, x: Shape, attrs: Attrs) -> Shape:
        """The shape of k or v with as many heads as q; SpecError if theirs do not divide."""
        if not attrs["grouped"]:
            return x
        if len(q) < 3 or len(x) != len(q) or q[-3] % x[-3]:
            raise SpecError(
                f"op {self.name!r}: grouped heads: q {list(q)} has them in axis -3, {list(x)} must have a "
                "divisor"
            )
        return (*x[:-3], q[-3], *x[-2:])


class Attention(OfHeads):
    """``softmax(q @ k^T * scale + mask) @ v`` of q ``[..., L, E]``, k ``[..., S, E]`` and v ``[..., S, Ev]``;
    the leading axes broadcast. The mask broadcasts to ``[..., L, S]``: floats are added to the scores, bools
    are true where a key takes part. So does noise, which the weights are multiplied by if they are
    ``dropped``: that of a dropout.
    """

    name = "attention"
    arity = (3, 5)
    reads = ("q", "k", "v")
    attrs = OPTIONS
    torch_name = "scaled_dot_product_attention"
    onnx_name = "Attention"

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        lead, rows, features = self._sizes(dict(zip(self.roles(len(ins), attrs), ins, strict=True)), attrs)
        return (*lead, rows, features)

    def vjp(self, at: Applied, grad: Value) -> Gradients:
        """One op makes them all, but that by noise; those of what was repeated are added up."""
        q, k, v = at.inputs[:3]
        lead, rows = grad.shape[:-2], q.shape[-2]
        roles = self.roles(len(at.inputs), at.attrs)
        asked = [role for i, role in enumerate(roles) if i in at.wanted]
        if rows < FEW or "noise" in asked:
            parts = in_products(dict(zip(roles, at.inputs, strict=True)), grad, at.attrs)
        else:
            by_mask, start, parts = "mask" in asked, 0, dict[str, Value]()
            made = q.op("attention_grad", k, v, grad, *at.inputs[3:], by_mask=by_mask, **at.attrs)
            sizes = {"q": q.shape[-2:], "k": k.shape[-2:], "v": v.shape[-2:], "mask": (rows, k.shape[-2])}
            for role in [*"qkv", *["mask"] * by_mask]:
                part = made.sliced(len(lead), start, start + math.prod(sizes[role]))
                parts[role] = part.reshape(*lead, *sizes[role])
                start += math.prod(sizes[role])
        each = q.shape[-3] // k.shape[-3] if at.attrs["grouped"] else 1
        parts |= {role: _together(parts[role], each) for role in "kv"}
        return {
            i: parts[r].sum_to(x.shape)
            for i, (r, x) in enumerate(zip(roles, at.inputs, strict=True))
            if r in parts
        }

    def parts(self, ins: Sequence[Value], attrs: Attrs) -> Value:
        """The same as all scores, their softmax, and two products."""
        given = dict(zip(self.roles(len(ins), attrs), ins, strict=True))
        weights = weights_of(given, attrs)
        if attrs["dropped"]:
            weights = weights * given["noise"]
        return weights.matmul(_repeated(given["v"], given["q"], attrs))

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
        case("noise", *HEADS, (2, 3, 10, 10), dropped=True),
        case("noise for all, masked", *HEADS, (10, 10), (10, 10), dropped=True),
        case("noise, causal, blocks of keys", *((1, 2, 300, 8),) * 3, (1, 2, 300, 300), is_causal=True,
             dropped=True),
        case("noise, bool mask, grouped", (1, 4, 9, 8), (1, 2, 12, 8), (1, 2, 12, 5), (9, 12), (4, 9, 1),
             dtypes=["float32"] * 3 + ["bool"], grouped=True, dropped=True),
    ]  # fmt: skip


def in_products(ins: Mapping[str, Value], grad: Value, attrs: Attrs) -> dict[str, Value]:
    """The gradients by q, k, v, scores (that of a mask) and noise, each as it is broadcast: all scores, their
    softmax, and five products. ``ins``: inputs by role.
    """
    q, weights = ins["q"], weights_of(ins, attrs)
    k, v = (_repeated(ins[role], q, attrs) for role in "kv")
    scale = q.shape[-1] ** -0.5 if attrs["scale"] is None else attrs["scale"]
    by_dropped = by_weights = grad.matmul(v.transposed())
    dropped = weights
    if noise := ins.get("noise"):
        by_weights, dropped = by_dropped * noise, weights * noise
    by_scores = weights * (by_weights - (by_weights * weights).sum(-1, keepdim=True))
    return {
        "q": by_scores.matmul(k) * scale,
        "k": by_scores.transposed().matmul(q) * scale,
        "v": dropped.transposed().matmul(grad),
        "mask": by_scores,
        "noise": by_dropped * weights,
    }


def weights_of(ins: Mapping[str, Value], attrs: Attrs) -> Value:
    """All weights, before a dropout; ``ins``: inputs by role."""
    q, tape = ins["q"], ins["q"].tape
    scale = q.shape[-1] ** -0.5 if attrs["scale"] is None else attrs["scale"]
    scores = q.matmul(_repeated(ins["k"], q, attrs).transposed()) * scale
    rows, keys = scores.shape[-2:]
    if attrs["is_causal"]:
        later = np.arange(keys) > np.arange(rows)[:, None]
        scores = scores + tape.constant(np.where(later, -np.inf, 0.0))
    if seen := ins.get("mask"):
        scores = scores + (seen.where(tape.constant(0.0), -math.inf) if seen.dtype == "bool" else seen)
    if attrs["no_key"] == "nan" or not (seen or attrs["is_causal"]):
        return scores.op("softmax", axis=-1)
    none = scores.op("amax", axes=(-1,), keepdim=True).op("equal", -math.inf)
    return none.where(0.0, none.where(0.0, scores).op("softmax", axis=-1))


def _repeated(x: Value, q: Value, attrs: Attrs) -> Value:
    """Each head of k or v as often as heads of q read it."""
    each = q.shape[-3] // x.shape[-3] if attrs["grouped"] else 1
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
