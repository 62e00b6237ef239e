"""Measures a part in training: both passes, of bslite and of torch, in turns, on what it is given."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks

from bslite.dropin.partition import Part
from bslite.errors import UnsupportedError
from bslite.frontends.torch.graph import Graph, filled_with, is_filled

Tensor = torch.Tensor
Node = torch.fx.Node
Pass = Callable[[Sequence[Tensor], Sequence[Tensor]], Sequence[Tensor]]  # inputs and weights to outputs
ROUNDS = 5
BUDGET = 2.0  # seconds that the rounds of one part may take, but for the first


@dataclass(frozen=True)
class Peer:
    """A part as torch runs it: ``run`` takes the part's inputs and the ``weights``."""

    run: Pass
    weights: Sequence[Tensor]

    @classmethod
    def of(cls, graph: Graph, part: Part, value: Callable[[Node], Tensor]) -> "Peer":
        """The nodes of a part alone; ``value``: the present tensor of a parameter or buffer."""
        made, new = torch.fx.Graph(), dict[Node, Node]()
        read = constants(graph, part)
        inside = {*part.nodes, *read} - graph.stored
        stored = [n for n in graph.nodes if n in read and n in graph.stored]
        for node in (*part.inputs, *stored):
            new[node] = made.placeholder(node.name)
        for node in graph.nodes:
            if node not in inside or node in new:
                continue
            if is_filled(node) and not isinstance(node.args[-1], Node):  # the part need not read its operand
                like = node.meta["val"]
                args = list(like.shape), filled_with(node, node.args)
                new[node] = made.call_function(torch.ops.aten.full.default, args, {"dtype": like.dtype})
            else:
                new[node] = made.node_copy(node, lambda n: new[n] if n in new else number_of(n))
        made.output([new[n] for n in part.outputs])
        function = torch.fx.GraphModule(graph.program.graph_module, made).forward
        return cls(lambda given, weights: function(*given, *weights), [value(n) for n in stored])


def number_of(node: Node) -> Any:
    """A number that a trace knows; UnsupportedError for one that values decide, and for a tensor."""
    value = node.meta.get("val")
    if not isinstance(value, (bool, int, float)):
        raise UnsupportedError(f"it reads {node.name!r}, which torch computes from values")
    return value


def constants(graph: Graph, part: Part) -> set[Node]:
    """The constants that a part reads, and what they are made of."""
    found: set[Node] = set()
    waiting = [a for n in part.nodes for a in n.all_input_nodes]
    while waiting:
        node = waiting.pop()
        if node in graph.constant and node not in found:
            found.add(node)
            waiting += node.all_input_nodes
    return found


def seconds(
    first: tuple[Pass, Sequence[Tensor]], second: tuple[Pass, Sequence[Tensor]], given: Sequence[Tensor]
) -> tuple[float, float]:
    """Medians of the seconds that a forward and a backward pass of each takes, run in turns.

    The first run does not count. Neither leaves anything on the tape or in a gradient, and no hook sees it.
    """
    times: tuple[list[float], list[float]] = ([], [])
    with saved_tensors_hooks(_same, _same):
        for each in (first, second):
            _step(*each, given)
        start = time.perf_counter()
        for done in range(ROUNDS):
            if done and time.perf_counter() - start > BUDGET:
                break
            for each, taken in zip((first, second), times, strict=True):
                taken.append(_step(*each, given))
    return statistics.median(times[0]), statistics.median(times[1])


def _step(run: Pass, weights: Sequence[Tensor], given: Sequence[Tensor]) -> float:
    """Seconds of both passes, with leaves of its own."""
    leaves = [x.detach().requires_grad_(x.requires_grad) for x in (*given, *weights)]
    start = time.perf_counter()
    made = run(leaves[: len(given)], leaves[len(given) :])
    ends = [y for y in made if y.requires_grad]
    torch.autograd.grad(ends, [x for x in leaves if x.requires_grad], ends, allow_unused=True)
    return time.perf_counter() - start


def _same(tensor: Tensor) -> Tensor:
    return tensor
