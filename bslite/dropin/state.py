"""What a runner knows of a module with its present weights: what runs the calls that it has met."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from bslite.cache import Recent
from bslite.dropin.blueprint import Blueprint, Executable
from bslite.dropin.growing import Grown
from bslite.dropin.kinds import MAX_CALLS, InTorch, Kind
from bslite.dropin.signature import Key
from bslite.dropin.watch import Watch
from bslite.spec import ModelSpec

Run = Callable[[Sequence[torch.Tensor], Sequence[Any]], Any]  # of the tensors and objects among the arguments
MAX_GROWN = 4  # calls with sizes that grow that later ones are compared with


@dataclass
class State:
    """All that is valid for the present weights."""

    watch: Watch
    calls: Recent[Key, Run | InTorch] = field(default_factory=lambda: Recent(MAX_CALLS))
    executables: dict[Key, Executable] = field(default_factory=dict)
    first: ModelSpec | None = None  # the first model made, whose packed weights others share
    used: bool = False
    _grown: list[tuple[Grown, Kind, Run]] = field(default_factory=list)

    def note(self, key: Key, kind: Kind, run: Run) -> None:
        """``run`` serves calls of ``key``, which are of ``kind``: perhaps later ones with longer caches,
        too.
        """
        if isinstance(kind.blueprint, Blueprint) and kind.blueprint.grows:
            capture = kind.blueprint.capture
            grown = Grown(key, capture.graph, capture.growing), kind, run
            self._grown = [grown, *self._grown[: MAX_GROWN - 1]]

    def grown_from(self, key: Key, tensors: Sequence[torch.Tensor]) -> Run | None:
        """What ran a call that differed from this one in sizes of a cache alone, if one is known."""
        for grown, kind, run in self._grown:
            assert isinstance(kind.blueprint, Blueprint)
            if grown.serves(key) and not kind.blueprint.capture.refusal(tensors):
                kind.note(tensors)
                return run
        return None

    def forget_calls(self) -> None:
        """Have calls prepared anew."""
        self.calls.clear()
        self._grown.clear()
