"""What the builders of `torch_ops` work with: operands, the place of an operation, the table itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bslite import ops
from bslite.errors import SpecError
from bslite.frontends.torch.lazy import load_torch
from bslite.frontends.torch.names import Names
from bslite.spec import GraphBuilder

if TYPE_CHECKING:
    import torch

#: Sizes of a traced tensor: an int, or a sympy expression in the batch size. They compare structurally.
Dims = tuple[Any, ...]
Builder = Callable[..., Any]
TABLE: dict[str, Builder] = {}


@dataclass(frozen=True, eq=False)
class Value:
    """A value of the model being built."""

    name: str
    shape: Dims
    dtype: str = "float32"


@dataclass(frozen=True, eq=False)
class Const:
    """A tensor known now: a parameter, a buffer, or computed from them. ``key`` names it if it is stored."""

    tensor: torch.Tensor
    key: str

    @property
    def shape(self) -> Dims:
        return tuple(self.tensor.shape)

    @property
    def dtype(self) -> str:
        """Of the value it becomes: a single number of a type that bslite lacks counts as float32, as torch
        takes it there.
        """
        name = dtype_name(self.tensor)
        return (
            name
            if name in ops.DTYPES or (self.tensor.is_floating_point() and self.tensor.ndim)
            else "float32"
        )


Operand = Value | Const
Number = int | float


class Unsupported(Exception):
    """Raised by a builder function for a form of its operation that bslite cannot express; says why."""


def aten(*names: str) -> Callable[[Builder], Builder]:
    """Register a builder for torch operations: ``conv2d`` for all overloads, ``conv2d.padding`` for one."""

    def register(builder: Builder) -> Builder:
        for name in names:
            if name in TABLE:
                raise RuntimeError(f"torch operation {name!r} has two builders")
            TABLE[name] = builder
        return builder

    return register


def dtype_name(tensor: torch.Tensor) -> str:
    """``"float32"`` for torch.float32."""
    return str(tensor.dtype).removeprefix("torch.")


def dims(tensor: torch.Tensor) -> Dims:
    """The sizes of a traced tensor; reading the expressions, not the sizes, leaves the batch free."""
    out = []
    for d in tensor.shape:
        expr = d if isinstance(d, int) else d.node.expr
        out.append(int(expr) if isinstance(d, int) or expr.is_Integer else expr)
    return tuple(out)


def operation(node: torch.fx.Node) -> str:
    """``relu`` for ``aten::relu`` and ``aten::relu_``, ``bslite.packed`` for `torch_packed`'s; "" for any
    other.
    """
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.name.startswith(("aten::", "bslite::")):
        return ""
    if schema.name.startswith("bslite::"):
        return str(schema.name.replace("::", "."))
    name: str = schema.name.removeprefix("aten::")
    return name.removesuffix("_") if schema.is_mutable else name


def find(node: torch.fx.Node) -> Builder | None:
    """The builder for the operation of ``node``, that of its overload first."""
    name = operation(node)
    return TABLE.get(f"{name}.{getattr(node.target, '_overloadname', '')}") or TABLE.get(name)


class Site:
    """One operation at its place in the model. ``shape`` is that of its (first) result."""

    def __init__(
        self, store: Store, names: Names, node: torch.fx.Node, users: Sequence[torch.fx.Node]
    ) -> None:
        self.store, self.names, self.node, self.users = store, names, node, users
        value = node.meta["val"]
        tensors = value if isinstance(value, (tuple, list)) else (value,)
        self.shapes = [dims(t) if hasattr(t, "shape") else () for t in tensors]
        self.shape = self.shapes[0]

    @property
    def operation(self) -> str:
        """The torch operation's name, without overload and in-place underscore."""
        return operation(self.node)

    @property
    def used(self) -> list[int]:
        """Indices of the results that are read, for an operation with several."""
        return sorted({int(user.args[1]) for user in self.users})  # type: ignore[arg-type]

    def emit(
        self,
        op: str,
        *inputs: Operand,
        inner: Dims | None = None,
        params: dict[str, Operand | None] | None = None,
        **attrs: Any,
    ) -> Value:
        """Append a layer. ``inner``, its shape, is given for all but the operation's own result."""
        name = self.names.layer(self.node, op) if inner is None else self.names.part(self.node, op)
        given = {role: p for role, p in (params or {}).items() if p is not None}
        dtypes = taken_dtypes(op, inputs, given, attrs)
        keys = {role: self._param(role, p) for role, p in given.items()}
        sources = [self.store.value(x, dtype).name for x, dtype in zip(inputs, dtypes, strict=True)]
        return self.store.add(op, name, sources, keys, attrs, self.shape if inner is None else inner)

    def results(self, first: Value) -> Any:
        """``first`` as what the operation returns: itself, or the first of several, all there is."""
        if not isinstance(self.node.meta["val"], (tuple, list)):
            return first
        if self.used != [0]:
            raise Unsupported("more than its first result is used")
        return [first]

    def _param(self, role: str, operand: Operand) -> str:
        if isinstance(operand, Value):
            raise Unsupported(f"its {role} is computed from the input")
        return self.store.param(operand)

    def derived(self, what: str, tensor: torch.Tensor) -> Const:
        """A tensor computed here from a constant operand."""
        return Const(tensor, self.names.part(self.node, what))


def taken_dtypes(
    op: str, inputs: Sequence[Operand], params: Mapping[str, Operand], attrs: Mapping[str, Any]
) -> list[str]:
    """The dtypes that ``op`` takes these inputs as: their own, or float32 for constants of integers that meet
    float32, as torch promotes them. Raises Unsupported if it takes neither.
    """
    declaration = ops.get(op)
    parsed, of_params = ops.parse_attrs(declaration, attrs), {role: p.dtype for role, p in params.items()}
    own = [x.dtype for x in inputs]
    try:
        declaration.dtype(own, of_params, parsed)
    except SpecError as e:
        promoted = ["float32" if isinstance(x, Const) else x.dtype for x in inputs]
        try:
            declaration.dtype(promoted, of_params, parsed)
        except SpecError:
            raise Unsupported(str(e)) from None
        return promoted
    return own


class Store:
    """The model under construction: a GraphBuilder, plus the bookkeeping of constants and traced shapes."""

    def __init__(self, builder: GraphBuilder, state: Mapping[str, torch.Tensor]) -> None:
        self.builder = builder
        self.shapes: dict[str, Dims] = {}  # value -> its traced shape
        self.dtypes: dict[str, str] = {}  # value -> its dtype
        self._state = state  # the user's names; a tensor with two of them goes by the first
        self._keys: dict[tuple[Any, ...], str] = {}
        for key, tensor in state.items():
            self._keys.setdefault(identity(tensor), key)
        self._tensors: list[torch.Tensor] = []  # kept, so that no other tensor gets the same address
        self._values: dict[str, Value] = {}
        self._scalars: dict[str, Const] = {}

    def add(
        self,
        op: str,
        name: str,
        inputs: Sequence[str],
        params: dict[str, str],
        attrs: dict[str, Any],
        shape: Dims,
    ) -> Value:
        """Append a node and note the shape it was traced with."""
        unique = self.builder.add(op, name, *inputs, params=params, **attrs)
        self.shapes[unique] = shape
        node = self.builder.nodes[-1]
        self.dtypes[unique] = dtype = node.declaration.dtype(
            [self.dtypes[i] for i in inputs],
            {role: self.builder.params[key].dtype.name for role, key in params.items()},
            node.attrs,
        )
        return Value(unique, shape, dtype)

    def input(
        self, name: str, shape: Dims, declared: Sequence[int | str], example: Sequence[int], dtype: str
    ) -> Value:
        """Declare a model input."""
        self.builder.input(name, declared, example, dtype)
        self.dtypes[name] = dtype
        self.shapes[name] = shape
        return Value(name, shape, dtype)

    def with_batch(self, size: Any) -> Value | None:
        """The latest value whose axis 0 is as long as ``size`` (a sympy expression) says."""
        for name, shape in reversed(self.shapes.items()):
            if shape[:1] == (size,):
                return Value(name, shape, self.dtypes[name])
        return None

    def scalar(self, number: Number, dtype: str = "float32") -> Const:
        """A number as a constant, rounded to float32 if it is to be one; equal numbers are one constant."""
        torch = load_torch()
        tensor = torch.tensor(float(number) if dtype == "float32" else number, dtype=getattr(torch, dtype))
        kind = "" if dtype == "float32" else f"{dtype}."
        const = Const(tensor, f"scalar.{kind}{tensor.item()!r}")
        return self._scalars.setdefault(const.key, const)

    def value(self, operand: Operand, dtype: str = "") -> Value:
        """``operand`` as a value; a constant becomes a node, once for each ``dtype`` (if "", its own)."""
        if isinstance(operand, Value):
            return operand
        tensor = operand.tensor
        if (dtype or operand.dtype) == "float32" and not (tensor.is_floating_point() and tensor.ndim):
            # What torch does where a float32 meets integers, or a single number of another type.
            operand = Const(tensor.float(), operand.key)
        key = self.param(operand)
        if key not in self._values:
            self._values[key] = self.add("constant", key, [], {"value": key}, {}, operand.shape)
        return self._values[key]

    def param(self, const: Const) -> str:
        """Store a constant and return its key; the same memory in the same shape is stored once."""
        tensor = const.tensor
        if dtype_name(tensor) not in ops.DTYPES:
            raise SpecError(
                f"parameter {const.key!r} is {dtype_name(tensor)}, expected {' or '.join(ops.DTYPES)}"
            )
        key = self._keys.get(identity(tensor)) or self._new_key(const.key)
        if key not in self.builder.params:
            self._tensors.append(tensor)
            self._keys[identity(tensor)] = key
            self.builder.params[key] = tensor.detach().cpu().contiguous().numpy()
        return key

    def _new_key(self, key: str) -> str:
        unique, count = key, 1
        while unique in self._state or unique in self.builder.params:
            count += 1
            unique = f"{key}#{count}"
        return unique


def identity(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Equal for tensors that are the same memory seen in the same shape."""
    return tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype
