"""A module as torch.export is to see it: its forward takes and gives lists of tensors."""

from collections.abc import Iterable, Sequence
from contextlib import nullcontext, suppress
from itertools import chain
from typing import Any

import torch

from bslite.dropin import casting
from bslite.dropin.carried import Carried
from bslite.dropin.noted import (
    APART,
    CHANGES,
    VARIES,
    Accesses,
    ChangesState,
    Notes,
    Place,
    agree,
    place_name,
    watch,
)
from bslite.dropin.shell import shell_of
from bslite.dropin.structure import Before, Returned, Structure, attributes_of, equal
from bslite.dropin.surroundings import Surroundings
from bslite.frontends.torch.tracing.asking import Asking, answers_of
from bslite.frontends.torch.tracing.faithful import aside, called_apart, run_before
from bslite.frontends.torch.tracing.loose import origins
from bslite.frontends.torch.tracing.reach import held, hidden_modules, modules_in, tensors_within, within

LOOKS = {"__dict__", "vars"}  # names in code that may read attributes where no slot sees it
OUTSIDE = "its forward changes what it reads besides its arguments and attributes"


class Traced:
    """``twin``: a module whose forward takes and gives lists of tensors, in a region of the autocast that is
    set aside (`casting`). ``results``: the structure of what the latest run of it gave.
    """

    def __init__(
        self, shell: torch.nn.Module, arguments: Structure, noted: frozenset[Place] = frozenset(),
        asking: Asking | None = None, dtypes: Sequence[torch.dtype] = (), carried: Carried | None = None,
    ) -> None:  # fmt: skip
        """``shell`` becomes the twin. ``noted``: attributes that are watched while the forward runs.
        ``asking``: listens to the forward; what was asked about follows the results. ``dtypes``: those that
        results are cast to; none if they are left as they are. ``carried``: tensors that it reads elsewhere
        than torch knows.
        """
        kind = type(shell)
        bound = vars(shell).pop("forward", None)
        self.results: Returned | None = None
        self.assigned: list[str] = []  # parameters and buffers in whose places the latest run put others
        self._noted, self._fault = noted, ""  # what a run did that no graph does
        self._notes: dict[Place, Any] = {}
        self._around = Surroundings(shell)
        accesses, around, cast = Accesses(), self._around, casting.noted()
        hidden = hidden_modules(shell)

        def forward(this: torch.nn.Module, *tensors: torch.Tensor) -> tuple[Any, ...]:
            (args, kwargs), objects = arguments.rebuilt(tensors)
            accesses.clear()
            around.note()
            notes, held, beside = Notes(this), Before(objects), _attributes(hidden)
            own = [(path, d) for path, m in this.named_modules() for d in (m._parameters, m._buffers)]
            registered = [(path, d, d.copy()) for path, d in own]
            reading = carried.read(this) if carried else nullcontext()
            with asking.listening() if asking else nullcontext(), casting.region(cast), reading:
                made = bound(*args, **kwargs) if bound else kind.forward(this, *args, **kwargs)
            read, written = frozenset(accesses.read), frozenset(accesses.written)
            try:
                self._notes = notes.changes()
            except ChangesState as e:
                self._fault = str(e)
            # What has changed in another way than by being assigned to is the state of something.
            if wrong := read | {p for p in self._notes if p in noted and p not in written}:
                self._fault = f"{CHANGES} ({place_name(*min(wrong))})"
            self.assigned = [
                place_name(path, name)
                for path, present, before in registered
                for name in before.keys() | present.keys()
                if before.get(name) is not present.get(name)
            ]
            if around.changed():
                self._fault = self._fault or OUTSIDE
            if not equal(beside, _attributes(hidden)):
                self._fault = self._fault or CHANGES
            self.results = Returned(
                made, held.changes(), lambda x: isinstance(x, VARIES), objects, self._notes
            )
            leaves, wanted = list(self.results.leaves), iter(dtypes)
            if dtypes:
                leaves = [x.to(next(wanted)) if isinstance(x, torch.Tensor) else x for x in leaves]
            return (*leaves, *(asking.questions if asking else ()))

        # torch.export goes through a GraphModule's graph, not through its forward.
        base = torch.nn.Module if isinstance(shell, torch.fx.GraphModule) else kind
        named = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
        # What a class does around its forward when it is called, it has done, and does at every call.
        calls = {"forward": forward, "__call__": torch.nn.Module.__call__}
        shell.__class__ = type(kind.__name__, (base,), {**calls, **named})
        self.twin = shell
        layers = dict(shell.named_modules())
        for path in {path for path, _ in noted} & layers.keys():
            watch(layers[path], path, noted, accesses)

    def outside(self, program: torch.export.ExportedProgram) -> list[torch.Tensor]:
        """The tensors of the module, of what it leads to and of what its forwards read that the trace took
        for constants: torch has stand-ins only for parameters and buffers that it knows.
        """
        read = self._around.seen
        own = held(within(self.twin, *modules_in(read)))
        tensors = chain(own, chain.from_iterable(map(tensors_within, read)))
        return origins(tensors, program.constants.values())

    def check_assigned(self, name: str) -> None:
        """Raise ChangesState if the latest run put another tensor in the place of a parameter or buffer."""
        if self.assigned:
            raise ChangesState(
                f"model {name!r}: its forward puts another tensor in the place of {min(self.assigned)!r}"
            )

    def unwatched(self, name: str, again: bool) -> frozenset[Place]:
        """The attributes that the forward notes and that were not watched: another trace has to tell whether
        it reads them. ``again``: this trace is such a one.

        Raises ChangesState if calls depend on those before.
        """
        found = frozenset(self._notes) - self._noted
        if self._fault or (found and again):
            raise ChangesState(f"model {name!r}: {self._fault or CHANGES}")
        return found

    @property
    def dtypes(self) -> list[torch.dtype]:
        """Those of the tensors that the latest run gave."""
        assert self.results is not None
        return [x.dtype for x in self.results.leaves if isinstance(x, torch.Tensor)]

    def dtypes_in_eager_mode(self, tensors: Sequence[torch.Tensor]) -> list[torch.dtype]:
        """The dtypes of the results; none if the forward fails. Torch's encoder takes another way there than
        in a trace.
        """
        kept, fault = self.results, self._fault
        try:
            with aside(gradients=False) as fast:
                torch.backends.mha.set_fastpath_enabled(fast)
                called_apart(self.twin, tensors)
            return self.dtypes
        except Exception:  # whatever it is, the caller's own call says it
            return []
        finally:
            self.results, self._fault = kept, fault

    def check_notes(
        self, graph: str, before: str, name: str, tensors: tuple[torch.Tensor, ...], gradients: bool = False
    ) -> None:
        """Raise ChangesState if what the forward notes is not what it would note without being traced, or
        may depend on what it has noted before. ``graph``: of the trace; ``before``: of the one before it.
        """
        if not self._notes:
            return
        traced, results = self._notes, self.results
        try:
            with aside(gradients):
                called_apart(self.twin, tensors)
            alike = self._notes.keys() == traced.keys() and all(
                agree(traced[k], self._notes[k]) for k in traced
            )
        except Exception:  # whatever it is, the caller's own call says it
            alike = False
        self._notes, self.results = traced, results
        if not alike or (before and graph != before) or LOOKS & self._around.names:
            raise ChangesState(f"model {name!r}: {CHANGES} ({place_name(*min(traced))})")


def fill_caches(module: torch.nn.Module, arguments: Structure) -> None:
    """Run a module's forward before it is traced: see `run_before`."""
    with suppress(Exception):  # of a copy, which the trace needs as well
        run_before(Traced(shell_of(module), arguments).twin, [x.detach() for x in arguments.leaves])


def _attributes(hidden: Iterable[torch.nn.Module]) -> list[dict[str, Any]]:
    """The attributes of hidden modules, but those that torch's own layers write anew."""
    return [{k: v for k, v in own.items() if k not in APART} for own in attributes_of(hidden)]


def answers(
    module: torch.nn.Module, arguments: Structure, tensors: Sequence[torch.Tensor], gradients: bool = False
) -> Sequence[bool | int]:
    """What a module's forward is answered in eager mode when it asks for values; none if it fails."""
    asking = Asking()
    return answers_of(Traced(shell_of(module), arguments, asking=asking).twin, asking, tensors, gradients)
