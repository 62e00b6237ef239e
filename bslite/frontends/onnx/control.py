"""ONNX's control flow: If becomes the branch it takes, Loop and Scan are written out step by step."""

import contextlib
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bslite.errors import SpecError
from bslite.frontends.common.unsupported import Unsupported, Varies
from bslite.frontends.onnx.builders import find
from bslite.frontends.onnx.scope import MAX_DEPTH, Scope, Walker, add_initializers
from bslite.frontends.onnx.site import Site
from bslite.frontends.onnx.standin import MISSING, ROOT
from bslite.frontends.onnx.values import Const, NeedsValue, Operand, Value, fixed

MAX_STEPS = 256  # of a Loop or Scan: more would not be worth writing out
OPSET = 18  # of the builders that pick and join here


@dataclass(frozen=True)
class Call:
    """A node with graphs inside: its place, opset, attributes and inputs, and which outputs are read."""

    name: str
    opset: int
    values: Mapping[str, Any]
    inputs: Sequence[Operand | None]
    scope: Scope
    used: Sequence[bool]


class Body:
    """A graph inside a node, to be walked as often as the node runs it."""

    def __init__(self, walk: Walker, call: Call, graph: Any) -> None:
        if call.scope.depth >= MAX_DEPTH:
            raise SpecError(f"graphs within graphs, more than {MAX_DEPTH} deep")
        self.walk, self.call, self.graph = walk, call, graph
        self.inputs = [v.name for v in graph.input]
        self.outputs = [v.name for v in graph.output]
        self.stored: dict[str, Any] = {}
        add_initializers(graph, self.stored, walk.source)

    def begin(self, steps: int | None) -> None:
        """Begin to repeat it, so many times if that is known. Unsupported if those are too many."""
        if steps is not None and steps > MAX_STEPS:
            raise Unsupported(f"of {steps} steps; at most {MAX_STEPS} are written out")
        self._steps, self._before = steps, self.walk.visited

    def check(self, taken: int) -> None:
        """Unsupported if the nodes of ``taken`` steps, or of all as far as is known, are too many. Note them,
        of a loop in the model's own graph.
        """
        loops, nodes, steps = self.walk.loops, self.walk.visited - self._before, self._steps or taken
        if self.call.scope.depth:
            return
        loops.written[self.walk.place] = taken, nodes
        if taken and self.walk.place in loops.limited and steps * nodes > loops.most * taken:
            raise Unsupported(f"of {steps * nodes // taken} nodes; at most {loops.most} are written out")

    def run(self, operands: Sequence[Any], wanted: Sequence[bool], prefix: str) -> list[Any]:
        """The outputs for ``operands``, None for those not ``wanted``."""
        scope = self.call.scope
        self.walk.count()
        own = {**self.stored, **dict(zip(self.inputs, operands, strict=True))}
        values = ChainMap(own, scope.values)
        inner = Scope(values, scope.attributes, scope.opsets, prefix, scope.depth + 1)
        names = [name for name, want in zip(self.outputs, wanted, strict=True) if want]
        self.walk.nodes(self.graph.node, inner, names)
        return [
            self.walk.result(name, inner) if want else None
            for name, want in zip(self.outputs, wanted, strict=True)
        ]


def origin(body: Any, output: int) -> str:
    """The value that an output of a graph is: what Identities hand on to it."""
    through = {n.output[0]: n.input[0] for n in body.node if n.op_type == "Identity" and not n.domain}
    made = str(body.output[output].name)
    while made in through and through[made] != made:
        made = through[made]
    return made


def passes(body: Any) -> bool:
    """Whether the ``body`` of a Loop gives back the condition that it took."""
    return bool(origin(body, 0) == body.input[1].name)


def truth(operand: Any, what: str) -> bool:
    """The value of a condition, which must be known."""
    if operand is MISSING:
        raise NeedsValue(f"{what} is not known", frozenset([ROOT]))
    if isinstance(operand, Value):
        raise NeedsValue(f"{what} is computed from the input", operand.roots)
    if not isinstance(operand, Const):
        raise Varies(f"{what} depends on free sizes")
    if operand.data.size != 1 or operand.dtype != "bool":
        raise SpecError(f"{what} is {operand.dtype} {list(operand.data.shape)}, expected one bool")
    return bool(operand.data.item())


def branch(walk: Walker, call: Call) -> Any:
    """If: the branch of a known condition."""
    graph = call.values["then_branch" if truth(call.inputs[0], "its condition") else "else_branch"]
    body = Body(walk, call, graph)
    if body.inputs:
        raise SpecError(f"its branch {graph.name!r} has inputs")
    return tuple(body.run([], [True] * len(body.outputs), call.scope.prefix))


def loop(walk: Walker, call: Call) -> Any:
    """Loop, repeating body(step, condition, states) -> condition, states, and values to be stacked."""
    count, condition, *states = call.inputs
    body = Body(walk, call, call.values["body"])
    site = Site(walk.store, call.name, "Loop", call.opset, call.used)
    stacked = len(body.outputs) - 1 - len(states)
    if len(body.inputs) != 2 + len(states) or stacked < 0 or len(call.used) > len(body.outputs) - 1:
        raise SpecError(
            f"its body takes {len(body.inputs)} values and gives {len(body.outputs)}; "
            f"it has {len(states)} states"
        )
    steps = None if count is None else int(site.number(count, "its number of steps"))
    ends = condition is not None and not passes(body.graph)
    body.begin(None if ends else steps)
    read = [*call.used, *[False] * (len(body.outputs) - 1 - len(call.used))]
    wanted = [condition is not None, *[True] * len(states), *read[len(states) :]]
    made: list[list[Any]] = []
    going, step = condition is None or truth(condition, "its condition"), 0
    while going and (steps is None or step < steps):
        if step == MAX_STEPS:
            raise Unsupported(f"of more than {MAX_STEPS} steps, which are not written out")
        now = [site.const(np.int64(step), "step"), site.const(np.array(True), "condition"), *states]
        again, *results = body.run(now, wanted, f"{call.name}/{step}/")
        states = results[: len(states)]
        made.append(results[len(states) :])
        going = condition is None or truth(again, "the condition to go on")
        step += 1
        body.check(step)
    joined = [
        stack(site, [row[i] for row in made], 0) if read[len(states) + i] else None for i in range(stacked)
    ]
    return (*states, *joined)


def scan(walk: Walker, call: Call) -> Any:
    """Scan: body(states, a slice of each of the rest) -> states, and values to be stacked."""
    site = Site(walk.store, call.name, "Scan", call.opset, call.used)
    body, given = Body(walk, call, call.values["body"]), list(call.inputs)
    if call.opset >= 9:
        return _scan(site, body, given, call.values, call.name)
    lengths, *given = given
    if lengths is not None:
        raise Unsupported("with sequence_lens")
    filled = [x for x in given if x is not None]
    if len(filled) != len(given) or not given:
        raise SpecError("an input is left out")
    batch = fixed(filled[0].shape[0] if filled[0].rank else 1, "its number of sequences")
    if batch > MAX_STEPS:
        raise Unsupported(f"of {batch} sequences; at most {MAX_STEPS} are written out")
    ways = {"scan_input_directions": call.values["directions"]}
    rows = [
        _scan(site, body, [pick(site, x, 0, n) for x in filled], {**call.values, **ways}, f"{call.name}/{n}")
        for n in range(batch)
    ]
    return tuple(
        stack(site, list(column), 0) if use else None
        for column, use in zip(zip(*rows, strict=True), call.used, strict=False)
    )


def _scan(site: Site, body: Body, given: Sequence[Any], values: Mapping[str, Any], prefix: str) -> Any:
    """Scan of one batch of sequences, from opset 9 on."""
    count = values["num_scan_inputs"]
    states, sequences = list(given[: len(given) - count]), list(given[len(given) - count :])
    stacked = len(body.outputs) - len(states)
    if not 1 <= count <= len(given) or len(body.inputs) != len(given) or stacked < 0:
        raise SpecError(
            f"its body takes {len(body.inputs)} values and gives {len(body.outputs)}; "
            f"it has {len(states)} states and {count} sequences"
        )
    axes, ways = _each(values, "scan_input_axes", count), _each(values, "scan_input_directions", count)
    to, turned = _each(values, "scan_output_axes", stacked), _each(values, "scan_output_directions", stacked)
    sizes = set()
    for x, axis in zip(sequences, axes, strict=True):
        if not -x.rank <= axis < x.rank:
            raise SpecError(f"its axis {axis} for a value of rank {x.rank}")
        sizes.add(fixed(x.shape[axis], "the length of its sequences"))
    if len(sizes) != 1:
        raise SpecError(f"its sequences are of lengths {sorted(sizes)}")
    (length,) = sizes
    body.begin(length)
    read = [*body.call.used, *[False] * (len(body.outputs) - len(body.call.used))]
    wanted = [*[True] * len(states), *read[len(states) :]]
    made = []
    for step in range(length):
        now = [
            pick(site, x, axis, length - 1 - step if way else step)
            for x, axis, way in zip(sequences, axes, ways, strict=True)
        ]
        results = body.run([*states, *now], wanted, f"{prefix}/{step}/")
        states = results[: len(states)]
        made.append(results[len(states) :])
        body.check(step + 1)
    joined = []
    for i in range(stacked):
        column = [row[i] for row in made]
        column = column[::-1] if turned[i] else column
        joined.append(stack(site, column, to[i]) if wanted[len(states) + i] else None)
    return (*states, *joined)


def _each(values: Mapping[str, Any], name: str, count: int) -> Sequence[int]:
    """A list attribute, zeros where it is left out."""
    given: Sequence[int] = values.get(name) or (0,) * count
    if len(given) != count:
        raise SpecError(f"{name} has {len(given)} entries, expected {count}")
    return given


def pick(site: Site, x: Operand, axis: int, index: int) -> Any:
    """``x`` at one index along an axis, which is dropped."""
    builder = find("Gather", OPSET)
    assert builder is not None
    return builder(site, x, site.const(np.int64(index), "index"), axis=axis)


def stack(site: Site, xs: Sequence[Any], axis: int) -> Any:
    """Values side by side along a new axis."""
    if not xs:
        raise Unsupported("it stacks the values of no step")
    if any(x is MISSING for x in xs):
        return MISSING
    unsqueeze, concat = find("Unsqueeze", OPSET), find("Concat", OPSET)
    assert unsqueeze is not None
    assert concat is not None
    if xs[0].rank != min(x.rank for x in xs) or not -xs[0].rank - 1 <= axis <= xs[0].rank:
        raise SpecError(f"values of rank {xs[0].rank} cannot be stacked along axis {axis}")
    at = site.const(np.array([axis], np.int64), "axes")
    rows = [unsqueeze(site, x, at) for x in xs]
    return concat(site, *rows, axis=axis)


def control(walk: Walker, op_type: str, call: Call) -> Any:
    """The node's outputs. If it cannot be written out, the nodes inside are still checked for what bslite
    lacks."""
    before = walk.visited
    try:
        if any(x is MISSING for x in call.inputs):
            raise NeedsValue("an input is not known", frozenset([ROOT]))
        return CONTROL[op_type](walk, call)
    except Unsupported:
        if walk.visited == before:
            for name, graph in call.values.items():
                if hasattr(graph, "node"):
                    body = Body(walk, call, graph)
                    prefix = f"{call.name}/{name.removesuffix('_branch')}/"
                    with contextlib.suppress(SpecError):  # it need not be valid if it is never taken
                        body.run([MISSING] * len(body.inputs), [True] * len(body.outputs), prefix)
        raise


#: Operators that need no builder.
CONTROL: dict[str, Callable[[Any, Call], Any]] = {"If": branch, "Loop": loop, "Scan": scan}
#: How the documentation says they are handled.
HANDLED = {
    "If": "the branch of a known condition",
    "Loop": f"written out where conditions are known, at most {MAX_STEPS} steps",
    "Scan": f"written out, at most {MAX_STEPS} steps",
}
