"""A module as torch.export is to see it: its forward takes and gives lists of tensors."""

from collections.abc import Collection
from contextlib import nullcontext
from typing import Any

import torch

from bslite.dropin.noted import CHANGES, VARIES, Accesses, Notes, Place, constants, place_name, watched
from bslite.dropin.structure import Before, Returned, Structure
from bslite.errors import UnsupportedError
from bslite.frontends.torch.asking import Asking


class Traced:
    """``twin``: a module whose forward takes and gives lists of tensors. ``results``: the structure of what
    the latest run of it gave. ``fault``: what such a run did that no graph does.
    """

    def __init__(
        self, shell: torch.nn.Module, arguments: Structure, noted: Collection[Place] = (),
        asking: Asking | None = None,
    ) -> None:  # fmt: skip
        """``noted``: attributes that are watched while the forward runs; the layers of ``shell`` get classes
        for it. ``asking``: listens to the forward; what was asked about follows the results.
        """
        kind = type(shell)
        bound = vars(shell).get("forward")
        self.results: Returned | None = None
        self.fault = ""
        self.constants: list[list[Any]] = []  # what is noted and no graph makes; it may say what time it is
        self.graph = ""  # in words, where there is another trace to compare it with
        accesses = Accesses()

        def forward(this: torch.nn.Module, *tensors: torch.Tensor) -> tuple[Any, ...]:
            (args, kwargs), objects = arguments.rebuilt(tensors)
            accesses.clear()
            notes, held = Notes(shell if bound else this), Before(objects)
            with asking.listening() if asking else nullcontext():
                made = bound(*args, **kwargs) if bound else kind.forward(this, *args, **kwargs)
            read, written = frozenset(accesses.read), frozenset(accesses.written)
            try:
                noted_now = notes.changes()
            except UnsupportedError as e:
                self.fault, noted_now = str(e), {}
            # What has changed in another way than by being assigned to is the state of something.
            if wrong := read | {place for place in noted_now if place in noted and place not in written}:
                self.fault = f"{CHANGES} ({place_name(*min(wrong))})"
            self.constants = [list(constants(value)) for value in noted_now.values()]
            self.results = Returned(made, held.changes(), lambda x: isinstance(x, VARIES), objects, noted_now)
            return (*self.results.leaves, *(asking.questions if asking else ()))

        # torch.export goes through a GraphModule's graph, not through its forward.
        base = torch.nn.Module if isinstance(shell, torch.fx.GraphModule) else kind
        attributes = {k: v for k, v in vars(shell).items() if k != "forward"}
        twin_class = watched(base, attributes, "", noted, accesses, forward=forward)
        twin_class.__name__, twin_class.__qualname__ = kind.__name__, kind.__qualname__
        twin_class.__module__ = kind.__module__
        self.twin: torch.nn.Module = object.__new__(twin_class)
        object.__setattr__(self.twin, "__dict__", attributes)
        layers = dict(shell.named_modules())
        for path in {path for path, _ in noted if path in layers and (path or bound)}:
            layer = layers[path]
            try:
                layer.__class__ = watched(type(layer), layer.__dict__, path, noted, accesses)
            except TypeError as e:  # a layout of its own
                raise UnsupportedError(f"{CHANGES} ({path})") from e

    def again(
        self,
        program: torch.export.ExportedProgram,
        noted: frozenset[Place],
        before: "Traced | None",
        name: str,
    ) -> frozenset[Place]:
        """The attributes to watch in another trace, which has to tell whether the forward reads them; none if
        this trace, ``program``, was such a one. ``before``: the trace that asked for it.

        Raises UnsupportedError if calls depend on those before.
        """
        assert self.results is not None
        found = frozenset(self.results.noted)
        rough = any(isinstance(x, float) for own in self.constants for x in own)
        more = not found <= noted or (rough and before is None)
        self.graph = str(program.graph) if more or before else ""
        known = self.graph, self.constants
        changing = before is not None and (more or known != (before.graph, before.constants))
        if self.fault or changing:
            raise UnsupportedError(f"model {name!r}: {self.fault or CHANGES}")
        return found | noted if more else frozenset()
