"""An einsum equation as permutations, reshapes, products and matmuls, for any frontend.

The frontend gives operands with a ``shape`` (sizes may be symbols) and a function that appends an op:
``emit(op, *operands, shape=its result's, **attrs)``. Operands are taken two at a time, from the left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from bslite.errors import SpecError

Emit = Callable[..., Any]


class Term(NamedTuple):
    """An operand and the label of each of its axes."""

    value: Any
    labels: tuple[str, ...]

    def size(self, label: str) -> Any:
        """Of the axis with that label."""
        return self.value.shape[self.labels.index(label)]


def parse(equation: str, ranks: Sequence[int]) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """Labels of each operand and of the result; an ellipsis' axes are "...1" (the last), "...2" and so on."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    parts = left.split(",")
    if len(parts) != len(ranks):
        raise SpecError(f"einsum {equation!r} has {len(parts)} operand(s), got {len(ranks)}")
    operands = [_labels(equation, part, rank) for part, rank in zip(parts, ranks, strict=True)]
    everything = [label for labels in operands for label in labels]
    dots = sorted({label for label in everything if label.startswith(".")}, key=lambda d: -int(d[3:]))
    if arrow:
        before, found, after = right.partition("...")
        result = (*before, *(dots if found else ()), *after)
    else:
        once = sorted(label for label in everything if label[0] != "." and everything.count(label) == 1)
        result = (*dots, *once)
    unknown = [label for label in result if label not in everything]
    if unknown or len(set(result)) != len(result):
        raise SpecError(f"einsum {equation!r}: the result names {list(result)}, each an operand's, once")
    return operands, tuple(result)


def _labels(equation: str, part: str, rank: int) -> tuple[str, ...]:
    before, dots, after = part.partition("...")
    names = before + after
    hidden = rank - len(names)
    if not all(c.isalpha() for c in names) or hidden < 0 or (hidden and not dots):
        raise SpecError(f"einsum {equation!r}: {part!r} does not name the axes of an operand of rank {rank}")
    return (*before, *(f"...{hidden - i}" for i in range(hidden)), *after)


def einsum(emit: Emit, equation: str, values: Sequence[Any]) -> Any:
    """The value of the equation."""
    labels, result = parse(equation, [len(v.shape) for v in values])
    terms = [_diagonal(emit, Term(v, names)) for v, names in zip(values, labels, strict=True)]
    sizes: dict[str, Any] = {}
    for term in terms:
        for label in term.labels:
            size, have = term.size(label), sizes.get(label, 1)
            if have != 1 and size not in (1, have):
                raise SpecError(f"einsum {equation!r}: axes {label!r} have sizes {have} and {size}")
            sizes[label] = have if size == 1 else size
    # An axis of 1 that meets a longer one broadcasts: as if it were not there.
    terms = [_without(emit, t, [x for x in t.labels if t.size(x) == 1 and sizes[x] != 1]) for t in terms]
    while len(terms) > 1:
        wanted = {*result, *(label for t in terms[2:] for label in t.labels)}
        terms = [_product(emit, terms[0], terms[1], wanted), *terms[2:]]
    return _arranged(emit, _summed(emit, terms[0], set(result)), result).value


def _product(emit: Emit, a: Term, b: Term, wanted: set[str]) -> Term:
    """Of two terms, summed over what they share and nobody else wants."""
    a = _summed(emit, a, wanted | set(b.labels))
    b = _summed(emit, b, wanted | set(a.labels))
    both = [x for x in a.labels if x in b.labels]
    batch, summed = [x for x in both if x in wanted], [x for x in both if x not in wanted]
    rows, columns = [x for x in a.labels if x not in both], [x for x in b.labels if x not in both]
    labels = (*batch, *rows, *columns)
    shape = (*(a.size(x) for x in (*batch, *rows)), *(b.size(x) for x in columns))
    if not summed:
        left = _reshaped(emit, _arranged(emit, a, (*batch, *rows)).value, (*shape[: len(both) + len(rows)],
                                                                         *[1] * len(columns)))  # fmt: skip
        thin = (*shape[: len(batch)], *[1] * len(rows), *shape[len(batch) + len(rows) :])
        right = _reshaped(emit, _arranged(emit, b, (*batch, *columns)).value, thin)
        return Term(emit("mul", left, right, shape=shape), labels)
    over = tuple(a.size(x) for x in batch)
    m, k, n = (
        math.prod(t.size(x) for x in names) for t, names in ((a, rows), (a, summed), (b, columns))
    )  # fmt: skip
    left = _reshaped(emit, _arranged(emit, a, (*batch, *rows, *summed)).value, (*over, m, k))
    right = _reshaped(emit, _arranged(emit, b, (*batch, *summed, *columns)).value, (*over, k, n))
    made = emit("matmul", left, right, shape=(*over, m, n))
    return Term(_reshaped(emit, made, shape), labels)


def _diagonal(emit: Emit, term: Term) -> Term:
    """A label that comes twice: the diagonal of its two axes, which is every (n + 1)-th of n * n elements."""
    twice = next((x for x in term.labels if term.labels.count(x) > 1), None)
    if twice is None:
        return term
    i = term.labels.index(twice)
    j = term.labels.index(twice, i + 1)
    order = [a for a in range(len(term.labels)) if a not in (i, j)] + [i, j]
    value = _permuted(emit, term.value, order)
    *rest, n, other = value.shape
    if n != other:
        raise SpecError(f"einsum: axes {twice!r} of one operand have sizes {n} and {other}")
    value = _reshaped(emit, value, (*rest, n * n))
    value = emit("slice", value, shape=(*rest, n), axis=len(rest), start=0, stop=None, step=n + 1)
    return _diagonal(emit, Term(value, (*(term.labels[a] for a in order[:-2]), twice)))


def _summed(emit: Emit, term: Term, wanted: set[str]) -> Term:
    """Without the axes nobody wants."""
    axes = [a for a, x in enumerate(term.labels) if x not in wanted]
    if not axes:
        return term
    kept = [a for a in range(len(term.labels)) if a not in axes]
    shape = tuple(term.value.shape[a] for a in kept)
    value = emit("sum", term.value, shape=shape, axes=axes, keepdim=False)
    return Term(value, tuple(term.labels[a] for a in kept))


def _without(emit: Emit, term: Term, labels: Sequence[str]) -> Term:
    """Without these axes, of size 1."""
    kept = [a for a, x in enumerate(term.labels) if x not in labels]
    shape = tuple(term.value.shape[a] for a in kept)
    return Term(_reshaped(emit, term.value, shape), tuple(term.labels[a] for a in kept))


def _arranged(emit: Emit, term: Term, labels: Sequence[str]) -> Term:
    """With its axes in this order."""
    return Term(_permuted(emit, term.value, [term.labels.index(x) for x in labels]), tuple(labels))


def _permuted(emit: Emit, value: Any, order: list[int]) -> Any:
    if order == sorted(order):
        return value
    return emit("permute", value, shape=tuple(value.shape[a] for a in order), order=order)


def _reshaped(emit: Emit, value: Any, shape: tuple[Any, ...]) -> Any:
    if tuple(value.shape) == shape:
        return value
    return emit("reshape", value, shape=shape)
