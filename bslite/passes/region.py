"""The part of a model that depends on one value and on constants, each of its values in normal form."""

import heapq
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bslite.ops.reduce import reduced_axes
from bslite.passes.algebra import Expr, Space, TooLong
from bslite.passes.draft import Draft
from bslite.spec import Node

LARGEST = 40  # nodes of a region: formulas of at most half as many are known

UNARY: Mapping[str, Callable[[Space, Expr, Node], Expr]] = {
    "neg": lambda s, e, n: e * -1.0,
    "sqrt": lambda s, e, n: e**0.5,
    "rsqrt": lambda s, e, n: e**-0.5,
    "reciprocal": lambda s, e, n: e**-1,
    "exp": lambda s, e, n: s.exp(e),
    "log": lambda s, e, n: s.log(e),
    "log1p": lambda s, e, n: s.log(e + 1.0),
    "erf": lambda s, e, n: s.erf(e),
    "sigmoid": lambda s, e, n: s.sigmoid(e),
    "tanh": lambda s, e, n: s.tanh(e),
    "softplus": lambda s, e, n: s.log(s.exp(e * n.attrs["beta"]) + 1.0) * (1 / n.attrs["beta"]),
    "relu": lambda s, e, n: s.clamp(e, 0.0, math.inf),
    "relu6": lambda s, e, n: s.clamp(e, 0.0, 6.0),
    "clamp": lambda s, e, n: s.clamp(e, n.attrs["low"], n.attrs["high"]),
    "hardsigmoid": lambda s, e, n: s.clamp(e * n.attrs["alpha"] + n.attrs["beta"], 0.0, 1.0),
}  # fmt: skip
BINARY: Mapping[str, Callable[[Expr, Expr], Expr]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
}
#: With a number as their second operand.
BY_NUMBER: Mapping[str, Callable[[Space, Expr, float], Expr]] = {
    "pow": lambda s, e, c: e**c,
    "maximum": lambda s, e, c: s.clamp(e, c, math.inf),
    "minimum": lambda s, e, c: s.clamp(e, -math.inf, c),
}
REDUCING: Mapping[str, Callable[[Space, Expr, tuple[int, ...]], Expr]] = {
    "mean": lambda s, e, axes: s.mean(e, axes),
    "sum": lambda s, e, axes: s.sum(e, axes),
    "amax": lambda s, e, axes: s.amax(e, axes),
    "sum_square": lambda s, e, axes: s.sum(e**2, axes),
    "l2_norm": lambda s, e, axes: s.sum(e**2, axes) ** 0.5,
    "logsumexp": lambda s, e, axes: s.log(s.sum(s.exp(e), axes)),
    "var": lambda s, e, axes: s.mean(e**2, axes) - s.mean(e, axes) ** 2,
    "std": lambda s, e, axes: (s.mean(e**2, axes) - s.mean(e, axes) ** 2) ** 0.5,
}
KNOWN = {*UNARY, *BINARY, *BY_NUMBER, *REDUCING, "expand", "reshape"}


@dataclass(frozen=True)
class Value:
    """What a value is; ``lacks`` are the reduced axes that its shape leaves out."""

    expr: Expr
    lacks: tuple[int, ...] = ()


class Region:
    """The values that depend on ``base`` and constants alone, by name, in topological order."""

    def __init__(self, draft: Draft, base: str) -> None:
        self.draft, self.base = draft, base
        self.rank = len(draft.shape(base))
        self.space = Space(self._count)
        self.values: dict[str, Value] = {}
        self._grow()

    def _count(self, axes: tuple[int, ...]) -> int | None:
        sizes = self.draft.fixed(self.base, axes)
        return None if sizes is None else math.prod(sizes)

    def _grow(self) -> None:
        draft, known = self.draft, {self.base: Value(self.space.x)}
        waiting = [(draft.place[name], name) for name in draft.reading[self.base]]
        seen = {name for _, name in waiting}
        heapq.heapify(waiting)
        while waiting and len(self.values) < LARGEST:
            _, name = heapq.heappop(waiting)
            node = draft.nodes[name]
            if node.op not in KNOWN:
                continue
            try:
                value = self._value(node, known)
            except (TooLong, OverflowError, ZeroDivisionError):
                continue
            if value is None:
                continue
            self.values[name] = known[name] = value
            for reader in draft.reading.get(name, ()):
                if reader not in seen:
                    seen.add(reader)
                    heapq.heappush(waiting, (draft.place[reader], reader))

    def _operand(self, name: str, known: Mapping[str, Value]) -> Value | None:
        if name in known:
            return known[name]
        value = self.draft.constant(name)
        if value is None or value.ndim > self.rank:
            return None
        if value.size == 1:
            number = float(value.reshape(()))
            return Value(self.space.expr(number)) if math.isfinite(number) else None
        return Value(self.space.constant(name))

    def _value(self, node: Node, known: Mapping[str, Value]) -> Value | None:
        """What the node makes, or None if that has no normal form here."""
        if node.op in BY_NUMBER:
            return self._by_number(node, known)
        operands = [self._operand(name, known) for name in node.inputs]
        first = operands[0]
        if first is None:
            return None
        if node.op in UNARY:
            return Value(UNARY[node.op](self.space, first.expr, node), first.lacks)
        if node.op in REDUCING:
            return self._reduced(node, first)
        if node.op in ("expand", "reshape"):
            return self._moved(node, first)
        second = operands[1]
        if second is None:
            return None
        numbers = [x not in known and self.draft.number(x) is not None for x in node.inputs]
        if first.lacks != second.lacks and not any(numbers):
            return None
        lacks = first.lacks or second.lacks
        return Value(BINARY[node.op](first.expr, second.expr), lacks)

    def _by_number(self, node: Node, known: Mapping[str, Value]) -> Value | None:
        x, other = node.inputs
        number = self.draft.number(other)
        if number is None and node.op != "pow":
            x, number = other, self.draft.number(x)
        if number is None or x not in known:
            return None
        return Value(BY_NUMBER[node.op](self.space, known[x].expr, number), known[x].lacks)

    def _reduced(self, node: Node, x: Value) -> Value | None:
        if x.lacks or not self.draft.alike(node.inputs[0], self.base):
            return None
        if node.op in ("var", "std") and node.attrs["correction"]:
            return None
        axes = reduced_axes(node.op, node.attrs["axes"], self.rank)
        return Value(REDUCING[node.op](self.space, x.expr, axes), () if node.attrs["keepdim"] else axes)

    def _moved(self, node: Node, x: Value) -> Value | None:
        """A value that is only repeated along axes where it is the same, or gets its reduced axes back."""
        source, draft = node.inputs[0], self.draft
        if node.op == "reshape":
            full = all(
                tuple(1 if i in x.lacks else n for i, n in enumerate(shapes[self.base]))
                == shapes[node.name]
                for shapes in draft.shapes
            )  # fmt: skip
            return Value(x.expr) if (x.lacks and full) or draft.alike(source, node.name) else None
        return Value(x.expr) if not x.lacks and draft.alike(node.name, self.base) else None
