"""How a module runs for one kind of arguments: which nodes run in bslite and which in torch.

A `Blueprint` holds no weights. An `Executable` is a blueprint with weights; changed weights need a new
executable of the same blueprint.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from bslite.dropin import costs
from bslite.dropin.capture import Capture
from bslite.dropin.model import Model, serves
from bslite.dropin.partition import Nodes, partition
from bslite.errors import UnsupportedError
from bslite.frontends.torch.capture import tensors as named_tensors
from bslite.frontends.torch.graph import STORED, Graph
from bslite.frontends.torch.names import call_of
from bslite.frontends.torch.parts import PartWalk, Refusal, Survey
from bslite.spec import ModelSpec

Node = torch.fx.Node
Tensor = torch.Tensor


@dataclass
class Part:
    """Nodes that bslite can compute. ``seconds``: measured times of one run, bslite's and torch's."""

    nodes: Nodes
    flops: int
    layers: int
    seconds: tuple[float, float] | None = None
    in_bslite: bool = True

    @property
    def paths(self) -> list[str]:
        """The modules that the nodes are from, each once."""
        return list(dict.fromkeys(call_of(n).path for n in self.nodes.nodes))


@dataclass
class Blueprint:
    """``parts`` are in the order of the graph. Call `assemble` once it is known where each part runs."""

    name: str
    capture: Capture
    refused: list[Refusal]
    refused_flops: int
    parts: list[Part]
    flops: int  # of the whole graph, at a batch of `costs.BATCH`
    function: Callable[..., Any] | None = None
    direct: tuple[list[int], list[int]] | None = None  # places of in- and outputs, if one part is all
    _arguments: list[tuple[str, Any]] = field(default_factory=list)

    @property
    def in_bslite(self) -> list[Part]:
        """The parts that bslite runs."""
        return [p for p in self.parts if p.in_bslite]

    @property
    def torch_share(self) -> float:
        """The share of the flops that torch runs."""
        if not self.flops:  # nothing but moves
            return float(not self.in_bslite)
        return 1 - sum(p.flops for p in self.in_bslite) / self.flops

    def constants(self) -> list[Tensor]:
        """Tensors in the export that are neither parameters nor buffers."""
        return [t for t in self.capture.graph.program.constants.values() if isinstance(t, Tensor)]

    def walk(self, tensors: Mapping[str, Tensor] | None) -> PartWalk:
        """The builder of a part's model. ``tensors``: name -> present value."""
        return PartWalk(self.capture.graph, self.capture.shell, self.name, tensors)

    def spec(self, part: Part, tensors: Mapping[str, Tensor] | None = None) -> ModelSpec:
        """The model of a part."""
        return self.walk(tensors).build(part.nodes.nodes, part.nodes.inputs, part.nodes.outputs)

    def assemble(self) -> None:
        """Write the function that runs the graph; it calls a model in place of each part that bslite runs."""
        graph = _Writer(self)
        self.function, self._arguments, self.direct = graph.function, graph.arguments, graph.direct

    def values_of(self, key: str, tensors: Mapping[str, Tensor]) -> Tensor:
        """A parameter, buffer or constant by the name the export gave it."""
        program = self.capture.graph.program
        value = tensors.get(key)
        if value is None:
            value = program.state_dict[key] if key in program.state_dict else program.constants[key]
        return value


def draw(captured: Capture, name: str, supported: frozenset[str] | None = None) -> Blueprint:
    """Survey a captured graph and choose the parts; at first bslite runs them all.

    ``supported``: the ops that the engine has; None for all. Raises UnsupportedError if the graph takes an
    argument that is not a tensor.
    """
    survey = Survey(captured.graph, captured.shell, name, supported)
    composite = any(getattr(n.target, "_can_decompose", bool)() for n in survey.refused)
    if survey.refused and (composite or not captured.functional):
        # A refused operation may consist of supported ones. Parts may also move past other operations, which
        # must then not work in place.
        captured = captured.rewritten()
        survey = Survey(captured.graph, captured.shell, name, supported)
    graph = captured.graph
    for spec in graph.program.graph_signature.input_specs:
        if spec.kind.name not in (*STORED, "USER_INPUT"):
            raise UnsupportedError(f"model {name!r}: its graph takes a {spec.kind.name.lower()}")
    work = list(graph.operations())
    parts = [
        Part(nodes, costs.total(nodes.nodes), sum(map(costs.does_work, nodes.nodes)))
        for nodes in partition(survey)
    ]
    return Blueprint(
        name,
        captured,
        list(survey.refused.values()),
        costs.total(survey.refused),
        parts,
        costs.total(work),
    )


class Executable:
    """A blueprint with the present weights. It takes tensors and returns the results."""

    def __init__(
        self,
        blueprint: Blueprint,
        module: torch.nn.Module,
        threads: int | None,
        models_at_hand: Sequence[Model] = (),
    ) -> None:
        """``models_at_hand`` are used again where they fit, so that weights are not packed twice."""
        tensors = dict(named_tensors(module))
        self.blueprint = blueprint
        specs = [blueprint.spec(part, tensors) for part in blueprint.in_bslite]
        self.models = [
            next((m for m in models_at_hand if serves(m.spec, spec)), None) or Model(spec, threads)
            for spec in specs
        ]
        models = iter(self.models)
        self._leading = [
            next(models) if kind == "part" else blueprint.values_of(key, tensors)
            for kind, key in blueprint._arguments
            if kind != "input"
        ]
        self._function = blueprint.function
        self._direct = blueprint.direct
        self.results = blueprint.capture.results

    def prepared(self, tensors: Sequence[Tensor]) -> Callable[[Sequence[Tensor]], Any]:
        """The function to call for tensors of these shapes and strides."""
        if self._direct is None:
            return self
        places, order = self._direct
        if places == list(range(len(tensors))) and order == [0] and self.results.single:
            call = self.models[0].prepared(tensors)
            return lambda given: call(given)[0]
        return self

    def __call__(self, tensors: Sequence[Tensor]) -> Any:
        """The forward's result."""
        if self._direct is not None:
            places, order = self._direct
            made: Sequence[Any] = self.models[0]([tensors[i] for i in places])
            if self.results.single:
                return made[order[0]]
            return self.results.build([made[i] for i in order])
        assert self._function is not None
        return self.results.build(self._function(*self._leading, *tensors))


def call_part(model: Model, *tensors: Tensor) -> list[Tensor]:
    """Run a part; the assembled function calls this."""
    return model(tensors)


class _Writer:
    """Writes the function of a blueprint. Its arguments are the held models and tensors, then the inputs."""

    def __init__(self, blueprint: Blueprint) -> None:
        source = blueprint.capture.graph
        self._graph = torch.fx.Graph()
        self._new: dict[Node, Node] = {}
        self.arguments: list[tuple[str, Any]] = []
        parts = blueprint.in_bslite
        calls = [self._placeholder("part", i, f"part_{i}") for i in range(len(parts))]
        targets = {s.arg.name: s.target for s in source.program.graph_signature.input_specs}
        inside = {node: i for i, part in enumerate(parts) for node in part.nodes.nodes}
        needed = self._needed(source.nodes, inside, parts)
        for node in source.nodes:
            if node in source.stored and node in needed:
                self._new[node] = self._placeholder("tensor", targets[node.name], node.name)
        for node in source.nodes:
            if node.op == "placeholder" and node not in source.stored:
                self._new[node] = self._placeholder("input", None, node.name)
        self._write(source.nodes, inside, parts, calls, needed)
        module = torch.fx.GraphModule(source.program.graph_module, self._graph)
        module.graph.lint()
        self.function = module.forward
        self.direct = self._directly(source, parts)

    def _placeholder(self, kind: str, key: Any, name: str) -> Node:
        self.arguments.append((kind, key))
        return self._graph.placeholder(name)

    @staticmethod
    def _needed(nodes: Sequence[Node], inside: Mapping[Node, int], parts: Sequence[Part]) -> set[Node]:
        """The nodes whose values something outside the parts, or a part, reads."""
        needed: set[Node] = set()
        for node in reversed(nodes):
            if node in inside:
                part = parts[inside[node]]
                if node in needed:
                    needed.update(part.nodes.inputs)
            elif node.op == "output" or node in needed:
                needed.add(node)
                needed.update(node.all_input_nodes)
        return needed

    def _write(
        self,
        nodes: Sequence[Node],
        inside: Mapping[Node, int],
        parts: Sequence[Part],
        calls: Sequence[Node],
        needed: set[Node],
    ) -> None:
        """Write the nodes in an order in which each value is made before it is read."""
        import operator

        def make(part: int) -> None:
            outputs = parts[part].nodes.outputs
            made = self._graph.call_function(
                call_part, (calls[part], *(self._new[n] for n in parts[part].nodes.inputs))
            )
            for i, node in enumerate(outputs):
                self._new[node] = self._graph.call_function(operator.getitem, (made, i))

        waiting: list[Node | int] = []
        seen: set[int] = set()
        for node in nodes:
            if node in inside:
                if inside[node] not in seen:
                    seen.add(inside[node])
                    waiting.append(inside[node])
            elif node in needed and node not in self._new:
                waiting.append(node)
        while waiting:
            later: list[Node | int] = []
            for item in waiting:
                reads = parts[item].nodes.inputs if isinstance(item, int) else item.all_input_nodes
                if not all(n in self._new for n in reads) or (later and getattr(item, "op", "") == "output"):
                    later.append(item)
                elif isinstance(item, int):
                    make(item)
                else:
                    self._new[item] = self._graph.node_copy(item, self._new.__getitem__)
            if len(later) == len(waiting):
                raise RuntimeError("the parts of the graph wait for each other")
            waiting = later

    @staticmethod
    def _directly(source: Graph, parts: Sequence[Part]) -> tuple[list[int], list[int]] | None:
        """If one part makes all results: the places of its inputs and of its outputs in the graph's."""
        output = next(n for n in source.nodes if n.op == "output")
        results = output.args[0]
        if len(parts) != 1 or not isinstance(results, (list, tuple)):
            return None
        made = {n: i for i, n in enumerate(parts[0].nodes.outputs)}
        if any(not isinstance(r, torch.fx.Node) or r not in made for r in results):
            return None
        if len(set(results)) != len(results):
            return None  # one tensor, returned twice
        given = [n for n in source.nodes if n.op == "placeholder" and n not in source.stored]
        places = {n: i for i, n in enumerate(given)}
        if any(n not in places for n in parts[0].nodes.inputs):
            return None
        return [places[n] for n in parts[0].nodes.inputs], [made[r] for r in results]  # type: ignore[index]
