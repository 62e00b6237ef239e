"""What the builders of ONNX operators work with: the node's place in the model, the table they stand in."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bslite import ops
from bslite.errors import BsliteError, SpecError
from bslite.frontends.onnx.values import (
    Const,
    Dim,
    Known,
    NeedsValue,
    Operand,
    Sizes,
    Unsupported,
    Value,
    Varies,
    merge,
)
from bslite.ops import Shape
from bslite.ops.core import Attrs
from bslite.spec import Array, GraphBuilder

Builder = Callable[..., Any]
#: Operator -> its builders, each with the first opset it is right for, in rising order.
TABLE: dict[str, list[tuple[int, Builder]]] = {}
MAX_ELEMENTS = 2**36  # of one value: beyond what a machine could run
FOLD_FLOPS = 10**9  # more work on constants than this is left to the engine
FOLD_ELEMENTS = 2**28  # all arrays computed while reading a model together


def onnx_op(*names: str, since: int = 1) -> Callable[[Builder], Builder]:
    """Register a builder for ONNX operators as they are from opset ``since`` on.

    A builder takes a `Site`, the inputs in order (None where left out) and the attributes by name under the
    defaults of the operator's schema (None where it has none), and returns the outputs: one, or a tuple.
    """

    def register(builder: Builder) -> Builder:
        for name in names:
            versions = TABLE.setdefault(name, [])
            if any(v == since for v, _ in versions):
                raise RuntimeError(f"operator {name!r} has two builders from opset {since}")
            versions.append((since, builder))
            versions.sort(key=lambda item: item[0])
        return builder

    return register


def find(op_type: str, opset: int) -> Builder | None:
    """The builder that is right for ``opset``."""
    return next((b for since, b in reversed(TABLE.get(op_type, [])) if since <= opset), None)


@dataclass(frozen=True)
class Site:
    """One node at its place: ``name`` is what its layer is called, ``used`` which of its outputs are read."""

    store: Store
    name: str
    op_type: str
    opset: int
    used: Sequence[bool]

    def emit(self, op: str, *inputs: Operand, **kwargs: Any) -> Any:
        """Append the layer that makes the node's (first) output."""
        return self.store.emit(op, self.name, inputs, **kwargs)

    def inner(self, op: str, *inputs: Operand, **kwargs: Any) -> Any:
        """Append a layer on the way to the node's output."""
        return self.store.emit(op, f"{self.name}.{op}", inputs, **kwargs)

    def const(self, array: Any, what: str = "value") -> Const:
        """An array computed here."""
        return Const(np.asarray(array), f"{self.name}.{what}")

    def compute(self, function: Callable[..., Any], *operands: Operand) -> Known:
        """``function`` of known arrays, probe by probe. Errors in it are the model's."""
        return self.store.compute(
            function, [self.known(x, "its input") for x in operands], f"{self.name}.value"
        )

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
        return known.array

    def dims(self, operand: Operand, what: str) -> list[Dim]:
        """A known list of integers; those that depend on free sizes with a number per probe."""
        known = self.known(operand, what)
        arrays = known.arrays if isinstance(known, Sizes) else (known.array,)
        for a in arrays:
            if a.dtype.kind not in "iu" or a.ndim > 1:
                raise SpecError(f"{what} is {a.dtype} {list(a.shape)}, expected a list of integers")
        if len({a.size for a in arrays}) > 1:
            raise Varies(f"the length of {what} depends on free sizes")
        return [
            merge([int(v) for v in values]) for values in zip(*(a.reshape(-1) for a in arrays), strict=True)
        ]

    def ints(self, operand: Operand, what: str) -> list[int]:
        """A known list of integers that depends on no free size."""
        made = []
        for d in self.dims(operand, what):
            if isinstance(d, tuple):
                raise Varies(f"{what} depends on free sizes")
            made.append(d)
        return made

    def number(self, operand: Operand, what: str) -> Any:
        """A known single number as Python's."""
        array = self.array(operand, what)
        if array.size != 1:
            raise SpecError(f"{what} is of shape {list(array.shape)}, expected one number")
        return array.reshape(-1)[0].item()

    def used_only(self, *outputs: int) -> None:
        """Unsupported if other outputs than these are read."""
        for i, used in enumerate(self.used):
            if used and i not in outputs:
                raise Unsupported(f"its output {i} is used")


class Store:
    """The model under construction: a GraphBuilder, and the shapes of its values in every probe."""

    def __init__(self, builder: GraphBuilder, probes: Sequence[Mapping[str, int]]) -> None:
        self.builder = builder
        self.probes = probes
        self.inputs: list[Value] = []
        self.flops = 0  # of all layers, in the first probe
        self._spent = 0
        self._values: dict[int, Value] = {}  # of constants, by the array
        self._keys: dict[int, str] = {}
        self._kept: list[Array] = []  # so that no other array gets the same id

    def allow(self, elements: int) -> None:
        """SpecError if so many more elements of constants are too many: ask before computing them."""
        if self._spent + elements > FOLD_ELEMENTS:
            raise SpecError(f"constants of more than {FOLD_ELEMENTS} elements would be computed")

    def spend(self, elements: int) -> None:
        """Note so many elements as computed; SpecError as `allow`."""
        self.allow(elements)
        self._spent += elements

    def input(self, name: str, declared: Sequence[int | str], example: Sequence[int], dtype: str) -> Value:
        """Declare a model input."""
        self.builder.input(name, declared, example, dtype)
        shapes = tuple(tuple(p[d] if isinstance(d, str) else d for d in declared) for p in self.probes)
        made = Value(name, shapes, dtype, frozenset([name]))
        self.inputs.append(made)
        return made

    def emit(
        self,
        op: str,
        name: str,
        inputs: Sequence[Operand],
        params: Mapping[str, Operand | None] | None = None,
        **attrs: Any,
    ) -> Any:
        """Append a layer, or compute it here if all it reads is constant."""
        declaration = ops.get(op)
        parsed = ops.parse_attrs(declaration, attrs)
        given: dict[str, Const] = {}
        for role, p in (params or {}).items():
            if isinstance(p, Value):
                raise NeedsValue(
                    f"its {role} is computed from the input {', '.join(sorted(p.roots))}", p.roots
                )
            if isinstance(p, Sizes):
                raise Varies(f"its {role} depends on free sizes")
            if p is not None:
                given[role] = p
        inputs = [self.value(x) if isinstance(x, Sizes) else x for x in inputs]
        dtype = self._dtype(declaration, inputs, given, parsed)
        shapes = self._shapes(declaration, inputs, given, parsed)
        if op != "constant" and all(isinstance(x, Const) for x in inputs) and declaration.arity[1]:
            folded = self._fold(declaration, inputs, given, parsed, shapes[0], name)
            if folded is not None:
                return folded
        values = [self.value(x) for x in inputs]
        keys = {role: self.param(p) for role, p in given.items()}
        unique = self.builder.add(op, name, *(v.name for v in values), params=keys, **attrs)
        of_params = {role: p.array.shape for role, p in given.items()}
        self.flops += declaration.flops([v.shapes[0] for v in values], shapes[0], of_params, parsed)
        roots = frozenset[str]().union(*(v.roots for v in values))
        return Value(unique, shapes, dtype, roots)

    def _dtype(
        self, op: type[ops.Op], inputs: Sequence[Operand], params: Mapping[str, Const], attrs: Attrs
    ) -> str:
        for x in (*inputs, *params.values()):
            if x.dtype not in ops.DTYPES:
                raise Unsupported(f"of {x.dtype}; bslite has {', '.join(ops.DTYPES)}")
        try:
            return op.dtype([x.dtype for x in inputs], {r: p.dtype for r, p in params.items()}, attrs)
        except SpecError as e:
            raise Unsupported(str(e)) from None

    def _shapes(
        self, op: type[ops.Op], inputs: Sequence[Operand], params: Mapping[str, Const], attrs: Attrs
    ) -> tuple[Shape, ...]:
        """The output's shape in every probe."""
        of_params = {role: p.array.shape for role, p in params.items()}
        shapes: list[Shape] = []
        for i in range(len(self.probes)):
            ins = [x.shapes[i if len(x.shapes) > 1 else 0] for x in inputs]
            try:
                shapes.append(ops.infer(op, ins, of_params, attrs))
            except SpecError as e:
                if i:
                    raise Varies(f"it does not take every size: {e}") from None
                raise
            if not i and math.prod(shapes[0]) > MAX_ELEMENTS:
                raise SpecError(f"its output {list(shapes[0])} is too large for any memory")
        return tuple(shapes)

    def _fold(
        self,
        op: type[ops.Op],
        inputs: Sequence[Operand],
        params: Mapping[str, Const],
        attrs: Attrs,
        out: Shape,
        name: str,
    ) -> Const | None:
        """The constant that ``op`` makes of constants, by the reference; None if that is much work."""
        from bslite import reference

        arrays = [x.array for x in inputs if isinstance(x, Const)]
        given = {role: p.array for role, p in params.items()}
        of_params = {role: p.shape for role, p in given.items()}
        if op.flops([a.shape for a in arrays], out, of_params, attrs) > FOLD_FLOPS:
            return None
        self.spend(math.prod(out))
        made = reference.call(op.name, arrays, given, attrs, np.float32)
        return Const(np.ascontiguousarray(made).reshape(out), f"{name}.value")

    def compute(self, function: Callable[..., Any], operands: Sequence[Known], key: str) -> Known:
        """See `Site.compute`."""
        varying = any(isinstance(x, Sizes) for x in operands)
        results = []
        for i in range(len(self.probes) if varying else 1):
            arrays = [x.arrays[i] if isinstance(x, Sizes) else x.array for x in operands]
            try:
                with np.errstate(all="ignore"):
                    made = np.asarray(function(*arrays))
            except (BsliteError, Unsupported, MemoryError):
                raise
            except Exception as e:
                raise SpecError(f"it cannot be computed ({type(e).__name__}: {e})") from e
            self.spend(made.size)
            results.append(made)
        first = results[0]
        if all(
            r.shape == first.shape and np.array_equal(r, first, equal_nan=r.dtype.kind == "f")
            for r in results
        ):
            return Const(first, key)
        return Sizes(tuple(results))

    def value(self, operand: Operand) -> Value:
        """``operand`` as a value; a constant becomes a node, once."""
        if isinstance(operand, Value):
            return operand
        if isinstance(operand, Sizes):
            return self._repeated(operand)
        if operand.dtype not in ops.DTYPES:
            raise Unsupported(f"a constant is {operand.dtype}; bslite has {', '.join(ops.DTYPES)}")
        if not operand.array.size:
            raise Unsupported(f"a value of shape {list(operand.array.shape)} is empty")
        made = self._values.get(id(operand.array))
        if made is None:
            key = self.param(operand)
            name = self.builder.add("constant", key, params={"value": key})
            made = Value(name, operand.shapes * len(self.probes), operand.dtype, frozenset())
            self._values[id(operand.array)] = made
        return made

    def _repeated(self, sizes: Sizes) -> Value:
        """An array whose only free size is that of a graph input's axis 0, along which it repeats itself."""
        first = sizes.arrays[0]
        for like in self.inputs:
            if all(_repeats(a, first, shape) for a, shape in zip(sizes.arrays, like.shapes, strict=True)):
                row = Const(first[:1].copy(), f"{like.name}.row")
                made: Value = self.emit("repeat_batch", f"{like.name}.repeated", [row, like])
                return made
        raise Varies("a size that is free is used as a number")

    def param(self, const: Const) -> str:
        """Store a constant and return its key; the same array is stored once."""
        key = self._keys.get(id(const.array))
        if key is None:
            key, count = const.key, 1
            while key in self.builder.params:
                count += 1
                key = f"{const.key}#{count}"
            self.builder.params[key] = np.ascontiguousarray(const.array).reshape(const.array.shape)
            self._keys[id(const.array)] = key
            self._kept.append(const.array)
        return key


def _repeats(a: Array, first: Array, shape: Shape) -> bool:
    """Whether ``a`` is the first row of ``first`` as often as ``shape`` has rows."""
    return (
        bool(first.size and shape)
        and a.shape == (*shape[:1], *first.shape[1:])
        and np.array_equal(a, np.broadcast_to(first[:1], a.shape))
    )
