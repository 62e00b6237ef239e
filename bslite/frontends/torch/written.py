"""Operations in place, in a traced graph, as values: after this no tensor changes.

Whoever reads a tensor, or a view of it, after another view was written to reads what was written: the view
is put back into the tensor that it is of, others are taken from it anew. Gradients are those of the
operations in place.
"""

import math
import operator
from collections.abc import Collection
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bslite.errors import UnsupportedError
from bslite.frontends.common.lazy import load_torch
from bslite.frontends.torch.builders import operation
from bslite.frontends.torch.graph import draws, is_getitem, is_same, targets, transforms, writes
from bslite.frontends.torch.memory import memory
from bslite.frontends.torch.put import put
from bslite.frontends.torch.values import dims

if TYPE_CHECKING:
    from torch.fx import Node

RESHAPED = ("view", "reshape", "_unsafe_view", "unsqueeze", "squeeze", "flatten", "unflatten", "view_as")
SAME = ("alias", "contiguous", "to", "type_as", "lift_fresh")


def write_values(graph: Any, name: str, states: "Collection[Node]" = ()) -> "dict[Node, Node]":
    """Replace the operations in place by their twins that make a value, but for those on what the graph is
    given and those that fill new memory with drawn numbers.

    ``states``: what the graph is given and writes to all the same, without gradients. Returns the values that
    they have at the end, of those that are written to.

    Raises UnsupportedError for one that has no twin, and for a view that cannot be put back.
    """
    aten = load_torch().ops.aten
    for node in graph.nodes:  # what is viewed may be a value with other strides by then
        if node.target in (aten.view.default, aten._unsafe_view.default):
            node.target = aten.reshape.default
    values = _Values(graph, name, states)
    values.write()
    graph.lint()
    return values.written


def functionalized(program: Any) -> Any:
    """``program``, a ``torch.export.ExportedProgram``, with values for its operations in place, or None where
    that takes more than `write_values` does: torch, which traces all of it again to do so, has to.
    """
    nodes = program.graph.nodes
    given = {memory(n) for n in nodes if n.op == "placeholder"}
    written = {memory(x) for n in nodes for x in targets(n)}
    if not written or not given.isdisjoint(written):
        return None
    if any(transforms(n) or n.op == "get_attr" for n in nodes):
        return None
    graph = _copied(program)
    try:
        write_values(graph, "")
    except Exception:  # of whatever kind: torch may know how
        return None
    return holding(program, graph)


def with_views(program: Any) -> Any:
    """``program`` with views, which torch knows for such, in the place of dropouts that do nothing."""
    return holding(program, _copied(program))


def _copied(program: Any) -> Any:
    """A copy of the program's graph. What gives back its operand itself is a view there."""
    torch = load_torch()
    graph, new = torch.fx.Graph(), dict["Node", "Node"]()
    for node in program.graph.nodes:
        made = new[node] = graph.node_copy(node, new.__getitem__)
        made.name = node.name  # which a new graph would not give to an input called "input"
        if operation(node) == "detach" or is_same(node):  # or detach_, with no gradients to be kept from
            made.target, made.args = torch.ops.aten.alias.default, made.args[:1]
    return graph


def holding(program: Any, graph: Any) -> Any:
    """``program`` with another graph."""
    torch = load_torch()
    results = torch.utils._pytree.tree_leaves(next(iter(reversed(graph.nodes))).args[0])
    signature = copy(program.graph_signature)
    signature.output_specs = [
        replace(s, arg=replace(s.arg, name=made.name)) if hasattr(made, "name") else s
        for s, made in zip(signature.output_specs, results, strict=True)
    ]
    return torch.export.ExportedProgram(
        program.graph_module, graph, signature, program.state_dict, program.range_constraints,
        program.module_call_graph, program.example_inputs, program.constants,
        verifiers=program.verifiers,
    )  # fmt: skip


class _Values:
    """The tensors of a traced graph by the names that it has for them, and their values by and by.

    ``base``: the tensor that a view is of. ``now``: a tensor's present value, and of which write. ``names``:
    the tensor that a new node is a value of.
    """

    def __init__(self, graph: Any, name: str, states: "Collection[Node]") -> None:
        self.graph, self.name, self.states = graph, name, states
        self.base: dict[Node, Node] = {}
        self.now: dict[Node, tuple[Node, int]] = {}
        self.writes: dict[Node, int] = {}  # to the memory of a tensor that is no view
        self.names: dict[Node, Node] = {}
        self.places: dict[int, Node] = {}  # memory -> the first tensor that lies there

    def write(self) -> None:
        """Go through the graph in order."""
        for node in list(self.graph.nodes):
            viewed = self._viewed(node)
            for source in node.all_input_nodes:
                with self.graph.inserting_before(node):
                    present = self._present(source)
                if present is not source:
                    node.replace_input_with(source, present)
            if node.op == "call_function" and writes(node):
                self._write(node)
            elif viewed is not None:
                self.base[node] = viewed
                self.now[node] = node, self.writes.get(self._root(viewed), 0)

    @property
    def written(self) -> "dict[Node, Node]":
        """The states that were written to, and their values now."""
        return {n: self.now[n][0] for n in self.states if self.writes.get(n)}

    def _name(self, node: "Node") -> "Node":
        return self.names.get(node, node)

    def _viewed(self, node: "Node") -> "Node | None":
        """The tensor that ``node`` is a view of, if it is one."""
        place = memory(node)
        first = None if place is None else self.places.setdefault(place, node)
        source: Any = node.args[0] if node.args else None
        if hasattr(source, "meta") and memory(self._name(source)) == place:
            return None if place is None else self._name(source)
        listed = [n for n in map(self._name, node.all_input_nodes) if memory(n) == place is not None]
        if len(listed) == 1 and not is_getitem(node):  # the operand of an einsum that only permutes
            return listed[0]
        return None if first is node else first  # one of several results, such as a chunk

    def _root(self, node: "Node") -> "Node":
        while node in self.base:
            node = self.base[node]
        return node

    def _present(self, node: "Node") -> "Node":
        """The value of a tensor after the last write to its memory."""
        node = self._name(node)
        count = self.writes.get(self._root(node), 0)
        value, of = self.now.get(node, (node, 0))
        if of != count:
            base = self.base[node]
            at = self._present(base)
            if is_getitem(node):
                raise self._cannot(node)
            args = load_torch().fx.map_arg(node.args, lambda n: at if self._name(n) is base else n)
            value = put(self.graph, node, node.target, *args, **node.kwargs)
            self.now[node], self.names[value] = (value, count), node
        return value

    def _write(self, node: "Node") -> None:
        written = targets(node)
        if len(written) != 1:
            raise self._cannot(node)
        (target,) = written
        place = self._name(target)
        root = self._root(place)
        given = root.op == "placeholder" and root not in self.states
        if (given and place is root) or (draws(node) and self._is_new(node, place)):
            self.now[place], self.names[node] = (node, self.writes.get(root, 0)), place
            return  # the module's own, or given: `rewrite` says what may be done to them
        if given:
            raise self._cannot(node)
        turned = load_torch().Tag.inplace_view in node.target.tags  # type: ignore[union-attr]
        if turned and (place in self.base or place in self.base.values()):
            raise self._cannot(node)  # it gets another shape, of which its views are none
        if not turned and any(isinstance(d, int) and d == 0 for d in dims(target.meta["val"])):
            node.replace_all_uses_with(target)
            self.graph.erase_node(node)
            return
        with self.graph.inserting_before(node):
            value = self._twin(node, target)
            if root in self.states:  # no gradient passes, though autograd sees none of it
                value = put(self.graph, node, load_torch().ops.aten.detach.default, value)
            made = {place: value}
            while place in self.base:
                before = self._present(self.base[place])
                value = self._put_back(place, before, value)
                place = self.base[place]
                made[place] = value
        count = self.writes[root] = self.writes.get(root, 0) + 1
        for tensor, value in made.items():
            self.now[tensor], self.names[value] = (value, count), tensor
        node.replace_all_uses_with(next(iter(made.values())))
        self.graph.erase_node(node)

    def _is_new(self, node: "Node", first: "Node") -> bool:
        """Whether the first thing that happens to a tensor is that it is filled."""
        return first not in self.base and next(iter(first.users)) is node and operation(node) != "dropout"

    def _twin(self, node: "Node", x: "Node") -> "Node":
        """A new node that makes what ``node`` writes to ``x``, in its shape and of its dtype."""
        aten, op, args = load_torch().ops.aten, operation(node), list[Any](node.args[1:])
        want = x.meta["val"]

        def made(target: Any, *given: Any, **named: Any) -> "Node":
            return put(self.graph, node, target, *given, **named)

        if op == "zero" or (op == "fill" and not hasattr(args[0], "meta")):
            return made(aten.full_like.default, x, args[0] if args else 0)
        if op in ("copy", "fill"):
            value, have = args[0], args[0].meta["val"]
            if dims(have) != dims(want):
                value = made(aten.expand.default, value, self._sizes(x))
            if have.dtype != want.dtype:
                value = made(aten.to.dtype, value, want.dtype)
            return made(aten.clone.default, value)
        named = {key: given for key, given in node.kwargs.items() if given is not x}  # which is the last
        takes = _takes(node.target)[: len(_takes(node.target)) - (len(node.kwargs) - len(named))]
        overload = node.target._overloadname  # type: ignore[union-attr]
        for other in (  # pow's and others have other names
            overload, "default", "Tensor", f"Tensor_{overload}", overload.removesuffix("_out"),
        ):  # fmt: skip
            twin = getattr(getattr(aten, op, None), other, None)
            if twin is not None and _takes(twin) == takes and not twin._schema.is_mutable:
                break
        else:
            raise self._cannot(node)
        value = made(twin, *node.args, **named)
        have = value.meta["val"]
        if len(named) < len(node.kwargs) and dims(have) != dims(want):  # an out= gets another shape
            raise self._cannot(node)
        return value if have.dtype == want.dtype else made(aten.to.dtype, value, want.dtype)

    def _put_back(self, view: "Node", whole: "Node", value: "Node") -> "Node":
        """``whole`` with ``value`` in the place of ``view``, which was taken from it."""
        aten, op, args = load_torch().ops.aten, operation(view), list[Any](view.args[1:])
        if value.meta["val"].dtype != whole.meta["val"].dtype:
            raise self._cannot(view)  # the bits of other numbers

        def made(target: Any, *given: Any) -> "Node":
            return put(self.graph, view, target, *given)

        if op == "slice":
            return made(aten.slice_scatter.default, whole, value, *args)
        if op == "narrow":
            axis, start, count = args
            end = made(operator.add, start, count) if {type(start), type(count)} != {int} else start + count
            return made(aten.slice_scatter.default, whole, value, axis, start, end)
        if op == "select":
            return made(aten.select_scatter.default, whole, value, *args)
        if op in ("transpose", "t"):
            return made(view.target, value, *args)
        if op == "permute":
            axes = [a % len(args[0]) for a in args[0]]
            return made(aten.permute.default, value, [axes.index(i) for i in range(len(axes))])
        if op in RESHAPED and math.prod(dims(value.meta["val"])) == math.prod(dims(whole.meta["val"])):
            return made(aten.reshape.default, value, self._sizes(whole))
        if op in SAME or is_same(view) or (op == "detach" and self._root(view) in self.states):
            return value
        raise self._cannot(view)

    def _sizes(self, node: "Node") -> "list[int | Node]":
        """The shape of ``node``; a free size is a node of its own."""
        size = load_torch().ops.aten.sym_size.int
        shape = enumerate(node.meta["val"].shape)
        return [n if isinstance(n, int) else put(self.graph, node, size, node, i) for i, n in shape]

    def _cannot(self, node: "Node") -> UnsupportedError:
        return UnsupportedError(
            f"model {self.name!r}: an operation in place shows elsewhere, at {node.name!r}"
        )


def _takes(target: Any) -> list[str]:
    """The types of an operation's arguments."""
    return [str(argument.type) for argument in target._schema.arguments]
