"""One torch operation at its place in the model."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bslite import ops
from bslite.errors import SpecError
from bslite.frontends.common.lazy import load_torch
from bslite.frontends.common.site import Site as AnySite
from bslite.frontends.common.unsupported import Unsupported, Varies
from bslite.frontends.common.values import Dims, Value
from bslite.frontends.torch.builders import operation
from bslite.frontends.torch.factors import factors, is_product, of_bfloat16
from bslite.frontends.torch.names import Names
from bslite.frontends.torch.store import Store
from bslite.frontends.torch.values import Const, Operand, layout
from bslite.ops.training.given import Given

if TYPE_CHECKING:
    import torch


#: torch's numbers that are not known yet.
SYMBOLIC = ("SymInt", "SymFloat", "SymBool")


def _is_open(number: Any) -> bool:
    """Whether a number is computed from a free size."""
    return type(number).__name__ in SYMBOLIC or bool(getattr(number, "free_symbols", ()))


class Site(AnySite):
    """What a builder is given. ``shapes``: of the operation's results, as values lie (complex numbers as
    pairs along a last axis); ``shape``: of the first.
    """

    def __init__(
        self, store: Store, names: Names, node: "torch.fx.Node", users: "Sequence[torch.fx.Node]"
    ) -> None:
        self.store, self.names, self.node, self.users = store, names, node, users
        value = node.meta["val"]
        tensors = value if isinstance(value, (tuple, list)) else (value,)
        self.shapes = [layout(t) if hasattr(t, "shape") else () for t in tensors]
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
        self, op: str, *inputs: Operand, inner: Dims | None = None,
        params: Mapping[str, Operand | None] | None = None, **attrs: Any,
    ) -> Value:  # fmt: skip
        for key, value in attrs.items():
            each = value if isinstance(value, (list, tuple)) else (value,)
            if any(map(_is_open, each)):  # int() of one would fix it in all of the graph
                raise Varies(f"its {key} depends on a free size")
        name = self.names.layer(self.node, op) if inner is None else self.names.part(self.node, op)
        given = {role: p for role, p in (params or {}).items() if p is not None}
        takes_values = isinstance(ops.REGISTRY.get(f"{op}_given"), Given)
        if takes_values and any(isinstance(p, Value) for p in given.values()):
            inputs = (*inputs, *(given[role] for role in ops.get(op).params if role in given))
            op, given = f"{op}_given", {}
        if len(inputs) > (most := ops.get(op).arity[1]):
            raise Unsupported(f"op {op!r} takes {most} inputs at most, got {len(inputs)}")
        if is_product(op):
            factors(self.node)
        dtypes = taken_dtypes(op, inputs, given, attrs)
        keys = {role: self._param(role, p) for role, p in given.items()}
        sources = [self.store.value(x, dtype).name for x, dtype in zip(inputs, dtypes, strict=True)]
        made = self.store.add(op, name, sources, keys, attrs, self.shape if inner is None else inner)
        one = op in ("linear", "matmul") and inputs[0].shape[-1:] == (1,)  # term: of it none is rounded
        if is_product(op) and not one:
            operands = (*inputs, *given.values())
            self.store.products[made.name] = of_bfloat16(self.store, self.node, op, operands, sources)
        return made

    def results(self, first: Value) -> Any:
        """``first`` as what the operation returns: itself, or a list of results of which no other is read."""
        if not isinstance(self.node.meta["val"], (tuple, list)):
            return first
        if self.used != [0]:
            raise Unsupported("more than its first result is used")
        return [first]

    def _param(self, role: str, operand: Operand) -> str:
        if isinstance(operand, Value):
            raise Unsupported(f"its {role} is computed from the input")
        return self.store.param(operand)

    def const(self, array: Any, what: str = "value") -> Const:
        return self.derived(what, load_torch().as_tensor(array))

    def derived(self, what: str, tensor: "torch.Tensor") -> Const:
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
