"""Tensors of a module that its forward writes to in training: averages of its own, codebooks, the vectors of
a spectral norm. The graph reads what they were before the call, and keeps their new values at its end. So a
backward pass that needs a value from before the change has it, where torch raises an error.
"""

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

from bslite.frontends.common.lazy import load_torch
from bslite.frontends.torch.builders import operation
from bslite.frontends.torch.graph import targets
from bslite.frontends.torch.memory import memory
from bslite.frontends.torch.put import put
from bslite.frontends.torch.written import write_values

if TYPE_CHECKING:
    from torch.fx import Node

#: Layers that note statistics, of which their schemas say nothing.
NOTING = ("batch_norm", "instance_norm", "native_batch_norm")
OWN = ("PARAMETER", "BUFFER")  # kinds of placeholder that hold a tensor of the module


def keep_states(program: Any, name: str, without: "Collection[Node]", keep: Any) -> "set[Node]":
    """Write values for operations in place (`write_values`), also for those on states. Returns the nodes that
    keep these: calls of ``keep`` with a state and its value. ``without``: operations where gradients are off.

    What is written to otherwise is left as it is: counters, a result's memory, what gradients flow to.
    """
    kinds = {s.arg.name: s.kind.name for s in program.graph_signature.input_specs}
    aten, graph = load_torch().ops.aten, program.graph
    written = {memory(x) for n in graph.nodes for x in targets(n)}
    own = (n for n in graph.nodes if kinds.get(n.name) in OWN and memory(n) in written)
    _untie(n for n in own if not n.meta["val"].requires_grad)
    others = {memory(n) for n in graph.nodes if n.op == "placeholder" and kinds[n.name] not in OWN}
    states = [n for n in _states(graph, without) if memory(n) not in others]
    before: dict[Node, Node] = {}  # autograd is to save no tensor that changes
    (*_, output) = graph.nodes
    for state, value in write_values(graph, name, states).items():
        with graph.inserting_after(state):
            before[state] = put(graph, state, aten.clone.default, state)
        for reader in [user for user in state.users if user is not before[state]]:
            reader.replace_input_with(state, before[state])
        with graph.inserting_before(output):
            graph.call_function(keep, (state, value))
    return {node for node in graph.nodes if node.target is keep}


def _untie(given: "Iterable[Node]") -> None:
    """Have one name for a tensor that has several and that no gradient flows to."""
    first: dict[Any, Node] = {}
    for node in given:
        value: Any = node.meta["val"]
        place = memory(node)
        if place is not None:
            same = first.setdefault((place, value.shape, value.stride(), value.storage_offset()), node)
            if same is not node:
                node.replace_all_uses_with(same)


def _states(graph: Any, without: "Collection[Node]") -> "list[Node]":
    """What the graph is given, needs no gradients and is written to, not only to count."""
    (*_, output) = graph.nodes
    given: dict[int | None, Node] = {}
    for node in graph.nodes:
        if node.op == "placeholder" and memory(node) is not None:
            given.setdefault(memory(node), node)
    results = {memory(n) for n in output.all_input_nodes}
    learns = {n for n in graph.nodes if n.op == "placeholder" and n.meta["val"].requires_grad}
    learning = set(map(memory, learns))
    learnt = set[int | None]()  # memory that was written to with gradients
    written: dict[Node, list[Node]] = {}
    for node in graph.nodes:
        places = [memory(x) for x in targets(node)]
        for place in places:
            if place in given:
                written.setdefault(given[place], []).append(node)
        reads = any(n in learns or memory(n) in learnt for n in node.all_input_nodes)
        if reads and node not in without and operation(node) != "detach" and not _is_whole(node):
            learns.add(node)
            learnt.update(places)
    return [
        state
        for state, nodes in written.items()
        if memory(state) not in learning | learnt | results
        and not all(map(only_counts, nodes))
        and not any(operation(user) in NOTING and state in user.args[3:] for user in state.users)
    ]


def _is_whole(node: "Node") -> bool:
    """Whether a node makes a tensor of whole numbers or truth values, which has no gradients."""
    value = node.meta.get("val")
    if not isinstance(value, load_torch().Tensor):
        return False
    return not (value.is_floating_point() or value.is_complex())


def only_counts(node: Any) -> bool:
    """Whether ``node`` adds 1 to a tensor that the graph is given, and nothing but another such step of a
    counter reads what it makes.
    """
    add = load_torch().ops.aten.add_.Tensor
    return bool(node.target is add and node.args[1] == 1) and all(
        user.target is add and user.args[0] is node for user in node.users
    )
