"""Calls that differ in sizes alone: the second kind among them is traced with these sizes free, and its trace
serves the kinds after it without another.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from bslite.dropin.capture import Capture, capture
from bslite.dropin.structure import Structure
from bslite.errors import BsliteError

MAX_TRACES = 3  # with free sizes, for one family: a module may ask for its sizes, and each answer is a trace


@dataclass
class Family:
    """``shapes``: of the first call. ``axes``: of each tensor those whose sizes are not always the first's.

    ``traces``: with these free. ``open``: whether another may be made.
    """

    shapes: list[tuple[int, ...]]
    axes: list[set[int]] = field(default_factory=list)
    traces: list[Capture] = field(default_factory=list)
    open: bool = True
    free_batch: bool = True

    @classmethod
    def of(cls, tensors: Sequence[torch.Tensor]) -> "Family":
        """A family that begins with a call with these tensors."""
        return cls([tuple(t.shape) for t in tensors], [set() for _ in tensors])

    def capture(
        self, module: torch.nn.Module, arguments: Structure, name: str, batched: bool
    ) -> Capture | None:
        """What serves a call with ``arguments``, by a trace with free sizes; None if that cannot be.

        ``batched``: whether the batch is to stay free.
        """
        tensors = arguments.leaves
        for trace in reversed(self.traces):
            if (found := trace.settled(tensors)) is not None:
                return found
        for own, first, tensor in zip(self.axes, self.shapes, tensors, strict=True):
            own |= {a for a, (n, m) in enumerate(zip(first, tensor.shape, strict=True)) if n != m}
        if not self.open or not any(self.axes):
            return None
        try:
            made = capture(module, arguments, name, batched and self.free_batch, free=self.axes)
        except BsliteError:
            self.open = False
            return None
        found = None if made.sizes is None else made.settled(tensors)
        self.open = found is not None and made.others and len(self.traces) + 1 < MAX_TRACES
        if found is not None:
            self.free_batch &= not (batched and found.fixed)
            self.traces.append(made)
        return found
