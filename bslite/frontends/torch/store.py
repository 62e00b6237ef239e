"""The model being built from a torch graph, with the shapes that torch traced."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bslite.errors import SpecError
from bslite.frontends.common.lazy import load_torch
from bslite.frontends.common.store import Store as AnyStore
from bslite.frontends.common.values import Const as AnyConst
from bslite.frontends.common.values import Dims, Value
from bslite.frontends.torch.values import DTYPES, NARROW, Const, Number, Operand, dtype_name, kept_as
from bslite.frontends.torch.widened import widened
from bslite.spec import Array, GraphBuilder

if TYPE_CHECKING:
    import torch


class Store(AnyStore["torch.Tensor"]):
    """The model under construction. ``state``: the tensors of the user's module by name."""

    def __init__(self, builder: GraphBuilder, state: "Mapping[str, torch.Tensor]") -> None:
        super().__init__(builder, state)
        self.state = state
        self.shapes: dict[str, Dims] = {}  # value -> its traced shape
        self.dtypes: dict[str, str] = {}  # value -> its dtype
        for key, tensor in state.items():  # a tensor with two names goes by the first
            self._keys.setdefault(self.identity(tensor), key)
        self._scalars: dict[str, Const] = {}
        self.lines: dict[Any, Value] = {}  # ones as many as a free size
        self.bounds: list[tuple[Any, int]] = []  # sizes, and the most that a run does not refuse
        self.products: dict[str, bool] = {}  # of several terms: whether factors are of bfloat16 there
        self.wide: set[str] = set()  # constants that are float32 there
        self.unflattened: dict[str, Value] = {}  # a reshaped value -> what it was before

    def identity(self, data: "torch.Tensor") -> tuple[Any, ...]:
        return data.data_ptr(), tuple(data.shape), data.stride(), data.dtype

    def array(self, const: "AnyConst[torch.Tensor]") -> Array:
        if kept_as(const.data) not in DTYPES:
            raise SpecError(
                f"parameter {const.key!r} is {dtype_name(const.data)}, expected {' or '.join(DTYPES)}"
            )
        data = const.data.detach().cpu()
        data = data if _dense(data) else data.contiguous()
        made: Array = widened(data) if dtype_name(data) in NARROW else data.numpy()
        return made

    def constant(self, key: str, const: "AnyConst[torch.Tensor]") -> Value:
        made = self.add("constant", key, [], {"value": key}, {}, const.shape)
        if dtype_name(const.data) == "float32":
            self.wide.add(made.name)
        return made

    def add(
        self, op: str, name: str, inputs: Sequence[str], params: dict[str, str], attrs: dict[str, Any],
        shape: Dims,
    ) -> Value:  # fmt: skip
        """Append a node and note the shape it was traced with."""
        unique = self.builder.add(op, name, *inputs, params=params, **attrs)
        node = self.builder.nodes[-1]
        of_params = {role: self.builder.params[key].dtype.name for role, key in params.items()}
        dtype = node.declaration.dtype([self.dtypes[i] for i in inputs], of_params, node.attrs)
        return self.note(Value(unique, shape, dtype))

    def unrounded(self) -> frozenset[str] | None:
        """`ModelSpec.unrounded`; None also where products of float32 are among them that no parameter tells
        from the others.
        """
        exact = [n for n in self.builder.nodes if self.products.get(n.name) is False]
        if not any(self.products.values()) or any(n.op != "linear" for n in exact):
            return None
        return frozenset(n.params["weight"] for n in exact)

    def input(
        self, name: str, shape: Dims, declared: Sequence[int | str], example: Sequence[int], dtype: str
    ) -> Value:
        """Declare a model input."""
        self.builder.input(name, declared, example, dtype)
        return self.note(Value(name, shape, dtype))

    def note(self, value: Value) -> Value:
        """Note the shape and dtype of a new value."""
        self.shapes[value.name], self.dtypes[value.name] = value.shape, value.dtype
        return value

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
        tensor = operand.data
        if (dtype or operand.dtype) == "float32" and not (tensor.is_floating_point() and tensor.ndim):
            # What torch does where a float32 meets integers, or a single number of another type.
            operand = Const(tensor.float(), operand.key)
        return self.known(operand)


def _dense(tensor: "torch.Tensor") -> bool:
    """Whether a tensor fills a piece of memory, its axes in any order.

    Such a one is stored as it lies: models of the same module then share the weights that they transpose, and
    what an engine packs of them.
    """
    room = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1 and stride != room:
            return False
        room *= size
    return True
