"""Facts about an exported graph: live nodes, constants, modules that become one op, in-place changes."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from bslite.frontends.common.lazy import load_torch
from bslite.frontends.torch.builders import find, meets_complex, operation
from bslite.frontends.torch.memory import LIES, memory
from bslite.frontends.torch.names import Call, call_of
from bslite.frontends.torch.ops import DROPOUTS, MODULES, is_no_op
from bslite.frontends.torch.values import dims

if TYPE_CHECKING:
    import torch

    from bslite.frontends.torch.sizes import Sizes

    Node = torch.fx.Node

STORED = ("PARAMETER", "BUFFER", "CONSTANT_TENSOR")  # kinds of placeholder that hold a known tensor
#: Operations that take from their operand its dtype and device alone, from arguments the rest.
FILLED = ("new_zeros", "new_ones", "new_full", "new_empty")
#: Operations that leave out operands without elements.
JOINS = ("cat", "concat", "concatenate")


class Graph:
    """An exported program, with the nodes that the outputs need and those that depend on no input."""

    def __init__(self, program: Any, sizes: "Sizes | None" = None) -> None:
        """``program``: a ``torch.export.ExportedProgram``, or one with sizes `fixed`; ``sizes``: those left
        free, if there are more than the batch.
        """
        self.program, self.sizes = program, sizes
        self.nodes: list[Node] = list(program.graph.nodes)
        kinds = {s.arg.name: s.kind.name for s in program.graph_signature.input_specs}
        self.stored = {n for n in self.nodes if n.op == "placeholder" and kinds[n.name] in STORED}
        self.hollow = self._hollow()
        self.live = self._live()
        self.constant = self._constant()
        self.whole = self._whole_modules()

    def _live(self) -> "set[Node]":
        """The nodes that an output depends on."""
        live: set[Node] = set()
        for node in reversed(self.nodes):
            if node.op == "output":
                live.add(node)
            if node in live and node not in self.hollow:
                live.update(node.all_input_nodes)
        return live

    def _hollow(self) -> "set[Node]":
        """The nodes that make tensors without elements for joins to leave out: what they are made of is not
        needed.
        """
        hollow: set[Node] = set()
        for node in reversed(self.nodes):
            if (
                node.op == "call_function"
                and is_empty(node)
                and all(u in hollow or (operation(u) in JOINS and not is_empty(u)) for u in node.users)
            ):
                hollow.add(node)
        return hollow

    def _constant(self) -> "set[Node]":
        """The nodes that compute the same whatever the input: they are evaluated once, here."""
        torch = load_torch()
        constant = self.stored | self.hollow
        for node in self.nodes:
            tags = getattr(node.target, "tags", ())
            if (
                node.op == "call_function"
                and (all(n in constant for n in node.all_input_nodes) or is_filled(node))
                and torch.Tag.nondeterministic_seeded not in tags
            ):
                constant.add(node)
        return constant

    def _whole_modules(self) -> "dict[Node, Node | None]":
        """Nodes of modules and functions that become one op: the result -> the input, the other nodes ->
        None.
        """
        groups: dict[Call, list[Node]] = {}
        for node in self.operations():
            call = call_of(node)
            if call.kind in MODULES:
                groups.setdefault(call, []).append(node)
        whole: dict[Node, Node | None] = {}
        for node in self.operations():
            if group := normalization(node):
                whole |= dict.fromkeys(group)
                whole[node] = node.args[0]  # type: ignore[assignment]
        for nodes in groups.values():
            sources = {a for n in nodes for a in n.all_input_nodes if has_tensors(a)} - {
                *nodes,
                *self.constant,
            }
            results = [n for n in nodes if not set(n.users) <= set(nodes)]
            if len(sources) == len(results) == 1:
                whole.update(dict.fromkeys(nodes))
                whole[results[0]] = sources.pop()
        return whole

    def operations(self) -> "Iterator[Node]":
        """The nodes that compute activations."""
        for node in self.nodes:
            if (
                node.op == "call_function"
                and node in self.live
                and node not in self.constant
                and has_tensors(node)
            ):
                yield node

    def layers(self) -> "Iterator[Node]":
        """The operations that become layers: no no-ops, one node for a module that becomes one op."""
        for node in self.operations():
            if node in self.whole:
                if self.whole[node]:
                    yield node
            elif not is_getitem(node) and not is_no_op(node):
                yield node

    def unknown(self) -> bool:
        """Whether some operation has no builder."""
        return any(not is_getitem(n) and n not in self.whole and not find(n) for n in self.operations())

    def mutation_shows(self, known: "Collection[Node]" = ()) -> bool:
        """Whether some in-place operation does more than its out-of-place twin would.

        It does if memory it changed is read later under a name older than its result, or if it changes a
        tensor of the module. Else ``relu_`` is just ``relu``. Nodes that are ``known`` to do so do not count.
        """
        names: dict[int, list[Node]] = {}  # memory -> the nodes that name it, oldest first
        changed: dict[int, Node] = {}  # memory -> the last operation that changed it
        order = {node: i for i, node in enumerate(self.nodes)}
        for node in self.nodes:
            if node in known:
                continue
            for source in node.all_input_nodes:
                last = changed.get(memory(source) or 0)
                if last is not None and order[source] < order[last]:
                    return True
            if writes(node) and node.all_input_nodes:
                written = targets(node)
                place = memory(written[0]) if written == list(node.args[:1]) else None
                if place is None or any(n in self.stored for n in names.get(place, ())):
                    return True
                changed[place] = node
            place = memory(node)
            if place is not None:
                names.setdefault(place, []).append(node)
        return False


def normalization(node: "Node") -> "list[Node]":
    """The operations of ``F.normalize`` in L2, last one first, if ``node`` is the last; else []."""
    if operation(node) != "div" or len(node.all_input_nodes) != 2 or meets_complex(node):
        return []
    group: list[Node] = [node]
    before: Any = node.args[1]
    for names in (("expand_as", "expand"), ("clamp_min",), ("linalg_vector_norm",)):
        if not hasattr(before, "users") or operation(before) not in names or len(before.users) != 1:
            return []
        group.append(before)
        before = before.args[0]
    order, axes, keep = (*group[3].args[1:], None, None, None)[:3]
    right = before is node.args[0] and order in (2, None) and keep is True
    return group if right and isinstance(axes, (list, tuple)) and len(axes) == 1 else []


def is_filled(node: "Node") -> bool:
    """Whether ``node`` makes a tensor of one number, of a shape that is the same for every input."""
    return operation(node) in FILLED and all(isinstance(d, int) for d in dims(node.meta["val"]))


def filled_with(node: "Node", args: "Sequence[Any]") -> Any:
    """The number that a node of `is_filled` makes a tensor of."""
    return {"new_zeros": 0, "new_ones": 1, "new_empty": 0}.get(operation(node), args[-1])


def is_empty(node: "Node") -> bool:
    """Whether ``node`` makes a tensor without elements, whatever the input."""
    value = node.meta.get("val")
    return isinstance(value, load_torch().Tensor) and 0 in dims(value)


def is_getitem(node: "Node") -> bool:
    """Whether ``node`` picks one of several results."""
    return getattr(node.target, "__name__", "") == "getitem"


def has_tensors(node: "Node") -> bool:
    """Whether ``node`` makes tensors; else a size, a number or an assertion."""
    torch = load_torch()
    value = node.meta.get("val")
    values = value if isinstance(value, (tuple, list)) else (value,)
    return any(isinstance(v, torch.Tensor) for v in values)


def unseen_view(nodes: "Iterable[Node]") -> "Node | None":
    """A node whose result lies in memory of an operand, and is written there, though its schema says nothing
    of it: an einsum that only permutes, a meshgrid.
    """
    nodes = list(nodes)
    written = {memory(x) for n in nodes for x in targets(n)} - {None}
    for node in nodes:
        made: Any = node.args[0] if is_getitem(node) else node
        schema = getattr(made.target, "_schema", None)
        if schema is None or memory(node) not in written or any(r.alias_info for r in schema.returns):
            continue
        if memory(node) in [memory(n) for n in made.all_input_nodes]:
            return node
    return None


def note_memory(graph: Any) -> None:
    """Note where tensors lie in the memory of others, unknown to the trace: dropouts that do nothing. And
    where they do not, although the trace says so: a number that the forward writes down is copied for each
    call, and the copy may be written to.
    """
    joined: dict[int | None, int | None] = {}
    for i, node in enumerate(graph.nodes):
        if node.op == "placeholder" and [operation(user) for user in node.users] == ["lift_fresh_copy"]:
            node.meta[LIES] = -1 - i  # nobody else's
        if is_same(node):
            joined[memory(node)] = memory(node.args[0])
        if (place := joined.get(memory(node))) is not None:
            node.meta[LIES] = place


def is_same(node: Any) -> bool:
    """Whether ``node`` is a dropout that gives back its operand itself; a trace takes it for a new tensor."""
    if getattr(node, "op", "") != "call_function" or operation(node) not in DROPOUTS:
        return False
    p, training = node.args[1:3]
    return not training or p == 0


def draws(node: "Node") -> bool:
    """Whether ``node`` takes numbers from torch's generator, so that the order of those that do counts."""
    if load_torch().Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        return False
    name = operation(node)
    if name.endswith("dropout"):
        return bool(node.args[2])
    if name == "scaled_dot_product_attention":
        return len(node.args) > 4 and bool(node.args[4])
    return True


def transforms(node: "Node") -> bool:
    """Whether ``node`` enters or leaves a transform of torch.func, within which tensors are others than their
    shapes say.
    """
    return getattr(node.target, "__module__", "").startswith("torch._functorch")


def writes(node: "Node") -> bool:
    """Whether ``node`` works in place: it changes the numbers of an operand."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable and operation(node) != "detach"


def targets(node: "Node") -> "list[Node]":
    """The operands whose numbers ``node`` changes; none if it does not work in place."""
    if node.op != "call_function" or not writes(node):
        return []
    arguments = node.target._schema.arguments  # type: ignore[union-attr]
    given = dict(zip([a.name for a in arguments], node.args, strict=False)) | node.kwargs
    values = [given.get(a.name) for a in arguments if a.alias_info is not None and a.alias_info.is_write]
    found: list[Any] = [x for v in values for x in (v if isinstance(v, (list, tuple)) else (v,))]
    return [x for x in found if hasattr(x, "meta")]
