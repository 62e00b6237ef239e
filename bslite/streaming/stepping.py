"""Makes the model of some time steps, which takes a state and gives the next, from one of whole sequences."""

import dataclasses
from dataclasses import dataclass

from bslite.ops import Shape
from bslite.passes.rewrite import needed, params_of
from bslite.spec import Input, ModelSpec, Node
from bslite.streaming.flow import Flow, flow_of
from bslite.streaming.places import Held, Steps, resized
from bslite.streaming.rules import RECURRENT

#: What the state after is called behind the state's name, and the layers that cut it out.
NEXT = ("next", "next_row", "next_part")


@dataclass(frozen=True)
class State:
    """One state of one recurrent layer: ``name`` is the layer's, then ``.h`` or ``.c``.

    ``value``: the name of the step model's input; the same, unless a layer has it.
    """

    name: str
    value: str
    layer: str
    shape: Shape  # [N, H]
    start: str = ""  # the model's value it starts from; "": zeros


def step_model(spec: ModelSpec, steps: int = 1, batch: int | None = None) -> ModelSpec:
    """The model of ``steps`` time steps of ``spec``'s sequence; ``batch`` streams, if that is free.

    Its inputs are those of ``spec`` that are sequences, cut to so many steps, those that are held and that a
    step needs, then the states before, ``[N, H]`` each, named by layer. Its outputs are those of ``spec``,
    then the states after, in the same order. Parameters are shared.

    Raises SpecError for a model without recurrent layers, UnsupportedError naming every layer that mixes time
    steps: backward and bidirectional layers, convolutions and reductions over time, ...
    """
    flow = flow_of(spec, batch)
    return stepping(flow, states_of(flow), steps)


def states_of(flow: Flow) -> list[State]:
    """The states of all recurrent layers, in order."""
    found = []
    taken = {i.name for i in flow.spec.inputs} | {n.name for n in flow.spec.nodes}
    for node in flow.spec.nodes:
        if node.op not in RECURRENT:
            continue
        params = flow.spec.param_shapes(node)
        batch = flow.shapes[node.inputs[0]][1]
        widths = {"h": params["weight_hh"][1]}
        if node.op == "lstm":
            widths["c"] = params["weight_ih"][0] // 4
        starts = node.inputs[1:] if node.attrs["initial_state"] else ("",) * len(widths)
        for (which, width), start in zip(widths.items(), starts, strict=True):
            name = value = f"{node.name}.{which}"
            while not taken.isdisjoint({value, *(f"{value}.{end}" for end in NEXT)}):
                value += "'"
            found.append(State(name, value, node.name, (batch, width), start))
    return found


def starting(flow: Flow, states: list[State]) -> ModelSpec | None:
    """The model of the states before the first step, from the inputs that are held; None if all are zeros."""
    wanted = list(dict.fromkeys(s.start for s in states if s.start))
    if not wanted:
        return None
    nodes = needed([_sized(flow, node) for node in flow.spec.nodes], wanted)
    read = {name for node in nodes for name in node.inputs} | set(wanted)
    inputs = [_fixed(flow, i, 0) for i in flow.held if i.name in read]
    return _model(flow, "start", inputs or [Input("nothing", (1,))], nodes, wanted)


def _sized(flow: Flow, node: Node) -> Node:
    """A held value that is repeated for the batch of a sequence, repeated for a batch of that size."""
    if node.op == "repeat_batch" and isinstance(flow.places[node.name], Held):
        return Node(node.name, "expand", node.inputs[:1], {}, {"shape": flow.shapes[node.name]})
    return node


def stepping(flow: Flow, states: list[State], steps: int) -> ModelSpec:
    """The model of ``steps`` steps, see `step_model`."""
    spec, nodes = flow.spec, []
    for node in (_sized(flow, node) for node in spec.nodes):
        shape = resized(flow.shapes[node.name], flow.places[node.name], steps)
        moves = isinstance(flow.places[node.name], Steps)
        if node.op in RECURRENT:
            before = [s.value for s in states if s.layer == node.name]
            attrs = {**node.attrs, "initial_state": True}
            nodes.append(dataclasses.replace(node, inputs=(node.inputs[0], *before), attrs=attrs))
        elif node.op in ("reshape", "flatten") and moves:
            nodes.append(Node(node.name, "reshape", node.inputs, {}, {"shape": shape}))
        elif node.op == "expand" and moves:
            nodes.append(dataclasses.replace(node, attrs={"shape": shape}))
        else:
            attrs = {**node.attrs, **flow.attrs.get(node.name, {})}
            nodes.append(dataclasses.replace(node, attrs=attrs))
    after = []
    for layer in dict.fromkeys(s.layer for s in states):
        own = [s for s in states if s.layer == layer]
        for i, state in enumerate(own):
            nodes += _last_state(state, i - len(own), flow.shapes[layer][2])
            after.append(nodes[-1].name)
    outputs = [*spec.outputs, *after]
    nodes = needed(nodes, outputs)
    read = {name for node in nodes for name in node.inputs} | set(outputs)
    inputs = [_fixed(flow, i, steps) for i in flow.sequences]
    inputs += [_fixed(flow, i, 0) for i in flow.held if i.name in read]
    inputs += [Input(s.value, s.shape) for s in states]
    return _model(flow, f"{steps} step(s)", inputs, nodes, outputs)


def _last_state(state: State, row: int, hidden: int) -> list[Node]:
    """``[N, H]`` of row ``row``, from the end, of a recurrent layer's output."""
    (name, row_name, part), source = (f"{state.value}.{end}" for end in NEXT), state.layer
    row_of = {"axis": 0, "start": row, "stop": row + 1 or None}
    nodes = [Node(row_name, "slice", (source,), {}, row_of)]
    if state.shape[1] < hidden:  # a projected h
        attrs = {"axis": 2, "stop": state.shape[1]}
        nodes.append(Node(part, "slice", (nodes[-1].name,), {}, attrs))
    return [*nodes, Node(name, "reshape", (nodes[-1].name,), {}, {"shape": state.shape})]


def _fixed(flow: Flow, declared: Input, steps: int) -> Input:
    """An input of the sizes the flow was followed with, and ``steps`` steps."""
    shape = resized(flow.shapes[declared.name], flow.places[declared.name], steps)
    return Input(declared.name, shape, dtype=declared.dtype)


def _model(flow: Flow, what: str, inputs: list[Input], nodes: list[Node], outputs: list[str]) -> ModelSpec:
    params = params_of(nodes, flow.spec.params)
    return ModelSpec(f"{flow.spec.name}, {what}", tuple(inputs), tuple(nodes), tuple(outputs), params)
