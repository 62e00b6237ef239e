"""Values as expressions: how a vjp says in nodes what the gradient of its op is.

``y * (1 - y)`` of a `Value` y adds a subtraction and a product to the graph that y belongs to.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy.typing as npt

Shape = tuple[int, ...]


class Tape(Protocol):
    """A graph that nodes are added to."""

    def put(
        self, op: str, inputs: Sequence[Value], params: Mapping[str, Param] | None = None, **attrs: Any
    ) -> Value:
        """A node of ``op``; ``params`` maps its roles to keys of the graph's parameters. Nodes that make the
        same where one of them is a value. UnsupportedError if the op takes no values there.
        """

    def constant(self, value: npt.ArrayLike, dtype: npt.DTypeLike | None = None) -> Value:
        """A stored value; numbers of floating point in float32."""

    def stored(self, key: str) -> Value:
        """The value of one of the graph's parameters."""


@dataclass(frozen=True, eq=False)
class Value:
    """A value of a graph, by name. Operators with numbers and other values add nodes."""

    tape: Tape
    name: str
    shape: Shape
    dtype: str

    def op(self, name: str, *others: Value | float, **attrs: Any) -> Value:
        """A node of the op ``name``, whose first input this is."""
        return self.tape.put(name, (self, *map(self._value, others)), **attrs)

    def _value(self, x: Value | float) -> Value:
        return x if isinstance(x, Value) else self.tape.constant(x, self.dtype)

    def __add__(self, other: Value | float) -> Value:
        return self.op("add", other)

    def __radd__(self, other: float) -> Value:
        return self._value(other).op("add", self)

    def __sub__(self, other: Value | float) -> Value:
        return self.op("sub", other)

    def __rsub__(self, other: float) -> Value:
        return self._value(other).op("sub", self)

    def __mul__(self, other: Value | float) -> Value:
        return self.op("mul", other)

    def __rmul__(self, other: float) -> Value:
        return self._value(other).op("mul", self)

    def __truediv__(self, other: Value | float) -> Value:
        return self.op("div", other)

    def __rtruediv__(self, other: float) -> Value:
        return self._value(other).op("div", self)

    def __neg__(self) -> Value:
        return self.op("neg")

    def __gt__(self, other: Value | float) -> Value:
        return self.op("greater", other)

    def __ge__(self, other: Value | float) -> Value:
        return self.op("greater_equal", other)

    def __lt__(self, other: Value | float) -> Value:
        return self.op("less", other)

    def __le__(self, other: Value | float) -> Value:
        return self.op("less_equal", other)

    def __and__(self, other: Value) -> Value:
        return self.op("and", other)

    def __or__(self, other: Value) -> Value:
        return self.op("or", other)

    def where(self, yes: Value | float, no: Value | float) -> Value:
        """Of a condition: ``yes`` where it holds, ``no`` elsewhere; one of the two is a value."""
        like = yes if isinstance(yes, Value) else no
        assert isinstance(like, Value)
        return self.op("where", like._value(yes), like._value(no))

    def reshape(self, *shape: int) -> Value:
        """The same elements in another shape."""
        return self if shape == self.shape else self.op("reshape", shape=shape)

    def permute(self, *order: int) -> Value:
        """Axes in another order."""
        return self if order == tuple(range(len(order))) else self.op("permute", order=order)

    def transposed(self) -> Value:
        """The last two axes exchanged."""
        rank = len(self.shape)
        return self.permute(*range(rank - 2), rank - 1, rank - 2)

    def expand(self, shape: Shape) -> Value:
        """Repeated along axes of size 1, and along new ones in front."""
        return self if shape == self.shape else self.op("expand", shape=shape)

    def sum(self, *axes: int, keepdim: bool = False) -> Value:
        """The sum over some axes."""
        return self.op("sum", axes=axes, keepdim=keepdim) if axes else self

    def mean(self, *axes: int, keepdim: bool = False) -> Value:
        """The mean over some axes."""
        return self.op("mean", axes=axes, keepdim=keepdim)

    def sum_to(self, shape: Shape) -> Value:
        """What was broadcast from ``shape`` added up there."""
        added = len(self.shape) - len(shape)
        axes = [*range(added), *(added + i for i, n in enumerate(shape) if n == 1 != self.shape[added + i])]
        return self.sum(*axes).reshape(*shape) if axes else self.reshape(*shape)

    def matmul(self, other: Value) -> Value:
        """The matrix product."""
        return self.op("matmul", other)

    def sliced(self, axis: int, start: int, stop: int) -> Value:
        """Elements ``start`` to ``stop`` of an axis."""
        whole = (start, stop) == (0, self.shape[axis])
        return self if whole else self.op("slice", axis=axis, start=start, stop=stop)

    def padded(self, before: Sequence[int], after: Sequence[int], value: float = 0.0) -> Value:
        """With so many more elements before and after each axis; negative: so many fewer."""
        pads = (*before, *after)
        return self.op("pad", pads=pads, value=value) if any(pads) else self

    @property
    def size(self) -> int:
        """The number of its elements."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Applied:
    """A node whose gradient is asked for: what it reads, what it makes, its parameters by role; what it kept
    for its gradient (`Op.keep`); and the places of inputs by which a gradient is ``wanted``.
    """

    inputs: tuple[Value, ...]
    output: Value
    params: Mapping[str, Param]
    attrs: Mapping[str, Any]
    kept: Value | None = None
    wanted: Collection[int] = ()

    def param(self, role: str) -> Value:
        """A parameter's value."""
        found = self.params[role]
        return found if isinstance(found, Value) else self.output.tape.stored(found)


@dataclass(frozen=True)
class Piece:
    """The gradient of an input from ``start`` along ``axis``, of which it has ``size``; the rest is zero."""

    value: Value
    axis: int
    start: int
    size: int

    @property
    def stop(self) -> int:
        """Where it ends."""
        return self.start + self.value.shape[self.axis]

    def padded(self) -> Value:
        """The gradient of all of the input."""
        before, after = ([0] * len(self.value.shape) for _ in range(2))
        before[self.axis], after[self.axis] = self.start, self.size - self.stop
        return self.value.padded(before, after)


#: A parameter of a node: a key of the graph's parameters, or a value.
Param = Value | str
#: A gradient of a node: by the place of an input or the role of a parameter. Others are zero.
Gradients = Mapping["int | str", "Value | Piece"]
