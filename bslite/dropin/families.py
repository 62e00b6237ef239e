"""Calls that differ in sizes alone: the second kind among them is traced with these sizes free, and its trace
serves the kinds after it without another.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from bslite.dropin import costs
from bslite.dropin.blueprint import Blueprint, draw
from bslite.dropin.capture import Capture, Terms, capture
from bslite.dropin.noted import Place
from bslite.dropin.structure import Structure
from bslite.errors import BsliteError
from bslite.frontends.torch.graph import Graph
from bslite.frontends.torch.unfolded import little_more

MAX_TRACES = 3  # with free sizes, for one family: a module may ask for its sizes, and each answer is a trace
ALIKE = 4  # by what factor the work of two sizes may differ that share one choice of parts


@dataclass
class Trace:
    """A trace with free sizes. ``whole``: a blueprint that has them free, too, if it is as good as one with
    numbers in their places. ``chosen``: the flops of the sizes for which parts were chosen and measured, and
    the latest blueprint with these parts.
    """

    capture: Capture
    whole: Blueprint | None = None
    chosen: list[tuple[int, Blueprint]] = field(default_factory=list)

    def blueprint(self, sizes: Mapping[Any, int], name: str, supported: frozenset[str] | None) -> Blueprint:
        """What serves these sizes: with the parts of others, if the work is alike."""
        if self.whole is not None and all(p.seconds is None for p in self.whole.parts):
            return self.whole  # nobody measures
        flops = costs.total(self.capture.graph.operations(), sizes)
        alike = (i for i, (at, _) in enumerate(self.chosen) if at <= ALIKE * flops <= ALIKE**2 * at)
        place = next(alike, None)
        at, last = (flops, None) if place is None else self.chosen.pop(place)
        if self.whole is not None:
            made = last or self.whole.unmeasured()
        else:
            settled = self.capture.settled(sizes)
            made = draw(settled, name, supported) if last is None else last.carried(settled)
        self.chosen.insert(0, (at, made))
        return made


@dataclass
class Family:
    """``shapes``: of the first call. ``axes``: of each tensor those whose sizes are not always the first's.

    ``open``: whether another trace may be made.
    """

    shapes: list[tuple[int, ...]]
    axes: list[set[int]]
    traces: list[Trace] = field(default_factory=list)
    open: bool = True
    free_batch: bool = True

    @classmethod
    def of(cls, tensors: Sequence[torch.Tensor]) -> "Family":
        """A family that begins with a call with these tensors."""
        return cls([tuple(t.shape) for t in tensors], [set() for _ in tensors])

    def blueprint(
        self, module: torch.nn.Module, arguments: Structure, name: str, batched: bool,
        supported: frozenset[str] | None, noted: frozenset[Place],
    ) -> Blueprint | None:  # fmt: skip
        """What serves a call with ``arguments``, of a trace with free sizes; None if that cannot be.

        ``batched``: whether the batch is to stay free; ``supported`` as for `draw`, ``noted`` as for
        `capture`.
        """
        tensors = arguments.leaves
        for trace in reversed(self.traces):
            if (sizes := trace.capture.bound(tensors)) is not None:
                return trace.blueprint(sizes, name, supported)
        for own, first, tensor in zip(self.axes, self.shapes, tensors, strict=True):
            own |= {a for a, (n, m) in enumerate(zip(first, tensor.shape, strict=True)) if n != m}
        if not self.open or not any(self.axes):
            return None
        try:
            free_batch = batched and self.free_batch
            made = capture(module, arguments, name, Terms(free_batch, free=self.axes, noted=noted))
        except BsliteError:
            self.open = False
            return None
        sizes = made.bound(tensors)
        self.open = sizes is not None and made.others and len(self.traces) + 1 < MAX_TRACES
        if sizes is None:
            return None
        self.free_batch &= not (batched and made.fixed)
        trace = Trace(made)
        self.traces.append(trace)
        blueprint = trace.blueprint(sizes, name, supported)
        trace.whole = _undivided(made, blueprint, name, supported)
        if trace.whole is not None:
            trace.chosen = [(at, trace.whole) for at, _ in trace.chosen]
        return trace.whole or blueprint


def _undivided(
    captured: Capture, settled: Blueprint, name: str, supported: frozenset[str] | None
) -> Blueprint | None:
    """The blueprint with the sizes left free, if bslite then runs all of it, with little more to do."""
    if not captured.others or settled.refused or len(settled.parts) != 1 or captured.asks_for_batch:
        return None
    captured = captured.as_far_as(settled.capture)
    named = replace(captured, graph=Graph(captured.graph.program, captured.sizes), written={})
    try:
        made = draw(named, name, supported)
        if made.refused or len(made.parts) != 1:
            return None
        if not little_more(made.spec(made.parts[0]), settled.spec(settled.parts[0])):
            return None
    except Exception:  # a builder may know numbers only; there is the one with numbers
        return None
    return made
