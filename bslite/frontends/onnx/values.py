"""Operands of ONNX builders: values of the model, constants, and sizes.

**Probes** follow free sizes (the batch, say). Every shape, and every value computed from shapes, is worked
out for a few sets of concrete sizes side by side. A size that is equal in all probes is fixed; two sizes that
agree in all probes are one size. This needs no algebra, whatever an exporter computes from shapes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bslite.frontends.common.unsupported import Unsupported, Varies
from bslite.frontends.common.values import Const as AnyConst
from bslite.frontends.common.values import Dims
from bslite.frontends.common.values import Value as AnyValue
from bslite.ops import Shape
from bslite.spec import Array


class Varying(tuple[int, ...]):
    """A free size, or a size computed from free ones: one number per probe. Products are Varying as well."""

    def __mul__(self, other: Any) -> Any:
        return product([self, other])

    __rmul__ = __mul__


#: A size: an integer, or one per probe where they differ.
Dim = int | tuple[int, ...]
#: Multiples of the example that the free sizes take in the probes after the first, by turns,
FACTORS = ((2, 3, 5, 7, 11), (3, 7, 2, 11, 5), (11, 2, 7, 5, 3), (64, 128, 32, 16, 256))
#: and how much more: so that a size that is rounded differs from itself.
BEYOND = (1, 0, 3, 5)
#: Twelfths of the largest size that they are instead, where there is one.
SHARES = (12, 7, 5, 11)


class NeedsValue(Unsupported):
    """Something that must be known when the model is made is computed from the graph inputs ``roots``."""

    def __init__(self, message: str, roots: frozenset[str]) -> None:
        super().__init__(message)
        self.roots = roots


@dataclass(frozen=True, eq=False)
class Value(AnyValue):
    """A value of the model being built: its shape in every probe, and the graph inputs it depends on."""

    shapes: tuple[Shape, ...] = ()
    roots: frozenset[str] = frozenset()

    @classmethod
    def probed(cls, name: str, shapes: tuple[Shape, ...], dtype: str, roots: frozenset[str]) -> "Value":
        """A value of these shapes, one per probe, all of one rank."""
        return cls(name, merged(shapes), dtype, shapes, roots)


class Const(AnyConst[Array]):
    """An array known now, of any NumPy dtype: an initialiser, or computed from them."""

    @property
    def shapes(self) -> tuple[Shape, ...]:
        return (self.data.shape,)

    @property
    def dtype(self) -> str:
        return self.data.dtype.name


@dataclass(frozen=True, eq=False)
class Sizes:
    """An array that depends on the free sizes only: one array per probe."""

    arrays: tuple[Array, ...]

    @property
    def shape(self) -> Dims:
        return merged([a.shape for a in self.arrays])

    @property
    def shapes(self) -> tuple[Shape, ...]:
        return tuple(a.shape for a in self.arrays)

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def dtype(self) -> str:
        return self.arrays[0].dtype.name


Operand = Value | Const | Sizes
Known = Const | Sizes


def merged(shapes: Sequence[Shape]) -> Dims:
    """One shape out of one per probe. Varies if even the ranks differ."""
    if len({len(s) for s in shapes}) > 1:
        raise Varies(f"the rank depends on free sizes: {', '.join(str(list(s)) for s in shapes)}")
    return tuple(merge(sizes) for sizes in zip(*shapes, strict=True))


def merge(sizes: Sequence[int]) -> Dim:
    """One size out of one per probe."""
    return sizes[0] if len(set(sizes)) == 1 else Varying(sizes)


def at(dim: Dim, probe: int) -> int:
    """A size in one probe."""
    return dim if isinstance(dim, int) else dim[probe]


def product(dims: Sequence[Dim]) -> Dim:
    """The product of sizes."""
    count = max((len(d) for d in dims if isinstance(d, tuple)), default=1)
    return merge([math.prod(at(d, i) for d in dims) for i in range(count)])


def fixed(dim: Any, what: str) -> int:
    """A size that must not depend on free ones; Varies if it does."""
    if isinstance(dim, tuple):
        raise Varies(f"{what} depends on free sizes")
    return int(dim)


def probes(
    example: Mapping[str, int], step: int = 1, stepless: str = "", most: int = 0
) -> list[dict[str, int]]:
    """Sizes by name for each probe, the example first. One probe if nothing is free.

    The sizes of an example that is a multiple of ``step`` are multiples of it as well, but for ``stepless``;
    they are at most ``most`` if that is not 0.
    """
    if not example:
        return [{}]
    made = [dict(example)]
    for row, beyond, share in zip(FACTORS, BEYOND, SHARES, strict=True):
        sizes = {}
        for i, (name, size) in enumerate(example.items()):
            turn, place = divmod(i, len(row))
            more = beyond * (1 if name == stepless else step)
            sizes[name] = size * (row[place] + 13 * turn) + more
            if most and name != stepless:
                sizes[name] = max(1, most * share // 12 - (i + 1) * step + step)
        made.append(sizes)
    return made
