"""A part of a graph as torch computes it: to measure beside bslite's, and for values without elements, which
the engine does not take.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from torch.fx.passes.utils.fuser_utils import fuse_as_graphmodule

from bslite.dropin.partition import Part
from bslite.frontends.torch.graph import Graph, has_tensors

Node = torch.fx.Node
Tensor = torch.Tensor
Call = Callable[[Sequence[Tensor]], list[Tensor]]


def twin(graph: Graph, part: Part, more: Iterable[Node] = ()) -> tuple[torch.fx.GraphModule, Sequence[Node]]:
    """A module of the part's nodes (and ``more``), and the nodes that it reads. It gives a tuple of the
    part's outputs.
    """
    nodes = _with_between(graph.nodes, {*part.nodes, *more})
    module, read, _ = fuse_as_graphmodule(graph.program.graph_module, nodes, "part")
    copied = {n.name: n for n in module.graph.nodes}
    next(iter(module.graph.find_nodes(op="output"))).args = (tuple(copied[n.name] for n in part.outputs),)
    module.recompile()
    return module, read


def may_be_empty(part: Part) -> bool:
    """Whether values say how large an input of the part is: a selection by a mask may select nothing."""
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    return any(free_unbacked_symbols(n.meta["val"]) for n in part.inputs)


def unless_empty(model: Call, graph: Graph, part: Part, value_of: Callable[[str], Tensor]) -> Call:
    """``model``, a function of the part's inputs; if one of them has no elements, torch computes the part.

    ``value_of``: the present parameter or buffer by the name that the export gave it.
    """
    sizes = _sizes(part)
    between = {*_with_between(graph.nodes, {*part.nodes, *sizes})} - {*part.nodes, *sizes}
    if not between <= {*graph.hollow}:
        return model  # operations of torch's, such as one in place, are not done twice
    module, read = twin(graph, part, sizes)
    targets = {s.arg.name: s.target for s in graph.program.graph_signature.input_specs}
    stored = {n: value_of(targets[n.name]) for n in read if n in graph.stored}
    if not set(read) <= {*stored, *part.inputs}:
        return model  # a call with such an input is torch's as a whole

    def call(tensors: Sequence[Tensor]) -> list[Tensor]:
        if all(t.numel() for t in tensors):
            return model(tensors)
        values: Mapping[Node, Tensor] = {**stored, **dict(zip(part.inputs, tensors, strict=True))}
        return list(module(*(values[n] for n in read)))

    return call


def _sizes(part: Part) -> set[Node]:
    """The nodes outside the part that make the sizes it reads."""
    found = set[Node]()
    waiting = [a for n in part.nodes for a in n.all_input_nodes]
    while waiting:
        node = waiting.pop()
        if node.op == "call_function" and not has_tensors(node) and node not in found:
            found.add(node)
            waiting += node.all_input_nodes
    return found - set(part.nodes)


def _with_between(order: Sequence[Node], inside: set[Node]) -> list[Node]:
    """Such nodes, and those that their values pass through on their way from one to another: memory of which
    no element is used, say, is none of a part's operations.
    """
    after, passed = set[Node](), set[Node]()
    for n in order:
        if n not in inside and any(i in inside or i in after for i in n.all_input_nodes):
            after.add(n)
    for n in reversed(order):
        if n in after and any(u in inside or u in passed for u in n.users):
            passed.add(n)
    return [n for n in order if n in inside or n in passed]
