"""How a module runs for one kind of arguments: which nodes run in bslite and which in torch.

A `Blueprint` holds no weights. An `Executable` is a blueprint with weights; changed weights need a new
executable of the same blueprint.
"""

import functools
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import torch

from bslite.dropin import attending, costs
from bslite.dropin.assumption import Assumption
from bslite.dropin.capture import Capture
from bslite.dropin.changed import writing
from bslite.dropin.model import Model, serves
from bslite.dropin.partition import Part, partition, sizes_from_inputs
from bslite.dropin.structure import counted
from bslite.dropin.twin import Call, may_be_empty, unless_empty
from bslite.errors import UnsupportedError
from bslite.frontends.torch.builders import find
from bslite.frontends.torch.checks import tensors as named_tensors
from bslite.frontends.torch.decompose import table
from bslite.frontends.torch.graph import STORED, draws
from bslite.frontends.torch.parts import PartWalk, Refusal, Survey
from bslite.spec import ModelSpec

Node = torch.fx.Node
Tensor = torch.Tensor


@dataclass
class Blueprint:
    """``parts`` are in the order of the graph. Call `assemble` once it is known where each part runs."""

    name: str
    capture: Capture
    refused: list[Refusal]
    parts: list[Part]
    flops: int  # of the whole graph, at a batch of `costs.BATCH`
    function: Callable[..., Any] | None = None
    direct: tuple[list[int], list[int]] | None = None  # places of in- and outputs, if one part is all
    held: list[str] = field(default_factory=list)  # the tensors that the function takes, by name
    surveyed: bool = True  # else it has another's parts, which were not tried
    effects: frozenset[Node] = frozenset()  # nodes of the graph that change the module's buffers
    assumption: Assumption | None = None  # that the forward gets the answers that the trace holds for

    def __post_init__(self) -> None:
        if self.capture.answers and self.assumption is None:
            drawing = any(map(draws, self.capture.graph.nodes))
            self.assumption = Assumption(self.capture.answers, drawing)

    def carried(self, captured: Capture) -> "Blueprint":
        """The same parts of a graph with the same nodes, for other sizes."""
        captured = captured.as_far_as(self.capture)
        graph = captured.graph
        nodes = {node.name: node for node in graph.nodes}
        sizes_from_inputs(graph)
        parts = [
            replace(
                part,
                nodes=[nodes[n.name] for n in part.nodes],
                inputs=[nodes[n.name] for n in part.inputs],
                outputs=[nodes[n.name] for n in part.outputs],
            )
            for part in self.parts
        ]
        flops = costs.total(graph.operations())
        return Blueprint(self.name, captured, self.refused, parts, flops, surveyed=False)

    @property
    def in_bslite(self) -> list[Part]:
        """The parts that bslite runs."""
        return [p for p in self.parts if p.in_bslite]

    @property
    def grows(self) -> bool:
        """Whether sizes of a cache are free in it, and what runs it is the same for all of them."""
        return bool(self.capture.growing) and not self.capture.counters and self.direct is None

    @property
    def lacking(self) -> list[Refusal]:
        """The operations that bslite does not have, in the form that the graph calls them."""
        return [r for r in self.refused if not r.grows]

    @property
    def torch_share(self) -> float:
        """The share of the flops that torch runs."""
        if not self.flops:  # nothing but moves
            return float(not self.in_bslite)
        return 1 - sum(p.flops for p in self.in_bslite) / self.flops

    def survey(self, supported: frozenset[str] | None) -> None:
        """Choose the parts anew, because those of another size do not serve this one. None is measured."""
        made = draw(self.capture, self.name, supported)
        self.capture, self.refused, self.parts = made.capture, made.refused, made.parts
        self.surveyed = True

    def unmeasured(self) -> "Blueprint":
        """The same, its parts to be measured anew."""
        parts = [replace(p, seconds=None, in_bslite=True) for p in self.parts]
        return replace(self, parts=parts, function=None, direct=None, held=[])

    def constants(self) -> list[Tensor]:
        """Tensors that the trace takes for constants, and what the export has of them: detached, some."""
        lifted = self.capture.graph.program.constants.values()
        return [*self.capture.outside, *(t for t in lifted if isinstance(t, Tensor))]

    def walk(self, tensors: Mapping[str, Tensor] | None) -> PartWalk:
        """The builder of a part's model. ``tensors``: name -> present value."""
        return PartWalk(self.capture.graph, self.capture.shell, self.name, tensors)

    def spec(
        self, part: Part, tensors: Mapping[str, Tensor] | None = None, shares: ModelSpec | None = None
    ) -> ModelSpec:
        """The model of a part. ``shares``: one with the same weights, whose packed ones it takes."""
        return self.walk(tensors).build(part.nodes, part.inputs, part.outputs, shares)

    def model(
        self, part: Part, tensors: Mapping[str, Tensor], threads: int | None,
        shares: ModelSpec | None = None, at_hand: Sequence[Model] = (),
    ) -> Model:  # fmt: skip
        """What runs a part, with the present weights: one ``at_hand``, or a new one."""
        spec, gives = self.spec(part, tensors, shares), [n.meta["val"].dtype for n in part.outputs]
        made = Model(spec, threads, gives=gives)
        return next((m for m in at_hand if m.gives == made.gives and serves(m.spec, spec)), made)

    def values_of(self, key: str, tensors: Mapping[str, Tensor]) -> Tensor:
        """A parameter, buffer or constant by the name the export gave it."""
        program = self.capture.graph.program
        value = tensors.get(key)
        if value is None:
            value = program.state_dict[key] if key in program.state_dict else program.constants[key]
        return value

    def assemble(self, directly: bool = True) -> None:
        """Write the function that runs the graph, with a call in place of each part that bslite runs; there
        is none where one part is all, if that may be called ``directly``.

        It takes a function for each of these parts, the tensors `held`, then the inputs.
        """
        source, parts, graph = self.capture.graph, self.in_bslite, torch.fx.Graph()
        given = [n for n in source.nodes if n.op == "placeholder" and n not in source.stored]
        self.direct = _directly(source.nodes[-1].args[0], given, parts) if directly else None
        if self.direct is not None:
            return
        inside = {node: part for part in parts for node in part.nodes}
        needed = _needed(source.nodes, inside, self.effects)
        stored = [n for n in source.nodes if n in source.stored and n in needed]
        targets = {s.arg.name: s.target for s in source.program.graph_signature.input_specs}
        self.held = [targets[n.name] for n in stored]
        calls = {part: graph.placeholder(f"part_{i}") for i, part in enumerate(parts)}
        new = {n: graph.placeholder(n.name) for n in (*stored, *given)}
        others = [n for n in source.nodes if n in inside or (n in needed and n not in new)]
        drawing = [n for n in others if n not in inside and draws(n)]
        acting = [n for n in others if n in self.effects]
        before = {n: b for order in (drawing, acting) for b, n in pairwise(order)}  # which is to run first
        waiting: list[Node | Part] = list(dict.fromkeys(inside.get(n, n) for n in others))
        while waiting:  # in rounds, because a part may stand before what it reads
            later: list[Node | Part] = []
            for item in waiting:
                reads = item.inputs if isinstance(item, Part) else item.all_input_nodes
                early = item in before and before[item] not in new
                if (
                    early
                    or not all(n in new for n in reads)
                    or (later and getattr(item, "op", "") == "output")
                ):
                    later.append(item)
                elif isinstance(item, Part):
                    made = graph.call_function(call_part, (calls[item], *(new[n] for n in item.inputs)))
                    for i, node in enumerate(item.outputs):
                        new[node] = graph.call_function(operator.getitem, (made, i))
                elif item.target is attending.ATTENTION:
                    new[item] = attending.copied(graph, item, new)
                else:
                    new[item] = graph.node_copy(item, new.__getitem__)
                    if item.target is torch.ops.aten.empty_like.default:  # a part checks the numbers it takes
                        new[item].target = torch.ops.aten.zeros_like.default
            if len(later) == len(waiting):
                raise RuntimeError("the parts of the graph wait for each other")
            waiting = later
        attending.unread(graph)
        module = torch.fx.GraphModule(source.program.graph_module, graph)
        module.graph.lint()
        self.function = module.forward


def draw(captured: Capture, name: str, supported: frozenset[str] | None = None) -> Blueprint:
    """Survey a captured graph and choose the parts; at first bslite runs them all.

    ``supported``: the ops that the engine has; None for all. Raises UnsupportedError if the graph takes an
    argument that is not a tensor.
    """
    survey = Survey(captured.graph, captured.shell, name, supported, captured.growing)
    if any(find(n) is None and n.target in table() for n in survey.refused):
        try:
            written = captured.rewritten(decomposed=True)
        except Exception:  # a decomposition does not hold for free sizes
            written = captured
        other = Survey(written.graph, captured.shell, name, supported, captured.growing)
        if len(other.refused) < len(survey.refused):
            captured, survey = written, other
    composite = any(
        getattr(n.target, "_can_decompose", bool)() for n, r in survey.refused.items() if not r.grows
    )
    if survey.refused and (composite or not captured.functional):
        # A refused operation may consist of supported ones. Parts may also move past other operations, which
        # must then not work in place.
        captured = captured.rewritten()
        survey = Survey(captured.graph, captured.shell, name, supported, captured.growing)
    graph = captured.graph
    for spec in graph.program.graph_signature.input_specs:
        if spec.kind.name not in (*STORED, "USER_INPUT"):
            raise UnsupportedError(f"model {name!r}: its graph takes a {spec.kind.name.lower()}")
    flops = costs.total(graph.operations())
    return Blueprint(name, captured, list(survey.refused.values()), partition(survey), flops)


class Executable:
    """A blueprint with the present weights."""

    def __init__(
        self,
        blueprint: Blueprint,
        module: torch.nn.Module,
        threads: int | None,
        models_at_hand: Sequence[Model] = (),
        shares: ModelSpec | None = None,
    ) -> None:
        """``models_at_hand`` are used again where they fit; others share packed weights with ``shares``."""
        tensors = dict(named_tensors(module))
        self.blueprint = blueprint
        self.models = [
            blueprint.model(part, tensors, threads, shares, models_at_hand) for part in blueprint.in_bslite
        ]
        for model in self.models:  # in parts, with operations of torch's between them, or that round
            model.beside_torch = blueprint.direct is None or model.rounds
        self._tensors = [blueprint.values_of(key, tensors) for key in blueprint.held]
        self._calls: list[Call] = [
            unless_empty(model, blueprint.capture.graph, part, lambda key: blueprint.values_of(key, tensors))
            if may_be_empty(part)
            else model
            for model, part in zip(self.models, blueprint.in_bslite, strict=True)
        ]
        self._holders = blueprint.capture.results.holders(module)

    def prepared(self, tensors: Sequence[Tensor]) -> Callable[[Sequence[Tensor], Sequence[Any]], Any]:
        """The function from tensors of these shapes and strides, and the objects that hold some of them, to
        the forward's result.
        """
        blueprint, holders = self.blueprint, self._holders
        results, assumption = blueprint.capture.results, blueprint.assumption
        graph = self._graph(tensors)
        changed = blueprint.capture.changed
        if blueprint.direct == (list(range(len(tensors))), [0]) and results.single and not changed:
            return lambda given, objects: graph(given)[0]
        checked = graph if assumption is None else assumption.checked(graph)
        if changed:
            checked = writing(checked, changed)
        if counters := blueprint.capture.counters:
            return lambda given, objects: results.build(
                checked([*given, *counted(objects, counters)]), objects, holders
            )
        return lambda given, objects: results.build(checked(given), objects, holders)

    def _graph(self, tensors: Sequence[Tensor]) -> Callable[[Sequence[Tensor]], Sequence[Any]]:
        """The function from such tensors to all that the graph gives."""
        function = self.blueprint.function
        if self.blueprint.direct is None:
            assert function is not None
            whole = functools.partial(function, *self._calls, *self._tensors)
            return lambda given: whole(*given)
        places, order = self.blueprint.direct
        call = self.models[0].prepared([tensors[i] for i in places])
        if (places, order) == (list(range(len(tensors))), list(range(len(order)))):
            return call

        def direct(given: Sequence[Tensor]) -> Sequence[Any]:
            made = call([given[i] for i in places])
            return [made[i] for i in order]

        return direct


def call_part(part: Call, *tensors: Tensor) -> list[Tensor]:
    """Run a part; the assembled function calls this."""
    return part(tensors)


def _needed(nodes: Sequence[Node], inside: Mapping[Node, Part], effects: Collection[Node]) -> set[Node]:
    """The nodes whose values something outside the parts, or a part, reads, and those with ``effects``."""
    needed: set[Node] = set()
    for node in reversed(nodes):
        if node in inside:
            if node in needed:
                needed.update(inside[node].inputs)
        elif node.op == "output" or node in needed or node in effects:
            needed.add(node)
            needed.update(node.all_input_nodes)
    return needed


def _directly(results: Any, given: list[Node], parts: Sequence[Part]) -> tuple[list[int], list[int]] | None:
    """If one part makes all results: the places of its inputs and of its outputs in the graph's."""
    if len(parts) != 1 or not isinstance(results, (list, tuple)):
        return None
    (part,) = parts
    if not set(results) <= set(part.outputs) or not set(part.inputs) <= set(given):
        return None
    if len(set(results)) != len(results):
        return None  # one tensor, returned twice
    return [given.index(n) for n in part.inputs], [part.outputs.index(r) for r in results]
