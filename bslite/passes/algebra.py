"""Normal forms: what a part of a model computes, however it is spelled.

An expression is a sum of terms: a coefficient times powers of *atoms*. An atom is the value the part starts
from, a constant array, or a function of an expression, such as its exponential or its mean along some axes.
Products are multiplied out, means are taken term by term, equal atoms are one. So ``x*0.5*(1 + tanh(u))``,
``0.5*x + 0.5*x*tanh(u)`` and ``x*sigmoid(2*u)`` are the same sum, and so are the mean of ``(x - mean(x))**2``
and ``mean(x**2) - mean(x)**2``.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

#: Powers of atoms, by the atom's number: the key of a term. Empty: a number alone.
Monomial = tuple[tuple[int, float], ...]
#: Numbers this near are the same: what a decimal or float32 constant may be off, two units of float32.
NEAR = 2.0**-22
#: Along all axes, for atoms that are the same everywhere.
EVERYWHERE = frozenset(range(16))
#: Terms of an expression at most; one that has more is none that a formula names.
LONGEST = 12


class TooLong(Exception):
    """The expression is none of those that normal forms are made for."""


@dataclass(frozen=True)
class Atom:
    """A factor: a function ``kind`` of ``of``, along ``axes`` if it reduces; or a value called ``name``."""

    kind: str
    of: "Expr | None" = None
    axes: tuple[int, ...] = ()
    name: str = ""
    same_along: frozenset[int] = frozenset()


class Expr:
    """A sum of terms in one `Space`; with numbers and others of that space it adds and multiplies."""

    __slots__ = ("space", "terms")

    def __init__(self, space: "Space", terms: Mapping[Monomial, float]) -> None:
        if len(terms) > LONGEST:
            raise TooLong
        self.space, self.terms = space, terms

    def __add__(self, other: "Expr | float") -> "Expr":
        terms = dict(self.terms)
        for key, number in self.space.expr(other).terms.items():
            before = terms.get(key, 0.0)
            if abs(before + number) <= NEAR * abs(number):
                terms.pop(key, None)
            else:
                terms[key] = before + number
        return Expr(self.space, terms)

    def __mul__(self, other: "Expr | float") -> "Expr":
        total = Expr(self.space, {})
        for theirs, factor in self.space.expr(other).terms.items():
            terms = {_product(ours, theirs): number * factor for ours, number in self.terms.items()}
            total = total + Expr(self.space, terms)
        return total

    def __pow__(self, power: float) -> "Expr":
        if power == 1:
            return self
        if power in (2, 3, 4):
            return self * self ** (power - 1)
        if not self.terms:
            raise TooLong
        (key, number), *more = self.terms.items()
        whole = power == int(power)
        if not more and not key and number > 0:
            return self.space.expr(number**power)
        if not more and (whole or (number > 0 and len(key) == 1 and key[0][1] == 1)):
            return Expr(self.space, {tuple((atom, p * power) for atom, p in key): number**power})
        logistic = self.space.logistic(self) if power == -1 else None
        return logistic or Expr(self.space, {((self.space.atom("group", self), power),): 1.0})

    def __sub__(self, other: "Expr | float") -> "Expr":
        return self + self.space.expr(other) * -1.0

    def __truediv__(self, other: "Expr | float") -> "Expr":
        return self * self.space.expr(other) ** -1

    __radd__, __rmul__ = __add__, __mul__

    def __rsub__(self, other: float) -> "Expr":
        return self * -1.0 + other

    def __rtruediv__(self, other: float) -> "Expr":
        return self**-1 * other

    def same(self, other: "Expr") -> bool:
        """Whether both are the same function."""
        return self.terms.keys() == other.terms.keys() and all(
            math.isclose(number, other.terms[key], rel_tol=NEAR) for key, number in self.terms.items()
        )

    @property
    def number(self) -> float:
        """The term without atoms."""
        return self.terms.get((), 0.0)

    def atoms(self) -> list[Atom]:
        """The atoms of its terms, each once."""
        return [self.space.all[i] for i in dict.fromkeys(i for key in self.terms for i, _ in key)]


def _product(a: Monomial, b: Monomial) -> Monomial:
    powers = dict(a)
    for atom, power in b:
        powers[atom] = powers.get(atom, 0.0) + power
    return tuple(sorted((atom, power) for atom, power in powers.items() if power))


class Space:
    """The atoms of the expressions over one value, ``x``, which is atom 0.

    ``count`` gives how many elements lie along some axes of x, or None if that is not fixed.
    """

    def __init__(self, count: Callable[[tuple[int, ...]], int | None]) -> None:
        self.all: list[Atom] = []
        self._count = count
        self.x = self._value(Atom("x"))

    def _value(self, atom: Atom) -> Expr:
        return Expr(self, {((self._number_of(atom), 1.0),): 1.0})

    def _number_of(self, atom: Atom) -> int:
        for i, known in enumerate(self.all):
            if (known.kind, known.axes, known.name) == (atom.kind, atom.axes, atom.name) and (
                known.of is atom.of
                or (known.of is not None and atom.of is not None and known.of.same(atom.of))
            ):
                return i
        self.all.append(atom)
        return len(self.all) - 1

    def atom(self, kind: str, of: Expr, axes: tuple[int, ...] = ()) -> int:
        """The number of the atom that is the function ``kind`` of ``of``."""
        along = EVERYWHERE
        for inner in of.atoms():
            along &= inner.same_along
        return self._number_of(Atom(kind, of, axes, "", along | frozenset(axes)))

    def expr(self, value: Expr | float) -> Expr:
        """The expression itself, or a number as one."""
        if isinstance(value, Expr):
            return value
        if not math.isfinite(value):
            raise TooLong
        return Expr(self, {(): float(value)} if value else {})

    def constant(self, name: str) -> Expr:
        """The constant array that the model calls ``name``."""
        return self._value(Atom("constant", name=name))

    def function(self, kind: str, of: Expr, axes: tuple[int, ...] = ()) -> Expr:
        """The function ``kind`` of ``of``, one of those that have no rules."""
        return Expr(self, {((self.atom(kind, of, axes), 1.0),): 1.0})

    def exp(self, e: Expr) -> Expr:
        """``e**x``."""
        return self.function("exp", e)

    def log(self, e: Expr) -> Expr:
        """The natural logarithm."""
        return self.function("log", e)

    def erf(self, e: Expr) -> Expr:
        """The error function, which is odd."""
        if len(e.terms) == 1 and min(e.terms.values()) < 0:
            return self.function("erf", e * -1.0) * -1.0
        return self.function("erf", e)

    def sigmoid(self, e: Expr) -> Expr:
        """``1 / (1 + exp(-e))``."""
        return self.function("sigmoid", e)

    def tanh(self, e: Expr) -> Expr:
        """The hyperbolic tangent, as a sigmoid."""
        return 2.0 * self.sigmoid(2.0 * e) - 1.0

    def logistic(self, e: Expr) -> Expr | None:
        """``1 / e`` as a sigmoid, if e is ``1 + exp(...)``."""
        kinds = e.atoms()
        if len(e.terms) != 2 or len(kinds) != 1 or kinds[0].kind != "exp" or kinds[0].of is None:
            return None
        return self.sigmoid(kinds[0].of * -1.0) if e.same(1.0 + self.exp(kinds[0].of)) else None

    def clamp(self, e: Expr, low: float, high: float) -> Expr:
        """``min(max(e, low), high)``, as a ramp from 0 to 1 where both bounds are finite."""
        if math.isinf(low) and math.isinf(high):
            return e
        if math.isinf(high):
            return e if low <= 0 and self._variance(e) else self.function("relu", e - low) + low
        if math.isinf(low):
            inner = [a.of for a in e.atoms() if a.kind == "relu" and a.of is not None]
            if (
                len(inner) == 1
                and e.number < high
                and e.same(self.clamp(inner[0] + e.number, e.number, math.inf))
            ):
                return self.clamp(inner[0] + e.number, e.number, high)
            return high - self.function("relu", high - e)
        if low >= high:
            raise TooLong
        return (high - low) * self.function("ramp", (e - low) / (high - low)) + low

    def _variance(self, e: Expr) -> bool:
        """Whether e is the variance of x, which a model keeps from falling below zero by rounding."""
        axes = {a.axes for a in e.atoms() if a.kind == "mean"}
        return any(e.same(self.mean(self.x**2, along) - self.mean(self.x, along) ** 2) for along in axes)

    def count(self, axes: tuple[int, ...]) -> Expr:
        """How many elements lie along ``axes``."""
        number = self._count(axes)
        if number is not None:
            return self.expr(float(number))
        return self._value(Atom("count", axes=axes, same_along=EVERYWHERE))

    def mean(self, e: Expr, axes: tuple[int, ...]) -> Expr:
        """The mean along ``axes``, term by term; what is the same along them comes out of it."""
        total = self.expr(0.0)
        for key, number in e.terms.items():
            outer = tuple((i, p) for i, p in key if self.all[i].same_along >= set(axes))
            inner = tuple(part for part in key if part not in outer)
            term = Expr(self, {outer: number})
            total = total + (term * self._mean_of(inner, axes) if inner else term)
        return total

    def _mean_of(self, key: Monomial, axes: tuple[int, ...]) -> Expr:
        atom = self.all[key[0][0]]
        if len(key) == 1 and key[0][1] == 1 and atom.kind == "mean" and atom.of is not None:
            return self.function("mean", atom.of, tuple(sorted({*atom.axes, *axes})))
        return self.function("mean", Expr(self, {key: 1.0}), axes)

    def sum(self, e: Expr, axes: tuple[int, ...]) -> Expr:
        """The sum along ``axes``."""
        return self.mean(e, axes) * self.count(axes)

    def amax(self, e: Expr, axes: tuple[int, ...]) -> Expr:
        """The largest along ``axes``."""
        return self.function("amax", e, axes)
