"""An einsum equation as permutations, reshapes, products and matmuls; operands are paired from the left."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from bslite.errors import SpecError
from bslite.frontends.common.moves import permute, reshape
from bslite.frontends.common.site import Site


class Term(NamedTuple):
    """An operand and the label of each of its axes."""

    value: Any
    labels: tuple[str, ...]

    def size(self, label: str) -> Any:
        """The size of the axis with that label."""
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


def einsum(s: Site, equation: str, values: Sequence[Any]) -> Any:
    """The value of the equation."""
    labels, result = parse(equation, [len(v.shape) for v in values])
    terms = [_diagonal(s, Term(v, names)) for v, names in zip(values, labels, strict=True)]
    sizes: dict[str, Any] = {}
    for term in terms:
        for label in term.labels:
            size, have = term.size(label), sizes.get(label, 1)
            if have != 1 and size not in (1, have):
                raise SpecError(f"einsum {equation!r}: axes {label!r} have sizes {have} and {size}")
            sizes[label] = have if size == 1 else size
    # An axis of 1 that meets a longer one broadcasts: as if it were not there.
    terms = [_without(s, t, [x for x in t.labels if t.size(x) == 1 and sizes[x] != 1]) for t in terms]
    while len(terms) > 1:
        wanted = {*result, *(label for t in terms[2:] for label in t.labels)}
        terms = [_product(s, terms[0], terms[1], wanted), *terms[2:]]
    return _arranged(s, _summed(s, terms[0], set(result)), result).value


def _product(s: Site, a: Term, b: Term, wanted: set[str]) -> Term:
    """The product of two terms, summed over the labels that both have and that are not ``wanted``."""
    a = _summed(s, a, wanted | set(b.labels))
    b = _summed(s, b, wanted | set(a.labels))
    both = [x for x in a.labels if x in b.labels]
    batch, summed = [x for x in both if x in wanted], [x for x in both if x not in wanted]
    rows, columns = [x for x in a.labels if x not in both], [x for x in b.labels if x not in both]
    labels = (*batch, *rows, *columns)
    shape = (*(a.size(x) for x in (*batch, *rows)), *(b.size(x) for x in columns))
    if not summed:
        wide = (*shape[: len(both) + len(rows)], *[1] * len(columns))
        left = _reshaped(s, _arranged(s, a, (*batch, *rows)).value, wide)
        thin = (*shape[: len(batch)], *[1] * len(rows), *shape[len(batch) + len(rows) :])
        right = _reshaped(s, _arranged(s, b, (*batch, *columns)).value, thin)
        return Term(s.emit("mul", left, right, inner=shape), labels)
    over = tuple(a.size(x) for x in batch)
    m, k, n = (
        math.prod(t.size(x) for x in names) for t, names in ((a, rows), (a, summed), (b, columns))
    )  # fmt: skip
    left = _reshaped(s, _arranged(s, a, (*batch, *rows, *summed)).value, (*over, m, k))
    right = _reshaped(s, _arranged(s, b, (*batch, *summed, *columns)).value, (*over, k, n))
    made = s.emit("matmul", left, right, inner=(*over, m, n))
    return Term(_reshaped(s, made, shape), labels)


def _diagonal(s: Site, term: Term) -> Term:
    """The diagonal of two axes with one label: every (n + 1)-th of their n * n elements."""
    twice = next((x for x in term.labels if term.labels.count(x) > 1), None)
    if twice is None:
        return term
    i = term.labels.index(twice)
    j = term.labels.index(twice, i + 1)
    order = [a for a in range(len(term.labels)) if a not in (i, j)] + [i, j]
    value = permute(s, term.value, order, last=False)
    *rest, n, other = value.shape
    if n != other:
        raise SpecError(f"einsum: axes {twice!r} of one operand have sizes {n} and {other}")
    value = _reshaped(s, value, (*rest, n * n))
    value = s.emit("slice", value, inner=(*rest, n), axis=len(rest), start=0, stop=None, step=n + 1)
    return _diagonal(s, Term(value, (*(term.labels[a] for a in order[:-2]), twice)))


def _summed(s: Site, term: Term, wanted: set[str]) -> Term:
    """The term summed over the axes whose labels are not wanted."""
    axes = [a for a, x in enumerate(term.labels) if x not in wanted]
    if not axes:
        return term
    kept = [a for a in range(len(term.labels)) if a not in axes]
    shape = tuple(term.value.shape[a] for a in kept)
    value = s.emit("sum", term.value, inner=shape, axes=axes, keepdim=False)
    return Term(value, tuple(term.labels[a] for a in kept))


def _without(s: Site, term: Term, labels: Sequence[str]) -> Term:
    """The term without these axes, which are of size 1."""
    kept = [a for a, x in enumerate(term.labels) if x not in labels]
    shape = tuple(term.value.shape[a] for a in kept)
    return Term(_reshaped(s, term.value, shape), tuple(term.labels[a] for a in kept))


def _arranged(s: Site, term: Term, labels: Sequence[str]) -> Term:
    """The term with its axes in this order."""
    return Term(permute(s, term.value, [term.labels.index(x) for x in labels], last=False), tuple(labels))


def _reshaped(s: Site, value: Any, shape: tuple[Any, ...]) -> Any:
    return reshape(s, value, shape, last=False)
