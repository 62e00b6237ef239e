"""Functions that models write out, each declared by its formula and the op that computes it.

A formula is written once, in any spelling: `bslite.passes.algebra` makes all spellings alike.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bslite.passes.algebra import Atom, Expr, Space, TooLong

GELU = math.sqrt(2 / math.pi)


@dataclass(frozen=True)
class Captures:
    """What of an expression a formula leaves open: numbers, axes, constant arrays by name."""

    eps: float = 0.0  # added to what is raised to a power
    slope: float = 1.0  # of the argument of a sigmoid or ramp
    offset: float = 0.0
    axes: tuple[int, ...] = ()
    weight: str = ""  # times what is made of x
    bias: str = ""  # a term alone


def captures(e: Expr) -> Captures | None:
    """What the expression has where formulas leave something open; None where it has several of one kind."""
    found: dict[str, Any] = {}
    atoms = list(e.atoms())
    for atom in atoms:  # grows while it is walked
        atoms += [a for a in (atom.of.atoms() if atom.of else []) if a not in atoms]
    axes = {a.axes for a in atoms if a.axes}
    sums = [a.of for a in e.atoms() if a.kind == "group" and a.of is not None]
    if len(axes) > 1 or len(sums) > 1:
        return None
    if axes:
        found["axes"] = axes.pop()
    if sums:
        found["eps"] = sums[0].number
    for atom in e.atoms():
        if atom.kind in ("sigmoid", "ramp") and atom.of is not None:
            x = next(iter(e.space.x.terms))
            found |= {"slope": atom.of.terms.get(x, 0.0), "offset": atom.of.number}
    for key in e.terms:
        names = [e.space.all[i].name for i, power in key if power == 1 and e.space.all[i].kind == "constant"]
        if len(names) == 1:
            found["bias" if len(key) == 1 else "weight"] = names[0]
    return Captures(**found)


@dataclass(frozen=True)
class Formula:
    """``written(space, x, captures)`` is what the op computes; its terms have the functions ``kinds``."""

    op: str
    kinds: frozenset[str]
    written: Callable[[Space, Expr, Captures], Expr]
    attrs: Callable[[Captures], Mapping[str, Any]] = lambda c: {}


def kinds(atoms: list[Atom]) -> frozenset[str]:
    """The functions among the atoms, by which formulas are looked up."""
    return frozenset(a.kind for a in atoms if a.kind not in ("x", "constant", "count"))


def _gelu(s: Space, x: Expr, c: Captures) -> Expr:
    return 0.5 * x * (1.0 + s.erf(x / math.sqrt(2)))


def _gelu_tanh(s: Space, x: Expr, c: Captures) -> Expr:
    return 0.5 * x * (1.0 + s.tanh(GELU * (x + 0.044715 * x**3)))


def _silu(s: Space, x: Expr, c: Captures) -> Expr:
    return x * s.sigmoid(c.slope * x)


def _softplus(s: Space, x: Expr, c: Captures) -> Expr:
    return s.log(1.0 + s.exp(x))


def _mish(s: Space, x: Expr, c: Captures) -> Expr:
    return x * s.tanh(_softplus(s, x, c))


def _hardsigmoid(s: Space, x: Expr, c: Captures) -> Expr:
    return s.clamp(c.slope * x + c.offset, 0.0, 1.0)


def _hardswish(s: Space, x: Expr, c: Captures) -> Expr:
    return x * s.clamp(x + 3.0, 0.0, 6.0) / 6.0


def _affine(s: Space, e: Expr, c: Captures) -> Expr:
    scaled = e * s.constant(c.weight) if c.weight else e
    return scaled + s.constant(c.bias) if c.bias else scaled


def _layer_norm(s: Space, x: Expr, c: Captures) -> Expr:
    centred = x - s.mean(x, c.axes)
    return _affine(s, centred / (s.mean(centred**2, c.axes) + c.eps) ** 0.5, c)


def _rms_norm(s: Space, x: Expr, c: Captures) -> Expr:
    return _affine(s, x / (s.mean(x**2, c.axes) + c.eps) ** 0.5, c)


def _softmax(s: Space, x: Expr, c: Captures) -> Expr:
    raised = s.exp(x - s.amax(x, c.axes))
    return raised / s.sum(raised, c.axes)


def _softmax_unshifted(s: Space, x: Expr, c: Captures) -> Expr:
    return s.exp(x) / s.sum(s.exp(x), c.axes)


def _log_softmax(s: Space, x: Expr, c: Captures) -> Expr:
    shifted = x - s.amax(x, c.axes)
    return shifted - s.log(s.sum(s.exp(shifted), c.axes))


def _log_softmax_unshifted(s: Space, x: Expr, c: Captures) -> Expr:
    return x - s.log(s.sum(s.exp(x), c.axes))


def _normalize(s: Space, x: Expr, c: Captures) -> Expr:
    return x / s.clamp(s.sum(x**2, c.axes) ** 0.5, c.eps, math.inf)


def _normalize_squared(s: Space, x: Expr, c: Captures) -> Expr:
    return x / s.clamp(s.sum(x**2, c.axes), c.eps, math.inf) ** 0.5


def _axis(c: Captures) -> Mapping[str, Any]:
    return {"axis": c.axes[0]}


def _norm(c: Captures) -> Mapping[str, Any]:
    return {"eps": c.eps}


FORMULAS = (
    Formula("gelu", frozenset({"erf"}), _gelu),
    Formula("gelu", frozenset({"sigmoid"}), _gelu_tanh, lambda c: {"approximate": "tanh"}),
    Formula("silu", frozenset({"sigmoid"}), _silu, lambda c: {"beta": c.slope}),
    Formula("mish", frozenset({"sigmoid"}), _mish),
    Formula("softplus", frozenset({"log"}), _softplus),
    Formula("hardsigmoid", frozenset({"ramp"}), _hardsigmoid, lambda c: {"alpha": c.slope, "beta": c.offset}),
    Formula("hardswish", frozenset({"ramp"}), _hardswish),
    Formula("layer_norm", frozenset({"mean", "group"}), _layer_norm, _norm),
    Formula("rms_norm", frozenset({"group"}), _rms_norm, _norm),
    Formula("softmax", frozenset({"exp", "mean"}), _softmax, _axis),
    Formula("softmax", frozenset({"exp", "mean"}), _softmax_unshifted, _axis),
    Formula("log_softmax", frozenset({"amax", "log"}), _log_softmax, _axis),
    Formula("log_softmax", frozenset({"log"}), _log_softmax_unshifted, _axis),
    Formula("normalize", frozenset({"group"}), _normalize, lambda c: {**_axis(c), "eps": c.eps}),
    Formula(
        "normalize", frozenset({"group"}), _normalize_squared, lambda c: {**_axis(c), "eps": math.sqrt(c.eps)}
    ),
)


def formula_of(e: Expr) -> tuple[Formula, Captures] | None:
    """The formula that the expression is, with what it leaves open; None if it is none."""
    wanted = kinds(e.atoms())
    found = None
    for formula in FORMULAS:
        if formula.kinds != wanted:
            continue
        found = found or captures(e)
        if found is None:
            return None
        if formula.op in ALONG_AXES and not found.axes:
            continue
        try:
            written = formula.written(e.space, e.space.x, found)
        except TooLong:
            continue
        if e.same(written):
            return formula, found
    return None


#: The ops that reduce, and those that do so along one axis.
ALONG_ONE = ("softmax", "log_softmax", "normalize")
ALONG_AXES = (*ALONG_ONE, "layer_norm", "rms_norm")
