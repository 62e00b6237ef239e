"""`from_torch`: any torch module that ``torch.export`` can trace, as a ModelSpec."""

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bslite.errors import UnsupportedError
from bslite.frontends.common.lazy import load_torch
from bslite.frontends.torch import fixing
from bslite.frontends.torch.capture import Captured, Example, capture, failure, functional, repeat_batch
from bslite.frontends.torch.export import Walk
from bslite.frontends.torch.graph import Graph
from bslite.frontends.torch.model import TorchModel
from bslite.frontends.torch.tracing.faithful import check_faithful
from bslite.frontends.torch.unfolded import little_more
from bslite.frontends.torch.values import concrete
from bslite.spec import ModelSpec

if TYPE_CHECKING:
    import torch


def from_torch(
    module: "torch.nn.Module", example_inputs: Any, *, dynamic_shapes: Any = None, name: str | None = None
) -> ModelSpec:
    """The model that ``module`` computes in eval mode, traced by ``torch.export`` on ``example_inputs``.

    ``example_inputs`` is one tensor (float32, int64, int32, bool, uint8 or int8), a tuple of the forward's
    positional arguments, or a dict of its arguments by name; what is no tensor is built into the model.

    **Free sizes.** Axis 0 of each tensor becomes the free size "N" if it is as long as the first tensor's;
    the other sizes are fixed to the example's. ``dynamic_shapes`` says instead which are free, in the words
    of ``torch.export.export`` (``Dim``, ``Dim.AUTO``, ``Dim.DYNAMIC``, or names: ``{"x": {0: "batch"}}``), or
    "auto": every axis that the module leaves free, "H" and "W" of images, "L" of sequences. A ``Dim``'s least
    and greatest size are not held: the model takes every size that the module's code does. Where the batch,
    or a size asked for, is one that the module fixes, a warning says why. Code that asks whether a size is 1
    is traced as for a larger one. Where one graph cannot express all free sizes, the result is a
    `TorchModel`: a ModelSpec for the example that runs at other sizes, too.

    Layers are named by their path in the module; an operation in a forward method by the method's module
    and the op (``layer1.0.add``). Parameters keep their state_dict names. A contiguous CPU tensor is shared
    with the module, not copied: training the module further changes the model, which the next run
    on a CPU notices.

    Outputs are the tensors of the forward's result, tuples, lists and dicts flattened in order, None left
    out. An output may be an input. Labels are keys and places within the result (`labelled`).

    A trace that computes something else than the module, because its code asks whether it is traced, is
    refused.

    Raises SpecError for a module in training mode or with parameters that are not float32, InputError for an
    unfit example, UnsupportedError if the module cannot be traced or uses operations bslite does not have:
    all of them are listed, with the layers that use them. EngineError if torch is not installed.
    """
    load_torch()
    name = name or type(module).__name__
    if isinstance(example_inputs, Mapping) and _by_name(module, example_inputs):
        example = Example((), dict(example_inputs))
    else:
        given = example_inputs if isinstance(example_inputs, (tuple, list)) else (example_inputs,)
        example = Example(tuple(given), {})
    captured = capture(module, example, name, dynamic_shapes)
    tried = repeat_batch(example)[0] if captured.sizes.batch else example
    check_faithful(name, captured.program, module, tried.args, tried.kwargs)
    return Freedom(captured, module, name).spec()


def _by_name(module: Any, given: Mapping[Any, Any]) -> bool:
    """Whether a dict has arguments of the forward by name; else it is an argument."""
    forward = getattr(module, "forward", None)
    return forward is not None and set(given) <= set(inspect.signature(forward).parameters)


class Freedom:
    """Finds the sizes of an export that a model can leave free."""

    def __init__(self, captured: Captured, module: "torch.nn.Module", name: str) -> None:
        self.captured, self.module, self.name = captured, module, name
        self._functional: Any = None
        self._varied = False  # whether an operation could not be built because a size was free
        self._mutates = Graph(captured.program).mutation_shows()

    def spec(self) -> ModelSpec:
        """The model with the batch free if that can be, and other sizes where that leaves its operations on
        floats as they are and adds but little (`little_more`).

        If not all are, a `TorchModel`, which fixes the others call by call: a graph that computes with sizes
        is slower than one that knows them. UnsupportedError if there is no model.
        """
        sizes = self.captured.sizes
        free: frozenset[Any] = sizes.batch
        try:
            best = self._with(free, checked=False)
        except UnsupportedError:
            if not self._varied:
                raise
            free = frozenset()  # an operation knows the batch as a number only
            best = self._with(free, checked=False)
        others = [s for s in sizes.example if s not in free]
        for wanted in [others, *([s] for s in others)] if len(others) > 1 else [others]:
            if not wanted or free == frozenset(sizes.example):
                continue
            try:
                spec = self._with(free | {*wanted}, checked=True)
            except Exception:  # a builder may know numbers only; the model with the batch free is there
                continue
            if little_more(spec, best):
                free, best = free | {*wanted}, spec
        if free == frozenset(sizes.example):
            return best

        def made(fixed: Mapping[Any, int]) -> ModelSpec:
            return self._with(free, checked=False, fixed=fixed).replace(shares=best)

        return TorchModel.of(best, sizes, made)

    def _with(
        self, free: "frozenset[Any]", checked: bool, fixed: Mapping[Any, int] | None = None
    ) -> ModelSpec:
        """The model with these sizes free, the others ``fixed``, by default to the example's. ``checked``:
        sizes for which the trace does not hold are looked for; SpecError if the model takes one.
        """
        sizes = self.captured.sizes
        left = {s: n for s, n in sizes.example.items() if s not in free} if fixed is None else fixed
        graph = self._graph(self.captured.program, left)
        if self._mutates or graph.unknown():
            graph = self._rewritten(graph, left)
        walk = Walk(graph, self.module, self.name)
        given = {**sizes.example, **left}
        try:
            spec = walk.spec([concrete(traced, given) for traced in sizes.inputs])
        finally:
            self._varied = walk.varied
        if checked:
            walk.check_doubtful(spec)
        return spec

    def _graph(self, program: Any, left: Mapping[Any, int]) -> Graph:
        """The graph with some sizes fixed."""
        return Graph(fixing.fixed(program, left) if left else program, self.captured.sizes.without(left))

    def _rewritten(self, graph: Graph, left: Mapping[Any, int]) -> Graph:
        """The same graph without in-place changes and odd views, or as it is if torch cannot rewrite it."""
        try:
            if self._functional is None:
                self._functional = self._known() or functional(self.captured.program)
            return self._graph(self._functional, left)
        except Exception as e:
            if self._mutates:
                raise failure(self.module, self.name, e) from e
            return graph  # what is unknown in it will be listed

    def _known(self) -> Any:
        """The program with what has no builder written out in operations that have; None if some is left."""
        if not Graph(self.captured.program).unknown():
            return None
        try:
            program = functional(self.captured.program, decomposed=True)
        except Exception:  # a decomposition does not hold for free sizes
            return None
        return None if Graph(program).unknown() else program
