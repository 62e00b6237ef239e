"""Regions of a traced graph, written out; what is computed where gradients are off is detached."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bslite.errors import UnsupportedError
from bslite.frontends.common.lazy import load_torch
from bslite.frontends.torch.graph import has_tensors, targets
from bslite.frontends.torch.memory import memory

if TYPE_CHECKING:
    from torch.fx import Node


def write_out(program: Any, name: str) -> "set[Node]":
    """Put the operations of ``torch.no_grad`` and ``enable_grad`` regions among the others, their results
    detached where gradients are off and they are read elsewhere. Returns the operations where they are off.

    Raises UnsupportedError if something from elsewhere is changed in place where gradients are off, unseen by
    autograd.
    """
    without: set[Node] = set()
    write_regions(program, without)
    aten, graph = load_torch().ops.aten, program.graph
    stored = {n for n in graph.nodes if n.op == "placeholder"}
    first: dict[int | None, Node] = {}  # tensor in a memory
    for node in graph.nodes:
        first.setdefault(memory(node), node)
    for node in list(graph.nodes):
        if node not in without or not has_tensors(node):
            continue
        for place in map(memory, targets(node)):
            if place is None or not (first[place] in stored or first[place] in without):
                raise UnsupportedError(
                    f"model {name!r}: a tensor is changed in place where gradients are off"
                )
        outside = [user for user in node.users if user not in without]
        if outside and hasattr(node.meta["val"], "dtype"):
            with graph.inserting_after(node):
                cut = graph.call_function(aten.detach.default, (node,))
            cut.meta = dict(node.meta)
            for user in outside:
                user.replace_input_with(node, cut)
    graph.lint()
    return without


def write_regions(program: Any, without: "set[Node]") -> None:
    """Put the operations of ``torch.no_grad`` and ``enable_grad`` regions among the others. ``without`` gets
    those where gradients are off.
    """
    region = load_torch().ops.higher_order.wrap_with_set_grad_enabled
    while found := [node for node in program.graph.nodes if node.target is region]:
        for node in found:
            enabled, held, *given = node.args
            without.discard(node)
            made = inline(program, node, held, given)
            without.update(() if enabled else made)
        program.graph_module.recompile()


def inline(program: Any, node: "Node", held: "Node", given: "Sequence[Any]") -> "list[Node]":
    """Put the operations of a region, which the attribute ``held`` holds, in the place of ``node``, which
    calls it for ``given``. Returns them, those within regions within not among them.
    """
    graph, inside = program.graph, getattr(program.graph_module, str(held.target))
    places = [n for n in inside.graph.nodes if n.op == "placeholder"]
    new: dict[Any, Any] = dict(zip(places, given, strict=True))
    made = []
    with graph.inserting_before(node):
        for n in inside.graph.nodes:
            if n.op == "get_attr":  # a region within
                path = f"{held.target}_{n.target}"
                program.graph_module.add_submodule(path, getattr(inside, n.target))
                new[n] = graph.get_attr(path)
            elif n.op == "call_function":
                new[n] = graph.node_copy(n, new.__getitem__)
                made.append(new[n])
    (results,) = next(n for n in inside.graph.nodes if n.op == "output").args
    for user in list(node.users):
        result = new[results[user.args[1]]]
        user.replace_all_uses_with(result)
        program.graph_signature.replace_all_uses(user.name, result.name)
        graph.erase_node(user)
    graph.erase_node(node)
    if not held.users:
        graph.erase_node(held)
    return made
