"""The model being built from an ONNX graph, with the shapes of its values in every probe."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bslite import ops
from bslite.errors import BsliteError, SpecError
from bslite.frontends.common.store import Store as AnyStore
from bslite.frontends.common.unsupported import Unsupported, Varies
from bslite.frontends.common.values import Const as AnyConst
from bslite.frontends.onnx.blocked import Blocked
from bslite.frontends.onnx.broadcasts import distinct, pointwise, repeats, same
from bslite.frontends.onnx.counting import counted
from bslite.frontends.onnx.memo import Memo
from bslite.frontends.onnx.values import Const, Known, NeedsValue, Operand, Sizes, Value
from bslite.ops import Shape
from bslite.ops.core import Attrs
from bslite.spec import Array, GraphBuilder, ModelSpec

MAX_ELEMENTS = 2**36  # of one value: beyond what a machine could run
#: Ops that make of bytes, as float32 numbers, bytes; or numbers that are bytes unless the engine says so.
EXACT = (
    "maximum", "minimum", "relu", "clamp", "amax", "amin", "max_pool1d", "max_pool2d", "max_pool3d", "abs",
    "neg", "sign", "add", "sub", "mul",
)  # fmt: skip
#: Those of which results may be no bytes.
LEAVES = ("abs", "neg", "add", "sub", "mul")
#: The same of integers: quotients are rounded towards zero.
WHOLE = ("div", "fmod", "remainder", "pow")
FOLD_FLOPS = 10**9  # more work on constants than this is left to the engine
FOLD_ELEMENTS = 2**28  # all arrays computed while reading a model together
PROBE_ELEMENTS = 2**22  # of one array that is computed only to see how it changes with the free sizes


class Scaled(NamedTuple):
    """A value that is ``centred * scale``; ``centred``: integers of ``dtype`` less ``point``, in float32."""

    centred: Value
    scale: float
    point: int
    dtype: str


class Quantized(NamedTuple):
    """What integers were quantised from at run time: ``zero`` is the integer ``point`` as float32."""

    x: Value
    scale: Operand
    point: Operand
    zero: Operand


class Store(AnyStore[Array]):
    """The model under construction. ``probes``: the number that each free size is, in every probe."""

    def __init__(self, builder: GraphBuilder, probes: Sequence[Mapping[str, int]]) -> None:
        super().__init__(builder)
        self.probes = probes
        self.inputs: list[Value] = []
        #: Input and axis -> 0, 1, 2 and so on along it; what a flatten made -> what it flattened.
        self.lines: dict[tuple[str, int], Value] = {}
        self.flattened: dict[str, Value] = {}
        self.flops = 0  # of all layers, in the first probe
        #: Integer value -> a float32 value of the same numbers, and one of them rounded once.
        self.numbers: dict[str, Value] = {}
        self.rounded: dict[str, Value] = {}
        #: Integer value -> a zero point, and the float32 value of the same numbers less that.
        self.centred: dict[str, tuple[int, Value]] = {}
        #: float32 value -> what it is a multiple of; id of an array -> whole numbers, their scale, the array.
        self.scaled: dict[str, Scaled] = {}
        self.weights: dict[int, tuple[Array, Array, Array]] = {}
        #: id of an array -> the whole numbers of a few bits that it was made of, the array.
        self.blocked: dict[int, tuple[Blocked, Array]] = {}
        #: float32 value, axis, groups -> its pairs; integer value -> what it was quantised from, at run time.
        self.paired: dict[tuple[str, int, int], Value] = {}
        self.quantized: dict[str, Quantized] = {}
        self.memo = Memo()  # of the file, if the reader has set it
        self._spent = 0
        self._probing = False  # whether what is computed belongs to another probe than the first

    def allow(self, elements: int) -> None:
        """Ask before computing so many more elements of constants. SpecError if they are too many; Varies if
        they are only looked at, to see how they change with free sizes.
        """
        if self._probing and elements > PROBE_ELEMENTS:
            raise Varies("it makes a large constant of free sizes")
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
        made = Value.probed(name, shapes, dtype, frozenset([name]))
        self.inputs.append(made)
        return made

    def emit(
        self, op: str, name: str, inputs: Sequence[Operand],
        params: Mapping[str, Operand | None] | None = None, **attrs: Any,
    ) -> Any:  # fmt: skip
        """Append a layer, or compute it here if all it reads is constant."""
        declaration = ops.get(op)
        exact = self._on_floats(declaration, name, inputs, params, attrs)
        if exact is not None:
            return exact
        made = self._emit(declaration, name, inputs, params, attrs)
        self._scale(declaration, name, inputs, attrs, made)
        return made

    def _scale(self, op: ops.Op, name: str, inputs: Sequence[Operand], attrs: Attrs, made: Operand) -> None:
        """Note that a value made of a multiple of whole numbers, moved or pooled, is a multiple as well."""
        if len(inputs) != 1 or not isinstance(made, Value) or not isinstance(inputs[0], Value):
            return
        known = self.scaled.get(inputs[0].name)
        if known is None or not (op.carries or op.name.startswith("max_pool")):
            return
        centred = self._emit(op, f"{name}.centred", [known.centred], None, attrs)
        self.scaled[made.name] = known._replace(centred=centred)

    def _emit(
        self, declaration: ops.Op, name: str, inputs: Sequence[Operand], params: Any, attrs: Attrs
    ) -> Any:
        op = declaration.name
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
        if any(isinstance(x, Const) and not x.data.size for x in inputs):
            return self._of_nothing(declaration, inputs, given, parsed, dtype, name)
        shapes = self._shapes(declaration, inputs, given, parsed)
        if op != "constant" and all_known(inputs) and declaration.arity[1]:
            folded = self._fold(declaration, inputs, given, parsed, shapes[0], name)
            if folded is not None:
                return folded
        values = [self.value(x) for x in inputs]
        keys = {role: self.param(p) for role, p in given.items()}
        unique = self.builder.add(op, name, *(v.name for v in values), params=keys, **attrs)
        of_params = {role: p.data.shape for role, p in given.items()}
        self.flops += declaration.flops([v.shapes[0] for v in values], shapes[0], of_params, parsed)
        roots = frozenset[str]().union(*(v.roots for v in values))
        return Value.probed(unique, shapes, dtype, roots)

    def _on_floats(
        self, op: ops.Op, name: str, inputs: Sequence[Operand], params: Any, attrs: Attrs
    ) -> Operand | None:
        """``op`` of integers, computed with float32 values of the same numbers where that is the same."""
        if not any(isinstance(x, Value) and x.dtype not in ("float32", "bool") for x in inputs):
            return None
        first = inputs[0]
        if op.name == "cast":
            known = {**self.rounded, **self.numbers}.get(first.name) if isinstance(first, Value) else None
            return known if attrs["to"] == "float32" else None
        carried = op.carries and all(isinstance(x, Value) and x.name in self.numbers for x in inputs)
        if not carried and (first.dtype not in ops.BYTES or op.name not in (*EXACT, *WHOLE)):
            return None
        if len({x.dtype for x in inputs}) > 1:
            return None
        if not carried and op.name in WHOLE:
            wide = [self.emit("cast", f"{name}.int32", [x], to="int32") for x in inputs]
            made: Operand = self.emit("cast", name, [self.emit(op.name, name, wide, **attrs)], to=first.dtype)
            return made
        less = self.centred.get(first.name) if isinstance(first, Value) else None
        if less is not None and len(inputs) == 1 and (op.carries or op.name.startswith("max_pool")):
            point, around = less
            moved = self.emit(op.name, f"{name}.centred", [around], params, **attrs)
            return self.offset(moved, point, first.dtype, name)
        floats = [self.floats(x, name) for x in inputs]
        exact = self.emit(op.name, f"{name}.float32", floats, params, **attrs)
        if op.name in LEAVES:  # numbers that the cast refuses are not to be read beside it
            return self.emit("cast", name, [exact], to=first.dtype)
        return self.integers(exact, first.dtype, name)

    def floats(self, x: Operand, name: str) -> Operand:
        """The numbers of ``x`` as float32: exact for bytes."""
        if x.dtype == "float32":
            return x
        if not isinstance(x, Value):
            return self.compute(lambda a: a.astype(np.float32), [x], f"{name}.float32")
        made: Value = self.emit("cast", f"{name}.float32", [x], to="float32")
        if x.dtype in ops.BYTES:
            self.numbers[x.name] = made
        return made

    def integers(self, x: Operand, dtype: str, name: str) -> Operand:
        """The whole numbers of a float32 value as integers, whose readers may use that value."""
        made: Operand = self.emit("cast", name, [x], to=dtype)
        if isinstance(made, Value) and isinstance(x, Value):
            self.numbers[made.name] = x
        return made

    def offset(self, around: Operand, point: int, dtype: str, name: str) -> Operand:
        """``around + point`` as integers, where ``around`` is float32; it is kept beside them."""
        moved = around
        if point:
            moved = self.emit(
                "add", f"{name}.offset", [around, Const(np.asarray(point, np.float32), "zero_point")]
            )
        result = self.integers(moved, dtype, name)
        if isinstance(result, Value) and isinstance(around, Value):
            self.centred[result.name] = (point, around)
        return result

    def _dtype(self, op: ops.Op, inputs: Sequence[Operand], params: Mapping[str, Const], attrs: Attrs) -> str:
        for x in (*inputs, *params.values()):
            if x.dtype not in ops.DTYPES:
                raise Unsupported(f"of {x.dtype}; bslite has {', '.join(ops.DTYPES)}")
        try:
            return op.dtype([x.dtype for x in inputs], {r: p.dtype for r, p in params.items()}, attrs)
        except SpecError as e:
            raise Unsupported(str(e)) from None

    def _shapes(
        self, op: ops.Op, inputs: Sequence[Operand], params: Mapping[str, Const], attrs: Attrs
    ) -> tuple[Shape, ...]:
        """The output's shape in every probe."""
        of_params = {role: p.data.shape for role, p in params.items()}
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

    def _of_nothing(
        self, op: ops.Op, inputs: Sequence[Operand], params: Mapping[str, Const], attrs: Attrs,
        dtype: str, name: str,
    ) -> Const:  # fmt: skip
        """The result where an input is empty: empty itself, or else made of constants alone."""
        of_params = {role: p.data.shape for role, p in params.items()}
        if len({x.shapes for x in inputs if len(x.shapes) > 1}):
            raise Varies("an input is empty, and another of a free size")
        try:
            shape = op.shape([x.shapes[0] for x in inputs], of_params, attrs)
        except SpecError as e:
            raise Unsupported(f"of an empty input: {e}") from None
        if 0 in shape:
            return Const(np.zeros(shape, dtype), f"{name}.value")
        made = self._fold(op, inputs, params, attrs, shape, name) if all_known(inputs) else None
        if made is None:
            raise Unsupported("of an empty input")
        return made

    def _fold(
        self, op: ops.Op, inputs: Sequence[Operand], params: Mapping[str, Const], attrs: Attrs,
        out: Shape, name: str,
    ) -> Const | None:  # fmt: skip
        """The constant that ``op`` makes of constants, by the reference; None if that is much work."""
        from bslite import reference

        arrays = [x.data for x in inputs if isinstance(x, Const)]
        given = {role: p.data for role, p in params.items()}
        of_params = {role: p.shape for role, p in given.items()}
        if op.flops([a.shape for a in arrays], out, of_params, attrs) > FOLD_FLOPS:
            return None
        self.spend(math.prod(out))
        made = reference.call(op.name, arrays, given, attrs, np.float32)
        return Const(np.ascontiguousarray(made).reshape(out), f"{name}.value")

    def compute(
        self, function: Callable[..., Any], operands: Sequence[Known], key: str, each: bool = False,
        view: bool = False,
    ) -> Known:  # fmt: skip
        """See `Site.compute`."""
        varying = any(isinstance(x, Sizes) for x in operands)
        results = []
        for i in range(len(self.probes) if varying else 1):
            arrays = [x.arrays[i] if isinstance(x, Sizes) else x.data for x in operands]
            self._probing = i > 0
            try:
                results.append(self._computed(function, arrays, each, view))
            finally:
                self._probing = False
        first = results[0]
        if all(same(r, first) for r in results[1:]):
            return Const(first, key)
        return Sizes(tuple(results))

    def _computed(
        self, function: Callable[..., Any], arrays: Sequence[Array], each: bool, view: bool
    ) -> Array:
        """The function's result in one probe."""
        for a in arrays:
            if not view and (
                self._probing or repeats(a)
            ):  # a result may be as large as what the view stands for
                self.allow((distinct(a) if each else a).size)
        try:
            with np.errstate(all="ignore"):
                made = pointwise(function, arrays) if each else np.asarray(function(*arrays))
        except (BsliteError, Unsupported, MemoryError):
            raise
        except Exception as e:
            raise SpecError(f"it cannot be computed ({type(e).__name__}: {e})") from e
        if not any(np.may_share_memory(made, a) for a in arrays):
            self.spend(distinct(made).size)
        return made

    def spec(self, outputs: Sequence[str], labels: Sequence[str]) -> ModelSpec:
        """The finished model, without layers and parameters that no output needs."""
        live = set(outputs)
        for node in reversed(self.builder.nodes):
            if node.name in live:
                live.update(node.inputs)
        self.builder.nodes[:] = [n for n in self.builder.nodes if n.name in live]
        used = {key for n in self.builder.nodes for key in n.params.values()}
        self.builder.params = {k: a for k, a in self.builder.params.items() if k in used}
        return self.builder.build(*outputs, labels=labels)

    def value(self, operand: Operand) -> Value:
        """``operand`` as a value; a constant becomes a node, once."""
        if isinstance(operand, Value):
            return operand
        if isinstance(operand, Sizes):
            return self._repeated(operand)
        if operand.dtype not in ops.DTYPES:
            raise Unsupported(f"a constant is {operand.dtype}; bslite has {', '.join(ops.DTYPES)}")
        if not operand.data.size:
            raise Unsupported(f"a value of shape {list(operand.shape)} is empty")
        made = self.known(operand)
        assert isinstance(made, Value)
        return made

    def identity(self, data: Array) -> int:
        return id(data)

    def array(self, const: AnyConst[Array]) -> Array:
        if repeats(const.data):
            self.spend(const.data.size)
        return np.ascontiguousarray(const.data).reshape(const.data.shape)

    def constant(self, key: str, const: AnyConst[Array]) -> Value:
        name = self.builder.add("constant", key, params={"value": key})
        return Value.probed(name, (const.data.shape,) * len(self.probes), const.data.dtype.name, frozenset())

    def _repeated(self, sizes: Sizes) -> Value:
        """An array whose only free size is that of a graph input's axis 0, along which it repeats itself; or
        one that `counted` knows.
        """
        for axis in range(sizes.arrays[0].ndim):
            arrays = [np.moveaxis(a, axis, 0) if axis < a.ndim else a for a in sizes.arrays]
            for like in self.inputs:
                if all(_repeats(a, arrays[0], s) for a, s in zip(arrays, like.shapes, strict=True)):
                    row = Const(arrays[0][:1].copy(), f"{like.name}.row")
                    made: Value = self.emit("repeat_batch", f"{like.name}.repeated", [row, like])
                    if axis:
                        order = (*range(1, axis + 1), 0, *range(axis + 1, len(made.shape)))
                        made = self.emit("permute", f"{like.name}.turned", [made], order=order)
                    return made
        return counted(self, sizes)


def all_known(inputs: Sequence[Operand]) -> bool:
    """Whether all inputs are constants."""
    return all(isinstance(x, Const) for x in inputs)


def _repeats(a: Array, first: Array, shape: Shape) -> bool:
    """Whether ``a`` is the first row of ``first`` as often as ``shape`` has rows."""
    return (
        bool(first.size and shape)
        and a.shape == (*shape[:1], *first.shape[1:])
        and same(a, np.broadcast_to(first[:1], a.shape))
    )
