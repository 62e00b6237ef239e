"""Builders of moves, sums and products of complex numbers: those of real ones, of pairs.

Pairs have one more axis, which stays the last: an axis that counts from the end is one further to the left.
"""

import inspect
import string
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bslite.errors import SpecError
from bslite.frontends.common.einsum import einsum as contract
from bslite.frontends.common.moves import permute, reshape
from bslite.frontends.common.unsupported import Unsupported
from bslite.frontends.torch.builders import Builder, complex_aten
from bslite.frontends.torch.ops import index, moves, reduce, repeat
from bslite.frontends.torch.ops.complex import pairs, turned
from bslite.frontends.torch.site import Site
from bslite.frontends.torch.values import Const, Operand, Pairs

#: Builders of moves, and which of their arguments name axes.
MOVES: list[tuple[Builder, Sequence[str], Sequence[str]]] = [
    (moves.view, ["view", "reshape", "_unsafe_view", "view_as", "reshape_as", "flatten"], []),
    (moves.view, ["unflatten", "unsqueeze", "squeeze"], []),
    (moves.transpose, ["transpose", "swapaxes", "swapdims"], ["a", "b"]),
    (moves.slice_, ["slice"], ["axis"]),
    (moves.slice_scatter, ["slice_scatter"], ["axis"]),
    (moves.select_scatter, ["select_scatter"], ["axis"]),
    (moves.narrow, ["narrow"], ["axis"]),
    (moves.select, ["select"], ["axis"]),
    (moves.index_select, ["index_select"], ["axis"]),
    (moves.split, ["chunk", "split", "split_with_sizes", "tensor_split"], ["axis"]),
    (moves.unbind, ["unbind"], ["axis"]),
    (moves.cat, ["cat", "concat", "concatenate"], ["axis"]),
    (moves.stack, ["stack"], ["axis"]),
    (moves.expand, ["expand", "expand_as"], []),
    (repeat.roll, ["roll"], ["axes"]),
    (repeat.flip, ["flip", "fliplr", "flipud"], ["axes"]),
    (repeat.repeat_interleave, ["repeat_interleave.self_int"], ["axis"]),
    (repeat.movedim, ["movedim", "moveaxis"], ["source", "destination"]),
    (index.index, ["index.Tensor"], []),
]


def shifted(axes: Any) -> Any:
    """Axes of complex numbers as those of their pairs."""
    if axes is None or axes == () or axes == []:
        raise Unsupported("of all of a complex tensor, flat")
    if isinstance(axes, (list, tuple)):
        return [shifted(a) for a in axes]
    return axes - 1 if axes < 0 else axes


def of_pairs(builder: Builder, axes: Sequence[str]) -> Callable[..., Any]:
    """The builder of a move for complex numbers; ``axes``: its arguments that name axes."""
    signature = inspect.signature(builder)

    def build(s: Site, *args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(s, *args, **kwargs)
        bound.apply_defaults()
        given = bound.arguments
        for name, value in given.items():
            if name in axes:
                given[name] = shifted(value)
            elif isinstance(value, (list, tuple)) and any(isinstance(v, Pairs) for v in value):
                given[name] = [pairs(s, v) for v in value]
            elif isinstance(value, Pairs):
                given[name] = value.parts
        made = builder(*bound.args, **bound.kwargs)
        return [m and Pairs(m) for m in made] if isinstance(made, list) else Pairs(made)

    build.__signature__ = signature  # type: ignore[attr-defined]
    return build


for builder, names, axes in MOVES:
    complex_aten(*names)(of_pairs(builder, axes))


@complex_aten("view.dtype")
def view_dtype(s: Site, x: Pairs | Operand, _: Any) -> Pairs | Operand:
    """Neighbours along the last axis as real and imaginary part, or the other way round."""
    if isinstance(x, Pairs):
        return reshape(s, x.parts, s.shape)
    if x.dtype != "float32":
        raise Unsupported(f"of {x.dtype}")
    return Pairs(reshape(s, x, s.shape))


@complex_aten("permute")
def permuted(s: Site, x: Pairs, order: Sequence[int]) -> Pairs:
    rank = len(x.shape)
    return Pairs(permute(s, x.parts, [*(d % rank for d in order), rank]))


@complex_aten("t")
def t(s: Site, x: Pairs) -> Pairs:
    return permuted(s, x, range(len(x.shape))[::-1])


@complex_aten("repeat", "tile")
def repeated(s: Site, x: Pairs, repeats: Sequence[Any]) -> Pairs:
    repeats = [*[1] * (len(x.shape) - len(repeats)), *repeats]
    return Pairs(repeat.repeat(s, x.parts, [*repeats, 1]))


@complex_aten("constant_pad_nd")
def constant_pad(s: Site, x: Pairs, sizes: Sequence[int], value: complex | None = 0) -> Pairs:
    return pad(s, x, sizes, "constant", value)


@complex_aten("pad")
def pad(
    s: Site, x: Pairs, sizes: Sequence[int], mode: str = "constant", value: complex | None = None
) -> Pairs:
    if value:
        raise Unsupported("with other numbers than zeros")
    return Pairs(moves.pad(s, x.parts, [0, 0, *sizes], mode))


@complex_aten("sum", "mean")
def total(s: Site, x: Pairs | Operand, dim: Any = None, keepdim: bool = False, **_: Any) -> Pairs:
    if not x.shape:
        return Pairs(pairs(s, x))
    axes = shifted([dim] if isinstance(dim, int) else list(dim or range(len(x.shape))))
    return Pairs(reduce.reduced(s, s.operation, pairs(s, x), axes, keepdim))


@complex_aten("cumsum")
def running(s: Site, x: Pairs | Operand, dim: int, **_: Any) -> Pairs:
    if not x.shape:
        return Pairs(pairs(s, x))
    return Pairs(s.emit("cumsum", pairs(s, x), axis=shifted(dim)))


@complex_aten("copy")
def copy(s: Site, x: Pairs, source: Pairs | Operand, *_: Any) -> Pairs:
    return Pairs(moves.copy(s, x.parts, pairs(s, source)))


@complex_aten("einsum")
def einsum(s: Site, equation: str, given: Sequence[Pairs | Operand], *, path: Any = None) -> Pairs:
    """The first operand as it is, each other as matrices that its pairs are multiplied by."""
    xs = [Pairs(pairs(s, x)) for x in given]
    if len(xs) == 2 and isinstance(xs[0].parts, Const):
        left, arrow, right = equation.partition("->")
        if arrow:  # the constant's matrices are made here
            equation, xs = ",".join(reversed(left.split(","))) + arrow + right, xs[::-1]
    left, arrow, right = equation.replace(" ", "").partition("->")
    if not arrow:
        raise Unsupported("einsum without an arrow")
    marks = [c for c in string.ascii_uppercase if c not in equation]
    terms = left.split(",")
    if len(terms) != len(xs):
        raise Unsupported(f"einsum {equation!r} of {len(xs)} operands")
    named = [term + "".join(marks[max(0, i - 1) : i + 1]) for i, term in enumerate(terms)]
    values = [x.parts if i == 0 else _matrices(s, x.parts) for i, x in enumerate(xs)]
    try:
        made = contract(s, f"{','.join(named)}->{right}{marks[len(xs) - 1]}", values)
    except SpecError as e:
        raise Unsupported(str(e)) from None
    return Pairs(made)


def _matrices(s: Site, x: Operand) -> Operand:
    """Pairs as the matrices ``[..., 2, 2]`` that others are multiplied by."""
    if isinstance(x, Const):
        factors = x.data.detach().cpu().double().numpy()
        across = np.stack([-factors[..., 1], factors[..., 0]], -1)
        return s.const(np.stack([factors, across], -2).astype(np.float32), "matrices")
    rows = [reshape(s, row, (*x.shape[:-1], 1, 2), last=False) for row in (x, turned(s, x))]
    return s.emit("concat", *rows, inner=(*x.shape[:-1], 2, 2), axis=len(x.shape) - 1)


@complex_aten("matmul", "mm", "bmm")
def matmul(s: Site, a: Pairs, b: Pairs) -> Pairs:
    if min(len(a.shape), len(b.shape)) < 2:
        raise Unsupported("of vectors")
    return einsum(s, "...mk,...kn->...mn", [a, b])


@complex_aten("linear")
def linear(s: Site, x: Pairs, weight: Pairs, bias: Pairs | None = None) -> Pairs:
    made = einsum(s, "...k,nk->...n", [x, weight])
    return made if bias is None else Pairs(s.emit("add", made.parts, bias.parts))
