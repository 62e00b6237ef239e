"""Rules that write an op as the nodes that an engine has kernels for, told in values."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bslite.errors import UnsupportedError
from bslite.ops import get, infer, parse_attrs
from bslite.ops.attention import Attention
from bslite.ops.contraction import BlockLinear
from bslite.ops.core import Attrs
from bslite.ops.training.attention_grad import AttentionGrad
from bslite.ops.training.batch import BatchNormGiven
from bslite.ops.training.losses import BinaryCrossEntropy
from bslite.ops.values import Param, Value
from bslite.passes.draft import Draft
from bslite.reference.contraction import numbers_of_blocks
from bslite.spec import Array, ModelSpec, Node


class DraftTape:
    """Nodes that are to stand in front of ``node``, named after it. Sizes are those of the examples."""

    def __init__(self, draft: Draft, node: Node) -> None:
        self._draft, self._node = draft, node
        self.nodes: list[Node] = []
        self.inputs = [self._value(name, draft.shape(name), draft.dtypes[name]) for name in node.inputs]

    def _value(self, name: str, shape: Sequence[int], dtype: str) -> Value:
        return Value(self, name, tuple(shape), dtype)

    def put(
        self, op: str, inputs: Sequence[Value], params: Mapping[str, Param] | None = None, **attrs: Any
    ) -> Value:
        """See `Tape`; parameters are none."""
        if params:
            raise UnsupportedError(f"op {op!r} in parts of another one takes no parameters")
        declared = get(op)
        parsed = parse_attrs(declared, attrs)
        name = f"{self._node.name}/{op} {len(self.nodes)}"
        self.nodes.append(Node(name, op, tuple(x.name for x in inputs), {}, parsed))
        shape = infer(declared, [x.shape for x in inputs], {}, parsed)
        return self._value(name, shape, declared.dtype([x.dtype for x in inputs], {}, parsed))

    def constant(self, value: npt.ArrayLike, dtype: npt.DTypeLike | None = None) -> Value:
        """See `Tape`."""
        array = np.asarray(value, dtype)
        array = array.astype(np.float32) if array.dtype.kind == "f" else array
        key = f"{self._node.name}/number {len(self.nodes)}"
        self._draft.params[key] = array
        self.nodes.append(Node(key, "constant", (), {"value": key}, {}))
        return self._value(key, array.shape, array.dtype.name)

    def stored(self, key: str) -> Value:
        """See `Tape`."""
        raise UnsupportedError(f"parameter {key!r} in parts of an op that has none")


def in_parts(draft: Draft, node: Node) -> bool:
    """A batch norm by statistics that are a value, or a loss, as arithmetic that chains take along."""
    op = node.declaration
    assert isinstance(op, (BatchNormGiven, BinaryCrossEntropy))
    return _written(draft, node, op.parts)


def attention_in_parts(spec: ModelSpec) -> ModelSpec:
    """Gradients of attention, and attention with dropouts, as the products that they are: for engines that
    have no kernel of them.
    """
    draft = Draft(spec)
    for node in spec.nodes:
        op = node.declaration
        if isinstance(op, AttentionGrad) or (isinstance(op, Attention) and node.attrs["dropped"]):
            _written(draft, node, op.parts)
    return draft.spec_now()


def blocks_widened(draft: Draft, node: Node) -> bool:
    """A matrix of numbers of a few bits as one of float32."""
    arrays = {role: draft.param(key) for role, key in node.params.items() if role != "bias"}
    bits, terms = node.attrs["bits"], draft.shape(node.inputs[0])[-1]

    def made() -> Array:
        numbers = numbers_of_blocks(arrays["weight"], arrays["scale"], arrays.get("zero"), bits)
        return np.ascontiguousarray(numbers[:, :terms])

    key = f"{node.name}/widened"
    draft.derive(key, ("blocks", bits, terms), list(arrays.values()), made)
    bias = {"bias": node.params["bias"]} if "bias" in node.params else {}
    draft.put(Node(node.name, "linear", node.inputs, {"weight": key, **bias}, {}))
    return True


def odd_blocks_widened(draft: Draft, node: Node) -> bool:
    """Blocks that are no whole cells of 4 bytes, which no kernel reads."""
    return draft.param(node.params["weight"]).shape[2] % 4 != 0 and blocks_widened(draft, node)


def all_blocks_widened(spec: ModelSpec) -> ModelSpec:
    """`blocks_widened` everywhere, for engines that have no kernel of them."""
    draft = Draft(spec)
    for node in spec.nodes:
        if isinstance(node.declaration, BlockLinear):
            blocks_widened(draft, node)
    return draft.spec_now()


def _written(draft: Draft, node: Node, parts: Callable[[Sequence[Value], Attrs], Value]) -> bool:
    """The last of the parts takes the node's place."""
    tape = DraftTape(draft, node)
    parts(tape.inputs, node.attrs)
    *before, last = tape.nodes
    draft.put(Node(node.name, last.op, last.inputs, last.params, last.attrs), *before)
    return True
