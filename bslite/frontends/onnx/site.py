"""One node of an ONNX graph at its place in the model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bslite.errors import SpecError
from bslite.frontends.common.site import Site as AnySite
from bslite.frontends.common.unsupported import Unsupported, Varies
from bslite.frontends.common.values import Dims
from bslite.frontends.onnx.store import Store
from bslite.frontends.onnx.values import Const, Dim, Known, NeedsValue, Operand, Sizes, Value, merge
from bslite.spec import Array


@dataclass(frozen=True)
class Site(AnySite):
    """What a builder is given. ``name``: of the node's layer; ``used``: which of its outputs are read."""

    store: Store
    name: str
    op_type: str
    opset: int
    used: Sequence[bool]

    def emit(self, op: str, *inputs: Operand, inner: Dims | None = None, **kwargs: Any) -> Any:
        """As for all frontends; of ``inner`` counts only whether it is given, for shapes are inferred."""
        name = self.name if inner is None else f"{self.name}.{op}"
        return self.store.emit(op, name, inputs, **kwargs)

    def inner(self, op: str, *inputs: Operand, **kwargs: Any) -> Any:
        """Append a layer on the way to the node's output."""
        return self.emit(op, *inputs, inner=(), **kwargs)

    def const(self, array: Any, what: str = "value") -> Const:
        """An array computed here."""
        return Const(np.asarray(array), f"{self.name}.{what}")

    def derived(self, const: Const, what: str, key: Any, make: Callable[[Array], Array]) -> Const:
        """What ``make`` makes of a known array, under ``key``: once per file, of an array that it holds."""
        return self.const(self.store.memo.derived(const.data, key, make), what)

    def compute(
        self, function: Callable[..., Any], *operands: Operand, each: bool = False, view: bool = False
    ) -> Known:
        """``function`` of known arrays, probe by probe. Errors in it are the model's.

        ``each``: it works element by element, so what repeats itself is computed once. ``view``: it computes
        nothing, its result lies in the memory of its operands.
        """
        known = [self.known(x, "its input") for x in operands]
        return self.store.compute(function, known, f"{self.name}.value", each, view)

    def known(self, operand: Operand, what: str) -> Known:
        """``operand``, or NeedsValue if it is computed from inputs of the model."""
        if isinstance(operand, Value):
            raise NeedsValue(
                f"{what} is computed from the input {', '.join(sorted(operand.roots))}; "
                "bslite needs it when the model is made",
                operand.roots,
            )
        return operand

    def array(self, operand: Operand, what: str) -> Array:
        """A known array that does not depend on free sizes."""
        known = self.known(operand, what)
        if isinstance(known, Sizes):
            raise Varies(f"{what} depends on free sizes")
        return known.data

    def dims(self, operand: Operand | tuple[int, ...], what: str) -> list[Dim]:
        """A known list of integers; those that depend on free sizes with a number per probe.

        It is an input, or in older opsets an attribute.
        """
        if isinstance(operand, tuple):
            return list(operand)
        known = self.known(operand, what)
        arrays = known.arrays if isinstance(known, Sizes) else (known.data,)
        for a in arrays:
            if a.dtype.kind not in "iu" or a.ndim > 1:
                raise SpecError(f"{what} is {a.dtype} {list(a.shape)}, expected a list of integers")
        if len({a.size for a in arrays}) > 1:
            raise Varies(f"the length of {what} depends on free sizes")
        return [
            merge([int(v) for v in values]) for values in zip(*(a.reshape(-1) for a in arrays), strict=True)
        ]

    def ints(self, operand: Operand | tuple[int, ...], what: str) -> list[int]:
        """As `dims`, if it depends on no free size."""
        made = []
        for d in self.dims(operand, what):
            if isinstance(d, tuple):
                raise Varies(f"{what} depends on free sizes")
            made.append(d)
        return made

    def number(self, operand: Operand | float, what: str) -> Any:
        """A known single number as Python's; an input, or in older opsets an attribute."""
        if isinstance(operand, (int, float)):
            return operand
        array = self.array(operand, what)
        if array.size != 1:
            raise SpecError(f"{what} is of shape {list(array.shape)}, expected one number")
        return array.reshape(-1)[0].item()

    def used_only(self, *outputs: int) -> None:
        """Unsupported if other outputs than these are read."""
        for i, used in enumerate(self.used):
            if used and i not in outputs:
                raise Unsupported(f"its output {i} is used")
