"""Measures whether a part is faster in bslite: bslite and torch run it in turns on its real inputs."""

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from bslite.dropin import place
from bslite.dropin.blueprint import Blueprint
from bslite.dropin.model import Model
from bslite.dropin.twin import twin

Node = torch.fx.Node
Tensor = torch.Tensor
ROUNDS = 7
BUDGET = 0.5  # seconds that measuring one part may take, but never fewer than two rounds
SPINNING = 0.015  # seconds for which threads of the one that ran last may still take cores
LONG = 5  # pauses: in a run that takes so long they do not matter
ALONE = 0.95  # share of the flops of a part that runs without torch's beside it
CLEAR = 1.2  # by how much all runs of one must be faster than all of the other to end a measurement early
MARGIN = 1.05  # by how much torch must be faster: a part that is as fast stays where it was planned


def tune(
    blueprint: Blueprint, tensors: Mapping[str, Tensor], inputs: Sequence[Tensor], threads: int | None,
    inner: bool = False,
) -> list[Model]:  # fmt: skip
    """Measure every part on ``inputs`` and leave to torch the parts that torch runs faster. One that gets
    values without elements is not measured. ``inner``: torch runs what is around the module.

    Returns the models of the others, so that nobody packs their weights again.
    """
    kept = []
    graph = blueprint.capture.graph
    twins = [twin(graph, p) for p in blueprint.parts]
    wanted = {n for _, read in twins for n in read} | {n for p in blueprint.parts for n in p.inputs}
    with torch.no_grad():
        values = run_graph(blueprint, tensors, inputs, wanted)
        for part, (module, read) in zip(blueprint.parts, twins, strict=True):
            given = [values[n] for n in part.inputs]
            if not all(x.numel() for x in given):  # nothing to compute; other calls may have more
                continue
            model = blueprint.model(part, tensors, threads)
            read_by_torch = [values[n] for n in read]
            run = _waited_for(lambda m=model, x=given: m(x), inputs)  # type: ignore[misc]
            peer = _waited_for(lambda t=module, x=read_by_torch: t(*x), inputs)  # type: ignore[misc]
            alone = not inner and part.flops >= ALONE * blueprint.flops
            pause = SPINNING if alone and not place.on_gpu(inputs[0]) else 0.0
            ours, theirs = compare(run, peer, pause)
            if ours > MARGIN * theirs:  # other programs may have had a core meanwhile
                again = compare(run, peer, pause)
                ours, theirs = min(ours, again[0]), min(theirs, again[1])
            part.seconds, part.in_bslite = (ours, theirs), ours <= MARGIN * theirs
            if part.in_bslite:
                kept.append(model)
    return kept


def _waited_for(function: Callable[[], Any], inputs: Sequence[Tensor]) -> Callable[[], Any]:
    """``function``; on a GPU with a wait behind it, and run twice before: the second run captures a graph."""
    if not place.on_gpu(inputs[0]):
        return function

    def waiting() -> None:
        function()
        place.wait(inputs)

    for _ in range(2):
        waiting()
    return waiting


def compare(first: Callable[[], Any], second: Callable[[], Any], pause: float = 0.0) -> tuple[float, float]:
    """Medians of the seconds that each takes, run in turns after one run that does not count; in each turn
    only after ``pause`` seconds, which short runs fill that do not count.
    """
    times: tuple[list[float], list[float]] = ([], [])
    first(), second()
    start = time.perf_counter()
    for done in range(ROUNDS):
        if done >= 3 and time.perf_counter() - start > BUDGET:
            break
        if done >= 2 and (_clearly(*times) or _clearly(*reversed(times))):
            break
        for function, taken in zip((first, second), times, strict=True):
            begun = time.perf_counter()
            while True:
                before = time.perf_counter()
                function()
                last = time.perf_counter() - before
                if before - begun >= pause or last >= LONG * pause:
                    break
            taken.append(last)
    return statistics.median(times[0]), statistics.median(times[1])


def _clearly(faster: Sequence[float], slower: Sequence[float]) -> bool:
    """Whether the slowest run of one is well before the fastest of the other."""
    return CLEAR * max(faster) < min(slower)


def run_graph(
    blueprint: Blueprint, tensors: Mapping[str, Tensor], inputs: Sequence[Tensor], wanted: Iterable[Node]
) -> dict[Node, Any]:
    """The values of the ``wanted`` nodes, all computed by torch."""
    graph = blueprint.capture.graph
    targets = {s.arg.name: s.target for s in graph.program.graph_signature.input_specs}
    given = iter(inputs)
    flat = [
        blueprint.values_of(targets[n.name], tensors) if n in graph.stored else next(given)
        for n in graph.nodes
        if n.op == "placeholder"
    ]
    keeper = _Keeper(graph.program.graph_module, set(wanted), copies=not blueprint.capture.functional)
    keeper.run(*flat)
    return keeper.kept


class _Keeper(torch.fx.Interpreter):
    """Runs a graph and keeps some of its values as they were when they were made."""

    def __init__(self, module: torch.fx.GraphModule, wanted: set[Node], copies: bool) -> None:
        super().__init__(module)
        self.wanted, self.copies = wanted, copies
        self.kept: dict[Node, Any] = {}

    def run_node(self, n: Node) -> Any:
        value = super().run_node(n)
        if n in self.wanted:
            copied = self.copies and isinstance(value, Tensor) and n.op != "placeholder"
            self.kept[n] = value.clone() if copied else value
        return value
