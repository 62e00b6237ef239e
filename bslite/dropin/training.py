"""Calls of a wrapped module in training: the graph runs on torch's tape, with parts of it in bslite."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from bslite.cache import Recent
from bslite.dropin import costs
from bslite.dropin.blueprint import Blueprint
from bslite.dropin.capture import OUTER_HOOKS, Capture, Traced, check_hooks, shell_of
from bslite.dropin.partition import partition
from bslite.dropin.signature import Key
from bslite.dropin.structure import Structure
from bslite.dropin.trained import TrainedPart
from bslite.dropin.watch import attributes_of
from bslite.errors import BsliteError, UnsupportedError
from bslite.frontends.torch.capture import check_tensors, failure, trace
from bslite.frontends.torch.capture import tensors as named_tensors
from bslite.frontends.torch.graph import Graph
from bslite.frontends.torch.parts import Refusal, Survey
from bslite.frontends.torch.training import rewrite

Tensor = torch.Tensor
MAX_KINDS = 8  # sizes of batches, modes and choices of what is frozen: each has a trace of its own
COMPUTED = "computed from a parameter, and followed by torch's autograd"


@dataclass
class Trained:
    """A trace in training mode, and the parts of it that run in bslite."""

    blueprint: Blueprint
    parts: Sequence[TrainedPart]
    run: Callable[[Sequence[Tensor], Sequence[Any]], Any]


class Trainer:
    """Runs a module's forward where gradients are needed or modules are in training mode."""

    def __init__(self, module: torch.nn.Module, name: str, threads: int | None) -> None:
        self.module, self.name, self.threads = module, name, threads
        self.made: Recent[Key, Trained | str] = Recent(MAX_KINDS)
        self._structure: Any = None
        self._attributes: list[dict[str, Any]] = []

    def find(self, key: Key, args: tuple[Any, ...], kwargs: dict[str, Any]) -> "Trained | str":
        """What serves the call, or why torch runs it."""
        modules = list(self.module.modules())
        present = [id(m) for m in modules], [id(p) for p in self.module.parameters()]
        if present != self._structure or not self._same_attributes(modules):
            self._structure, self._attributes = present, _without_mode(attributes_of(modules))
            self.made.clear()
        modes = tuple(m.training for m in modules)
        frozen = tuple(p.requires_grad for p in self.module.parameters())
        hooked = any(m.__dict__.get(h) for m in modules[1:] for h in OUTER_HOOKS)
        return self.made.get((key, modes, frozen, hooked), lambda: self._make(args, kwargs))

    def _same_attributes(self, modules: Sequence[torch.nn.Module]) -> bool:
        try:
            return bool(self._attributes == _without_mode(vars(m) for m in modules))
        except Exception:  # an attribute that does not compare, such as a tensor, is another one
            return False

    def _make(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> "Trained | str":
        try:
            return self._trained(Structure((args, kwargs), lambda x: isinstance(x, Tensor), empty=True))
        except BsliteError as e:
            return str(e)

    def _trained(self, arguments: Structure) -> Trained:
        captured, effects = capture(self.module, arguments, self.name)
        graph = captured.graph
        survey = _Survey(graph, captured.shell, self.name)
        tensors = dict(named_tensors(self.module))
        parts = [p for p in partition(survey) if p.flops]
        blueprint = Blueprint(
            self.name,
            captured,
            list(survey.refused.values()),
            parts,
            costs.total(graph.operations()),
            effects=frozenset(effects),
        )
        made = []
        for part in parts:
            try:
                trained = TrainedPart(blueprint.spec(part, tensors), tensors, self.threads)
                trained.check()
                made.append(trained)
            except BsliteError as e:
                part.in_bslite = False
                blueprint.refused.append(Refusal("gradient", self.name, str(e)))
        if not made:
            raise UnsupportedError(f"model {self.name!r}: bslite trains no part of it")
        blueprint.assemble(directly=False)
        held = [blueprint.values_of(key, tensors) for key in blueprint.held]
        function, results = blueprint.function, captured.results
        assert function is not None

        def run(given: Sequence[Tensor], objects: Sequence[Any]) -> Any:
            return results.build(function(*made, *held, *given), objects)

        return Trained(blueprint, made, run)


def _without_mode(attributes: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The attributes of modules, but for the mode, of which each has traces of its own."""
    return [{k: v for k, v in own.items() if k != "training"} for own in attributes]


class _Survey(Survey):
    """A survey that leaves to torch what is computed from parameters alone, so that autograd follows it."""

    def __init__(self, graph: Graph, module: torch.nn.Module, name: str) -> None:
        self._computed: set[torch.fx.Node] = set()
        for node in graph.nodes:
            if node in graph.constant and any(
                n in graph.stored | self._computed for n in node.all_input_nodes
            ):
                self._computed.add(node)
        graph.constant -= self._computed
        super().__init__(graph, module, name)

    def _survey(self, node: torch.fx.Node, operation: bool) -> Any:
        if node in self._computed:
            return self._problem(node, COMPUTED)
        return super()._survey(node, operation)


def capture(module: torch.nn.Module, arguments: Structure, name: str) -> tuple[Capture, set[torch.fx.Node]]:
    """Trace a module's forward in the modes that its layers are in, for arguments of fixed sizes; the nodes
    that change its buffers.

    Raises UnsupportedError if it cannot be traced or changes anything else.
    """
    check_tensors(module)
    check_hooks(module)
    traced = Traced(shell_of(module), arguments)
    tensors = tuple(x.detach() for x in arguments.leaves)
    try:
        program = trace(traced.twin, tensors, None)
    except Exception as e:
        raise failure(traced.twin, name, e) from e
    if traced.stateful:
        raise UnsupportedError(f"model {name!r}: its forward changes attributes of the module")
    effects = rewrite(program, name)
    graph = Graph(program)
    if graph.mutation_shows(effects):
        raise UnsupportedError(f"model {name!r}: an operation in place shows elsewhere")
    graph.live |= effects | {n for e in effects for n in e.all_input_nodes}
    assert traced.results is not None
    return Capture(graph, traced.twin, traced.results, "training", functional=True), effects
