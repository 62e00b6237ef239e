"""Follows the time axis of a model from its inputs through every layer."""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from bslite.errors import SpecError, UnsupportedError
from bslite.ops import Shape
from bslite.spec import Input, ModelSpec
from bslite.streaming.places import Held, Place, Rows, Steps
from bslite.streaming.rules import RECURRENT, At, Mixes, place_of

PROBE = 13  # steps to look at a model with, where their number is free


@dataclass
class Flow:
    """Where the steps are in every value of a model, for ``steps`` of them.

    ``attrs``: node -> attributes with which it works for any number of steps. ``problems``: layer -> why it
    does not stream.
    """

    spec: ModelSpec
    steps: int
    shapes: Mapping[str, Shape]
    places: dict[str, Place] = field(default_factory=dict)
    attrs: dict[str, dict[str, Any]] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)

    @property
    def sequences(self) -> list[Input]:
        """The inputs that have a time axis."""
        return [i for i in self.spec.inputs if isinstance(self.places[i.name], Steps)]

    @property
    def held(self) -> list[Input]:
        """The inputs that have no time axis."""
        return [i for i in self.spec.inputs if isinstance(self.places[i.name], Held)]


def flow_of(spec: ModelSpec, batch: int | None) -> Flow:
    """Find the time axis of the inputs and where it goes. ``batch`` is what the free size "N" stands for.

    Raises SpecError for a model without recurrent layers or with a single time step, UnsupportedError, naming
    every layer that mixes time steps, for one that cannot be streamed.
    """
    if not any(n.op in RECURRENT for n in spec.nodes):
        raise SpecError(f"model {spec.name!r} has no recurrent layer (lstm, gru, rnn), so nothing to stream")
    best: Flow | None = None
    for axes in _choices(spec):
        found = _follow(spec, axes, batch)
        if not found.problems:
            return found
        if best is None or len(found.problems) < len(best.problems):
            best = found
    if best is None:
        raise SpecError(
            f"model {spec.name!r}: no axis of its inputs is a sequence of several steps; "
            "describe it with at least two"
        )
    ops = {n.name: n.op for n in spec.nodes}
    lines = [f"model {spec.name!r} cannot be streamed, time step by time step:"]
    lines += [f"  layer {name!r} ({ops.get(name, 'input')}): {why}" for name, why in best.problems.items()]
    raise UnsupportedError("\n".join(lines))


def _choices(spec: ModelSpec) -> Iterator[tuple[int | None, ...]]:
    """Choices of a time axis for each input, None for an input that is held; likelier choices first."""
    each: list[list[int | None]] = []
    for declared in spec.inputs:
        possible = [a for a, d in enumerate(declared.shape) if isinstance(d, str) or d > 1]
        first = [a for a in (1, 0) if a in possible] + [a for a in possible if a > 1]
        each.append([*first, None])
    for axes in itertools.islice(itertools.product(*each), 4096):
        sizes = {i.shape[a] for i, a in zip(spec.inputs, axes, strict=True) if a is not None}
        if len(sizes) == 1:
            yield axes


def _follow(spec: ModelSpec, axes: tuple[int | None, ...], batch: int | None) -> Flow:
    """The flow if time is along these axes of the inputs."""
    time = next(i.shape[a] for i, a in zip(spec.inputs, axes, strict=True) if a is not None)
    steps = PROBE if isinstance(time, str) else time
    sizes = {} if batch is None else {"N": batch}
    for declared in spec.inputs:
        for d, example in zip(declared.shape, declared.example, strict=True):
            if isinstance(d, str):
                sizes.setdefault(d, example)
    if isinstance(time, str):
        sizes[time] = steps
    given = [tuple(d if isinstance(d, int) else sizes[d] for d in i.shape) for i in spec.inputs]
    try:
        flow = Flow(spec, steps, spec.infer_shapes(given))
    except SpecError as e:
        names = [i.name for i, a in zip(spec.inputs, axes, strict=True) if a is not None]
        return Flow(spec, steps, {}, problems={names[0]: str(e)})
    for declared, axis in zip(spec.inputs, axes, strict=True):
        flow.places[declared.name] = Held() if axis is None else Steps(axis)
    for node in spec.nodes:
        if any(i not in flow.places for i in node.inputs):
            continue  # the layer it waits for is a problem
        at = At(
            node, steps, [flow.shapes[i] for i in node.inputs], flow.shapes[node.name],
            [flow.places[i] for i in node.inputs],
        )  # fmt: skip
        try:
            flow.places[node.name] = place_of(at)
        except Mixes as e:
            flow.problems[node.name] = str(e)
            continue
        if at.attrs:
            flow.attrs[node.name] = at.attrs
    for name in spec.outputs:
        if isinstance(flow.places.get(name), Rows):
            flow.problems[name] = "outputs and last state of a recurrent layer are one output of the model"
    return flow
