"""Calls of a wrapped module in training: the graph runs on torch's tape, with parts of it in bslite."""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from bslite.cache import Recent
from bslite.dropin import costs
from bslite.dropin.assumption import Departed
from bslite.dropin.blueprint import Blueprint
from bslite.dropin.capture import Terms
from bslite.dropin.changed import OVERLAPS, any_in_memory_of
from bslite.dropin.inside import CALL
from bslite.dropin.kept import Kept
from bslite.dropin.making import make_weights
from bslite.dropin.noted import Noted, Place, settle, untouched
from bslite.dropin.options import Options
from bslite.dropin.partition import Part, partition
from bslite.dropin.reasons import CHANGES, DISTRIBUTED, FAULT, GIVEN, SLOWER, WAITS, distributed
from bslite.dropin.shell import OUTER_HOOKS
from bslite.dropin.signature import Key
from bslite.dropin.stages import most_bytes
from bslite.dropin.structure import Structure, attributes_of
from bslite.dropin.surroundings import Surroundings
from bslite.dropin.training.part import Note, TrainedPart
from bslite.dropin.training.stepping import Peer, constants
from bslite.dropin.training.taped import capture, survey_of
from bslite.dropin.watch import lasting
from bslite.errors import BsliteError, UnsupportedError
from bslite.frontends.torch.builders import operation
from bslite.frontends.torch.checks import tensors as named_tensors
from bslite.frontends.torch.graph import Graph, draws
from bslite.frontends.torch.parts import Refusal
from bslite.frontends.torch.tracing.reach import hidden_modules

Tensor = torch.Tensor
Node = torch.fx.Node
Shapes = tuple[tuple[int, ...], ...]
MAX_KINDS = 8  # sizes of batches, modes and choices of what is frozen: each has a trace of its own
MAX_RESTARTS = 3  # in a row, after changes to the module, before it is left to torch


@dataclass(frozen=True)
class Left:
    """Calls that torch runs. ``refused``: because bslite does not train the module, or not like that.
    ``shapes``: of the tensors, if it is one kind of call. ``inner``: layers inside may train in bslite.
    """

    reason: str
    refused: bool = True
    shapes: Shapes = ()
    inner: bool = False


@dataclass
class Trained:
    """A trace in training mode, and the parts of it that run in bslite. ``shapes``: of the tensors given."""

    shapes: Shapes
    blueprint: Blueprint
    parts: Sequence[TrainedPart]
    held: Sequence[Tensor]  # that torch's operations read
    changed: Sequence[Tensor]  # buffers that a call changes
    states: Sequence[Tensor]  # those of them that get values at its end
    fixed: Kept  # tensors that parts hold copies of
    draws: bool  # whether numbers are drawn
    making: Sequence[Callable[[], None]]  # what makes weights of layers, which others may read
    holders: Sequence[dict[str, Any]]  # the attributes that notes go to

    def run(
        self, given: Sequence[Tensor], objects: Sequence[Any], instead: Callable[[BsliteError], Any]
    ) -> Any:
        """The results. ``instead`` runs the call in torch where a part fails, and is told why; what the call
        drew and noted until then does not count.
        """
        function, assumption = self.blueprint.function, self.blueprint.assumption
        assert function is not None
        if assumption is not None and assumption.given_up:
            return instead(Departed(often=True))
        if self.states and any_in_memory_of(given, self.states):
            return instead(BsliteError(OVERLAPS))
        before = torch.get_rng_state() if self.draws else None
        kept = [(tensor, tensor.clone()) for tensor in self.changed]
        try:
            made = function(*self.parts, *self.held, *given)
            if assumption is not None:
                made = assumption.results(made)
        except Exception as e:
            if isinstance(e, BsliteError):
                error = e
            elif assumption is None:
                raise
            else:  # an operation refuses what the forward may not have given it
                error = assumption.departed()
            with torch.no_grad():  # first: what torch saves for its backward pass is not to change any more
                for tensor, value in kept:
                    tensor.copy_(value)
            if before is not None:
                torch.set_rng_state(before)
            return instead(error)
        for make in self.making:
            make()
        return self.blueprint.capture.results.build(made, objects, self.holders)

    def slower(self) -> bool:
        """Whether torch is faster at every part, so that nothing of the graph is to be run."""
        for part, trained in zip(self.blueprint.parts, self.parts, strict=True):
            part.seconds, part.in_bslite = trained.seconds, not trained.slower
        return not self.blueprint.in_bslite

    def holds(self) -> bool:
        """Whether the tensors that parts hold copies of are as they were, and need no gradients."""
        captured = self.blueprint.capture
        learns = any(t.requires_grad for t in captured.outside)
        held = captured.carried is None or captured.carried.holds()
        return held and not (learns or self.fixed.moved() or self.fixed.written())


class Trainer:
    """Runs a module's forward where gradients are needed or modules are in training mode."""

    def __init__(self, module: torch.nn.Module, name: str, options: Options, noted: Noted) -> None:
        """``noted``: attributes that calls set."""
        self.module, self.name, self.options, self.noted = module, name, options, noted
        self.made: Recent[Key, Trained | Left] = Recent(MAX_KINDS)
        self._present: Any = None
        self._beside: list[torch.nn.Module] = []  # modules in plain containers
        self._attributes: list[dict[str, Any]] = []
        self._places: frozenset[Place] = frozenset()
        self._set: list[tuple[int, list[str]]] = []  # places of layers, names of attributes that calls set
        self._surroundings: Surroundings | None = None
        self._restarts = 0
        self._seen: Counter[Key] = Counter()  # calls of kinds that have no trace
        self._traces = 0

    def find(
        self, key: Key, tensors: Sequence[Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> "Trained | Left":
        """What serves the call, or why torch runs it.

        The first kinds of call are traced at once, the n-th at its call n - 1: where every batch has a size
        of its own, tracing costs more than it gains.
        """
        modules, held, present = self._modules()
        around = self._surroundings
        self._follow()
        if (
            present != self._present
            or not self._same_attributes(modules)
            or around is None
            or around.changed()
        ):
            if not all(isinstance(p, torch.nn.Parameter) for p in self.module.parameters()):
                return Left(GIVEN)
            self._beside = hidden_modules(self.module)
            modules, held, present = self._modules()
            self._present, self._attributes = present, _without_mode(attributes_of(modules))
            self._surroundings = Surroundings(self.module)
            self._restarts += 1
            self.forget()
            if self._restarts > MAX_RESTARTS:
                return Left(CHANGES, inner=True)
        kind = (
            key,
            tuple(m.training for m in modules),
            tuple(t.requires_grad for t in (*tensors, *held)),
            any(m.__dict__.get(h) for m in modules[1:] for h in OUTER_HOOKS),
            most_bytes(self.options.bucket_mb),
        )
        found = self.made.find(kind)
        if isinstance(found, Trained) and not found.holds():
            found = None
            self._restarts += 1
            if self._restarts > MAX_RESTARTS:
                return Left(CHANGES)
        elif found is not None:
            self._restarts = 0
            return Left(SLOWER, False) if isinstance(found, Trained) and found.slower() else found
        self._seen[kind] += 1
        if self._seen[kind] < self._traces:
            return Left(WAITS.format(traces=self._traces), False)
        self._traces += 1
        try:
            return self.made.put(kind, self._make(tensors, args, kwargs))
        except Exception as e:
            self.made.put(kind, Left(FAULT.format(error=f"{type(e).__name__}: {e}".splitlines()[0])))
            raise

    def _modules(self) -> tuple[list[torch.nn.Module], list[Tensor], list[Any]]:
        """All modules, their tensors, and what tells whether they are the same as before."""
        modules = [*self.module.modules(), *self._beside]
        held = [t for m in modules for d in (m._parameters, m._buffers) for t in d.values() if t is not None]
        return modules, held, [*map(id, modules), *((id(t), t.dtype, t.shape) for t in held)]

    def _follow(self) -> None:
        """Drop traces made before all attributes were known that calls set: they may read them."""
        if self._places is not self.noted.places:
            self._places = self.noted.places
            self._set = [(i, names) for i, names in enumerate(self.noted.of(self.module)) if names]
            self.forget()

    def forget(self) -> None:
        """Drop all traces."""
        self.made.clear()
        self._seen.clear()
        self._traces = 0

    def _same_attributes(self, modules: Sequence[torch.nn.Module]) -> bool:
        try:
            kept = (settle(vars(modules[i]), self._attributes[i], names) for i, names in self._set)
            return all(kept) and bool(self._attributes == _without_mode(vars(m) for m in modules))
        except Exception:  # an attribute that does not compare, such as a tensor, is another one
            return False

    def _make(
        self, tensors: Sequence[Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> "Trained | Left":
        shapes = tuple(tuple(x.shape) for x in tensors)
        try:
            arguments = Structure((args, kwargs), lambda x: isinstance(x, Tensor), empty=True)
            return self._trained(arguments, shapes)
        except BsliteError as e:
            return Left(str(e), shapes=shapes, inner=not distributed(self.module))

    def _trained(self, arguments: Structure, shapes: Shapes) -> Trained:
        if distributed(self.module):
            raise UnsupportedError(DISTRIBUTED)
        with untouched(self.module):
            captured, effects = capture(self.module, arguments, self.name, Terms(noted=self.noted.places))
        self.noted.add(captured.results.noted)
        self._follow()
        graph = captured.graph
        survey = survey_of(graph, captured.shell, self.name, effects)
        tensors = dict(named_tensors(self.module))
        tensors |= captured.carried.registered if captured.carried else {}
        parts = [p for p in partition(survey, most_bytes(self.options.bucket_mb)) if p.flops]
        refused = list(survey.refused.values())
        blueprint = Blueprint(self.name, captured, refused, [], costs.total(graph.operations()))
        targets = {s.arg.name: s.target for s in graph.program.graph_signature.input_specs}

        def value(node: Any) -> Tensor:
            return blueprint.values_of(targets[node.name], tensors)

        options, made = self.options, []
        sizes = [sum(math.prod(costs.sizes(n)) for n in part.nodes) for part in parts]
        for part, size in zip(parts, sizes, strict=True):
            try:
                spec = blueprint.spec(part, tensors)
                peer, tune = Peer.of(graph, part, value), options.tune and options.memory is None
                share = None if options.memory is None else options.memory * size // max(1, sum(sizes))
                made.append(TrainedPart(spec, tensors, options.threads, _followed(part), peer, tune, share))
                blueprint.parts.append(part)
            except BsliteError as e:
                blueprint.refused.append(Refusal("part", self.name, str(e)))
        parts = blueprint.parts
        if not made:
            raise UnsupportedError(f"model {self.name!r}: bslite trains no part of it")
        changed = [n for e in effects for n in e.all_input_nodes if n in graph.stored]
        states = [e.args[0] for e in effects if e.target is torch.ops.bslite.keep_.default]
        noted = _notes(graph, effects, parts, made, value)
        blueprint.effects = frozenset(effects - noted)
        blueprint.assemble(directly=False)
        weights = {id(t) for part in made for t in part.weights}
        read = {n for p in parts for n in constants(graph, p) & graph.stored}
        copied = [value(n) for n in read if n not in changed]
        copied += captured.outside
        return Trained(
            shapes,
            blueprint,
            made,
            [blueprint.values_of(key, tensors) for key in blueprint.held],
            [value(n) for n in dict.fromkeys(changed)],
            [value(n) for n in states],
            Kept(t for t in copied if id(t) not in weights),
            any(map(draws, graph.nodes)),
            make_weights(self.module),
            captured.results.holders(self.module),
        )


def _without_mode(attributes: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The attributes of modules, but for the mode, of which each has traces of its own; what stands for a
    call while an outer forward runs; and what hooks make.
    """
    apart = ("training", CALL)
    return [{k: v for k, v in own.items() if k not in apart} for own in lasting(attributes)]


def _followed(part: Part) -> list[bool]:
    """Whether gradients come from behind, of each output: not from where they are stopped."""
    inside = set(part.nodes)
    return [any(operation(u) != "detach" for u in n.users if u not in inside) for n in part.outputs]


def _notes(
    graph: Graph, effects: Collection[Node], parts: Sequence[Part], made: Sequence[TrainedPart],
    value: Callable[[Node], Tensor],
) -> set[Node]:  # fmt: skip
    """Have parts note statistics that they make as soon as they have made them, which is before anything of
    the part is saved: a checkpoint that runs it again stops there. Returns the nodes that do so.
    """
    means = Counter(e.args[0] for e in effects if e.target is torch.ops.bslite.note_batch_.default)
    done = set()
    node: Any
    for node in graph.nodes:
        if node in effects and means[node.args[0]] == 1 and node.args[0] in means:
            mean, var, stats, momentum, count = node.args
            for part, trained in zip(parts, made, strict=True):
                if stats in part.outputs:
                    place = part.outputs.index(stats)
                    trained.notes.append(Note(place, value(mean), value(var), momentum, count))
                    done.add(node)
    return done
