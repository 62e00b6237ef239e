"""ONNX's control flow at run time: If, Loop, Scan and SequenceMap, whose graphs run as often as it takes.

A graph is compiled when it is first taken, so that a branch never taken need not be one that could run.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from bslite.errors import InputError, SpecError
from bslite.frontends.onnx.attributes import by_schema, resolve
from bslite.frontends.onnx.control import passes
from bslite.frontends.onnx.schemas import check_arity, find_schema
from bslite.frontends.onnx.tensors import dtype_name
from bslite.frontends.onnx.walk import name_of
from bslite.onnx.chunks import LEAST, STEPS, of_loop, of_scan, steps_at_once
from bslite.onnx.graph import Graph
from bslite.onnx.invariant import unchanged, without
from bslite.onnx.met import MOST_MET
from bslite.spec import Array

ALIKE = 2  # steps whose states are of the same kinds, before several steps are taken at once
LONG = 1000  # steps, at which a plan for several at a time pays at once
MANY = "several steps"  # what the graph of those is kept as


class Inner(Protocol):
    """A graph inside a node, ready to run."""

    graph: Graph

    @property
    def plain(self) -> bool:
        """Whether it is one piece of the engine's, in which nothing is the same in every step."""

    @property
    def operations(self) -> int:
        """Those of its largest model so far."""

    def run(self, given: Mapping[str, Any]) -> list[Any]:
        """The outputs for the values that the graph takes and captures."""

    def before(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The values that it captures, with those that are the same whatever it takes."""


#: Makes a graph ready to run, of its proto, what its nodes' names begin with, and whether it is repeated.
Maker = Callable[[Any, str, bool], Inner]


class Control(ABC):
    """A node with graphs inside."""

    def __init__(self, graph: Graph, node: Any, make: Maker) -> None:
        self.graph, self.node, self._make = graph, node, make
        self.what = f"node {graph.label + name_of(node)!r} ({node.op_type})"
        self.opset = graph.source.opsets.get("", 0)
        schema = find_schema(node.op_type, self.opset)
        self.attributes, _ = by_schema(schema, resolve(node, {}), graph.source.folder)
        check_arity(schema, [i or None for i in node.input], node)
        self._inner: dict[str, Inner] = {}
        self._met: set[Any] = set()
        self._at_once: int | None = None

    def inside(self) -> Iterator[Inner]:
        """The graphs that were taken so far."""
        return iter(list(self._inner.values()))

    @abstractmethod
    def __call__(self, values: Mapping[str, Any]) -> list[Any]:
        """The node's outputs for the values that it and its graphs read."""

    def body(self, attribute: str = "body", repeats: bool = True) -> Inner:
        """The graph in an attribute, made once."""
        if attribute not in self._inner:
            proto = self.attributes[attribute]
            name = attribute.removesuffix("_branch")
            label = f"{name_of(self.node)}/{name}/"
            self._inner[attribute] = self._make(proto, label, repeats)
        return self._inner[attribute]

    def met(self, kinds: Any) -> bool:
        """Whether the node has met such sizes before; from now on it has."""
        if kinds in self._met:
            return True
        if len(self._met) >= MOST_MET:
            self._met.clear()
        self._met.add(kinds)
        return False

    def at_once(self, body: Inner) -> int:
        """How many steps of ``body``, which has run, a call may take; 0: one."""
        if self._at_once is None:
            self._at_once = steps_at_once(body.operations)
        return self._at_once

    def many(self, body: Inner, steps: int, sequences: int) -> Inner:
        """The graph of several steps of ``body``, made once; see `Ahead`."""
        if MANY not in self._inner:
            proto = body.graph.proto
            proto = of_scan(proto, sequences) if sequences else of_loop(proto, steps)
            self._inner[MANY] = self._make(proto, f"{name_of(self.node)}/", True)
        return self._inner[MANY]

    def inputs(self, values: Mapping[str, Any]) -> list[Any]:
        """What the node itself reads, in order."""
        return [values[name] if name else None for name in self.node.input]

    def single(self, value: Any, what: str, kinds: str) -> Any:
        """The one element of a condition or count."""
        if not isinstance(value, np.ndarray) or value.size != 1 or value.dtype.kind not in kinds:
            came = f"{value.dtype} {list(value.shape)}" if isinstance(value, np.ndarray) else "no array"
            raise InputError(
                f"{self.what}: {what} is {came}, expected one {'bool' if 'b' in kinds else 'integer'}"
            )
        return value.item()


class Branches(Control):
    """If: one of two graphs."""

    def __call__(self, values: Mapping[str, Any]) -> list[Any]:
        taken = self.single(self.inputs(values)[0], "its condition", "b")
        branch = self.body("then_branch" if taken else "else_branch", repeats=False)
        if branch.graph.takes:
            raise SpecError(f"{self.what}: its branch {branch.graph.proto.name!r} has inputs")
        return branch.run(_captured(branch, values))


class Ahead:
    """Several steps of a Loop or Scan in one call, once its states are of the same kinds after each step.

    Such a call is planned for the sizes of all that it reads, which takes as long as many steps one by one:
    so the loop is long, or goes through such sizes again. ``around``: the values that its body captures.
    ``sequences``: what a Scan goes through, along axis 0; none: it is a Loop.
    """

    def __init__(
        self, control: Control, body: Inner, around: Mapping[str, Any], sequences: Sequence[Array] = ()
    ) -> None:
        self._control, self._body, self._around = control, body, around
        self._sequences, self._slices = len(sequences), [x[:1] for x in sequences]
        self._steps = STEPS  # and fewer of a large body, known when it has run
        self._seen: list[Any] = []  # the kinds of states after each step
        self._settled = False

    def ready(self, states: Sequence[Any], left: int) -> int:
        """How many steps to take in a call, of those that are ``left``; 0: one as usual."""
        if not self._steps or left < (self._steps if self._settled else LEAST):
            return 0
        if not self._settled:
            self._seen.append(_kinds(states))
            if len(self._seen) > ALIKE:
                self._settled = self._settles(left)
                self._steps = self._steps if self._settled else 0
        return self._steps if self._settled else 0

    def _settles(self, left: int) -> bool:
        first, *others = self._seen[1:]
        if first is None or any(kinds != first for kinds in others):
            return False
        if not self._body.plain:
            return False
        self._steps = self._control.at_once(self._body)
        if not self._steps or left < 2 * self._steps:
            return False
        read = first, _kinds(self._around.values()), _kinds(self._slices)
        return self._control.met(read) or left >= LONG

    def run(self, given: Sequence[Any], states: int) -> tuple[list[Any], list[list[Any]]]:
        """The states after the steps, and what each step gives to be stacked."""
        many = self._control.many(self._body, self._steps, self._sequences)
        made = many.run({**self._around, **dict(zip(many.graph.takes, given, strict=True))})
        return made[:states], [[x[n] for x in made[states:]] for n in range(self._steps)]


def _kinds(values: Iterable[Any]) -> Any:
    """What tells arrays apart, their numbers left out; None if one is no array."""
    found = [(x.shape, x.dtype) if isinstance(x, np.ndarray) else None for x in values]
    return None if None in found else tuple(found)


class Repeated(Control):
    """Loop: body(step, condition, states) -> condition, states, and values to be stacked."""

    @cached_property
    def _unchanged(self) -> list[int]:
        """The states that no step changes, by number."""
        given, body = self.node.input[2:], self.attributes["body"]
        if len(body.input) != 2 + len(given) or len(body.output) < 1 + len(given):
            raise SpecError(
                f"{self.what}: its body takes {len(body.input)} values and gives {len(body.output)}; "
                f"it has {len(given)} states"
            )
        found = unchanged(body, given)
        self.attributes["body"] = without(body, given, found) if found else body
        return found

    def __call__(self, values: Mapping[str, Any]) -> list[Any]:
        count, condition, *given = self.inputs(values)
        kept = dict.fromkeys(self._unchanged)
        states = [x for i, x in enumerate(given) if i not in kept]
        body = self.body()
        takes, stacked = body.graph.takes, len(body.graph.outputs) - 1 - len(states)
        steps = None if count is None else self.single(count, "its number of steps", "iu")
        going = condition is None or self.single(condition, "its condition", "b")
        around, step, yes = _captured(body, values), 0, np.array(True)
        if going and steps != 0:
            around = body.before(around)
        rows: list[list[Any]] = []
        ahead = Ahead(self, body, around) if condition is None or passes(body.graph.proto) else None
        while going and (steps is None or step < steps):
            if ahead is not None and steps is not None and (many := ahead.ready(states, steps - step)):
                states, made = ahead.run([np.array(step, np.int64), *states], len(states))
                rows += made
                step += many
                continue
            now = [np.array(step, np.int64), yes, *states]
            again, *results = body.run({**around, **dict(zip(takes, now, strict=True))})
            states = results[: len(states)]
            rows.append(results[len(states) :])
            going = condition is None or self.single(again, "the condition to go on", "b")
            step += 1
        columns = [[row[i] for row in rows] for i in range(stacked)]
        declared = body.graph.proto.output[len(body.graph.outputs) - stacked :]
        changed = iter(states)
        ends = [x if i in kept else next(changed) for i, x in enumerate(given)]
        return [*ends, *(self.stack(c, 0, d) for c, d in zip(columns, declared, strict=True))]

    def stack(self, rows: Sequence[Any], axis: int, declared: Any, none: int = 0) -> Array:
        """Values side by side along a new axis. Of no values: ``none`` of the size that the body declares,
        0 where it declares none.
        """
        if not rows:
            tensor = declared.type.tensor_type
            dims = [d.dim_value if d.HasField("dim_value") else 0 for d in tensor.shape.dim]
            dims.insert(axis if axis >= 0 else len(dims) + 1 + axis, none)
            return np.zeros(dims, np.dtype(dtype_name(tensor.elem_type) or "float32"))
        if len({x.shape for x in rows}) > 1:
            raise InputError(
                f"{self.what}: values of shapes {sorted({x.shape for x in rows})} cannot be stacked"
            )
        return np.stack(rows, axis)


class Scanned(Repeated):
    """Scan: body(states, a slice of each of the sequences) -> states, and values to be stacked."""

    def __call__(self, values: Mapping[str, Any]) -> list[Any]:
        given, body = self.inputs(values), self.body()
        around = _captured(body, values)
        if self.opset >= 9:
            return self._scan(body, around, given, self.attributes)
        lengths, *given = given
        ways = {**self.attributes, "scan_input_directions": self.attributes["directions"]}
        batch = given[0].shape[0]
        if lengths is not None and lengths.shape != (batch,):
            raise InputError(f"{self.what}: {list(lengths.shape)} lengths of {batch} sequences")
        rows = [
            self._scan(
                body, around, [x[n] for x in given], ways, None if lengths is None else int(lengths[n])
            )
            for n in range(batch)
        ]
        return [np.stack(column) for column in zip(*rows, strict=True)]

    def _scan(
        self, body: Inner, around: Mapping[str, Any], given: Sequence[Any], ways: Mapping[str, Any],
        length: int | None = None,
    ) -> list[Any]:  # fmt: skip
        """Scan of one batch of sequences, or of its first ``length`` steps, padded with zeros."""
        takes, count = body.graph.takes, ways["num_scan_inputs"]
        states, sequences = list(given[: len(given) - count]), list(given[len(given) - count :])
        stacked = len(body.graph.outputs) - len(states)
        if not 1 <= count <= len(given) or len(takes) != len(given) or stacked < 0:
            raise SpecError(
                f"{self.what}: its body takes {len(takes)} values and gives {len(body.graph.outputs)}; "
                f"it has {len(states)} states and {count} sequences"
            )
        sequences = [
            np.moveaxis(x, axis, 0)
            for x, axis in zip(sequences, self._each(ways, "scan_input_axes", count), strict=True)
        ]
        if len({len(x) for x in sequences}) != 1:
            raise InputError(f"{self.what}: its sequences are of lengths {[len(x) for x in sequences]}")
        whole = len(sequences[0])
        steps = whole if length is None else length
        if not 0 <= steps <= whole:
            raise InputError(f"{self.what}: a length of {steps} for sequences of {whole}")
        backwards = self._each(ways, "scan_input_directions", count)
        around = body.before(around) if steps else around
        rows: list[list[Any]] = []
        sequences = [x[:steps][::-1] if back else x for x, back in zip(sequences, backwards, strict=True)]
        ahead, step = Ahead(self, body, around, sequences) if self.opset >= 9 else None, 0
        while step < steps:
            if ahead is not None and (many := ahead.ready(states, steps - step)):
                now = [np.ascontiguousarray(x[step : step + many]) for x in sequences]
                states, made = ahead.run([*states, *now], len(states))
                rows += made
                step += many
                continue
            step += 1
            now = [np.ascontiguousarray(x[step - 1]) for x in sequences]
            results = body.run({**around, **dict(zip(takes, [*states, *now], strict=True))})
            states = results[: len(states)]
            rows.append(results[len(states) :])
        joined = []
        axes = self._each(ways, "scan_output_axes", stacked)
        turned = self._each(ways, "scan_output_directions", stacked)
        for i in range(stacked):
            column = [row[i] for row in rows]
            column = column[::-1] if turned[i] else column
            declared = body.graph.proto.output[len(states) + i]
            if steps < whole:
                blank = np.zeros_like(column[0]) if column else self.stack([], 0, declared, 1)[0]
                column += [blank] * (whole - steps)
            joined.append(self.stack(column, axes[i], declared))
        return [*states, *joined]

    def _each(self, ways: Mapping[str, Any], name: str, count: int) -> Sequence[int]:
        """A list attribute, zeros where it is left out."""
        given: Sequence[int] = ways.get(name) or (0,) * count
        if len(given) != count:
            raise SpecError(f"{self.what}: {name} has {len(given)} entries, expected {count}")
        return given


class Mapped(Control):
    """SequenceMap: body(an element of each sequence, the rest) -> an element of each result."""

    def __call__(self, values: Mapping[str, Any]) -> list[Any]:
        first, *rest = self.inputs(values)
        body = self.body()
        takes = body.graph.takes
        if not isinstance(first, list) or len(takes) != 1 + len(rest):
            raise SpecError(f"{self.what}: its body takes {len(takes)} values, it has {1 + len(rest)} inputs")
        if any(isinstance(x, list) and len(x) != len(first) for x in rest):
            raise InputError(f"{self.what}: its sequences are of different lengths")
        around = _captured(body, values)
        rows = []
        for n, element in enumerate(first):
            now = [element, *(x[n] if isinstance(x, list) else x for x in rest)]
            rows.append(body.run({**around, **dict(zip(takes, now, strict=True))}))
        return [[row[i] for row in rows] for i in range(len(body.graph.outputs))]


def _captured(inner: Inner, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values around a graph that it reads."""
    return {name: values[name] for name in inner.graph.captures}


CONTROL: dict[str, type[Control]] = {
    "If": Branches, "Loop": Repeated, "Scan": Scanned, "SequenceMap": Mapped,
}  # fmt: skip
