"""The backend of ``torch.compile(model, backend="bslite")``, found by entry point, not by import.

Dynamo hands over a graph of torch calls whose parameters are inputs. Here the parameters become attributes
again, and sizes among the inputs are read from the tensors that they are sizes of. With ``dynamic=True``
floating-point numbers are inputs as well, even a layer's ``eps``; they become numbers again. The result is an
ordinary module for `Runner`, whose batch is free even where Dynamo fixed it, and which trains where gradients
are wanted or Dynamo saw layers in training mode.
"""

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from operator import is_
from typing import Any

import torch
from torch.fx.traceback import preserve_node_meta

from bslite.dropin import reasons
from bslite.dropin.options import Options
from bslite.dropin.runner import Runner
from bslite.errors import UnsupportedError

Node = torch.fx.Node
Tensor = torch.Tensor
QUESTION = ("fake_impls.py", "conv")  # the file and function of torch that ask for a convolution's library
ENCODER_LAYER = torch._transformer_encoder_layer_fwd
MAX_SETS = 64  # sets of parameters kept ready for one graph: the layers of a model share Dynamo's graph
MAX_NUMBERS = 16  # sets of numbers that one graph is traced with; calls with others run in torch


def bslite(module: torch.fx.GraphModule, inputs: Sequence[Any], **options: Any) -> Callable[..., Any]:
    """The function that runs the graph ``module``. ``options`` are those of `bslite.optimize`.

    It trains where gradients are wanted or layers are in training mode; with ``training=False`` torch does.
    """
    chosen = Options(**{"training": True, **options.get("options", options)})
    wanted = torch.is_grad_enabled() and any(isinstance(x, Tensor) and x.requires_grad for x in inputs)
    trains = any(map(_trains, module.graph.nodes))
    if not chosen.training and (wanted or trains):
        _say_in_torch(chosen, reasons.GRADIENTS if wanted else reasons.TRAINING)
        return module.forward
    if any(node.target is torch.ops.higher_order.tag_activation_checkpoint for node in module.graph.nodes):
        _say_in_torch(chosen, "checkpoints are torch's")
        # As Dynamo hands it over, the graph would draw other noise when it is run again.
        return torch._dynamo.lookup_backend("aot_eager")(module, list(inputs))
    _forget_choice_of_library()
    return _Compiled(module, chosen, trains)


class _Compiled:
    """One graph of Dynamo's. Called with parameters, sizes and tensors in the order of its placeholders."""

    def __init__(self, module: torch.fx.GraphModule, options: Options, trains: bool) -> None:
        self._module, self._options, self._trains = module, options, trains
        placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
        self._held = [i for i, n in enumerate(placeholders) if _is_held(n)]
        sizes = [i for i, n in enumerate(placeholders) if _source(n, placeholders) is not None]
        self._numbers = [i for i, n in enumerate(placeholders) if _is_number(n)]
        self._given = [i for i in range(len(placeholders)) if i not in {*self._held, *sizes, *self._numbers}]
        self._sets: list[tuple[list[Tensor], list[float], Runner]] = []
        self._seen: list[list[float]] = []

    def __call__(self, *arguments: Any) -> Any:
        held = [arguments[i] for i in self._held]
        numbers = [float(arguments[i]) for i in self._numbers]
        runner = self._runner(held, numbers)
        if runner is None:
            return self._module.forward(*arguments)
        return runner(tuple([arguments[i] for i in self._given]), {})

    def _runner(self, held: list[Tensor], numbers: list[float]) -> Runner | None:
        """What runs the graph with these parameters and numbers; None if the numbers change too often."""
        for known, values, runner in self._sets:
            if values == numbers and all(map(is_, known, held)):
                return runner
        if numbers not in self._seen:
            if len(self._seen) == MAX_NUMBERS:
                _say_in_torch(self._options, "numbers that it takes change from call to call")
                return None
            self._seen.append(numbers)
        made = _Body(self._module, held, self._held, dict(zip(self._numbers, numbers, strict=True)))
        runner = Runner(made.train(self._trains), self._options, "compiled graph")
        self._sets = [(held, numbers, runner), *self._sets[: MAX_SETS - 1]]
        return runner


class _Body(torch.nn.Module):
    """A graph with its parameters as attributes and its numbers written in, taking the remaining tensors."""

    def __init__(
        self, module: torch.fx.GraphModule, held: Sequence[Tensor], places: Sequence[int],
        numbers: Mapping[int, float],
    ) -> None:  # fmt: skip
        super().__init__()
        graph = torch.fx.Graph()
        placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
        new: dict[Node, Any] = {}
        for i, node in enumerate(placeholders):
            if i in numbers:
                new.update(dict.fromkeys(node.users, numbers[i]))
            elif i not in places and _source(node, placeholders) is None:
                new[node] = graph.node_copy(node)
        for i, tensor in zip(places, held, strict=True):
            name = str(placeholders[i].target)
            if isinstance(tensor, torch.nn.Parameter):
                self.register_parameter(name, tensor)
            else:
                self.register_buffer(name, tensor)
            new[placeholders[i]] = graph.get_attr(name)
        for node in placeholders:
            source = _source(node, placeholders)
            if source is not None:
                new[node] = graph.call_method("size", (new[source[0]], source[1]))
        for node in module.graph.nodes:
            if node.op != "placeholder" and node not in new:
                new[node] = graph.node_copy(node, new.__getitem__)
                _forget_classes(new[node])
                if node.target is ENCODER_LAYER and len(node.args) == 20:
                    new[node].target = _encoder_layer
        for name, child in module.named_children():
            self.add_module(name, child)
        for name, value in chain(module.named_buffers(recurse=False), module.named_parameters(recurse=False)):
            if not hasattr(self, name):
                self.register_buffer(name, value)
        self._graph = graph

    def forward(self, *tensors: Any) -> Any:
        # Node by node, so that what is traced keeps Dynamo's note of the layer it is from.
        with preserve_node_meta():
            return torch.fx.Interpreter(self, graph=self._graph).run(*tensors)


def _forget_classes(node: Node) -> None:
    """Keep of a node's layer its path alone: no layer is there to be asked for its attributes."""
    stack = node.meta.get("nn_module_stack")
    if stack:
        node.meta["nn_module_stack"] = {key: (path, torch.nn.Module) for key, (path, _) in stack.items()}


def _encoder_layer(x: Tensor, *given: Any) -> Tensor:
    """torch's operation for an encoder layer. If its mask is of one batch only, so is the trace of it.

    The stand-in that a trace runs does not look at the mask. One of kind 0 has no batch.
    """
    mask, kind = given[-2:]
    if mask is not None and kind != 0 and mask.shape[0] != x.shape[0]:
        raise UnsupportedError(f"an encoder layer's mask {list(mask.shape)} does not fit x {list(x.shape)}")
    made: Tensor = ENCODER_LAYER(x, *given)
    return made


def _say_in_torch(options: Options, why: str) -> None:
    if options.fallback != "silent":
        warnings.warn(f"torch.compile: the graph runs in torch: {why}", UserWarning, stacklevel=3)


def _is_held(node: Node) -> bool:
    """Whether a placeholder is a parameter or buffer of the user's module."""
    held = node.meta.get("tensor_dict", {}).get("_dynamo_static_input_type") is not None
    return held or isinstance(node.meta.get("example_value"), torch.nn.Parameter)


def _is_number(node: Node) -> bool:
    """Whether a placeholder is a floating-point number, which Dynamo wraps in a tensor."""
    value = node.meta.get("example_value")
    wrapped = isinstance(value, Tensor) and value.dtype == torch.float64 and not value.ndim
    return wrapped and not _is_held(node) and bool(node.users) and all(u.target == "item" for u in node.users)


def _trains(node: Node) -> bool:
    """Whether a node is a layer in training mode, such as a dropout that drops or a batch norm that notes."""
    if node.op != "call_function" or not callable(node.target):
        return False
    try:
        given = inspect.signature(node.target).bind(*node.args, **node.kwargs).arguments
    except (TypeError, ValueError):  # torch's own functions in C++ name no parameters
        return False
    return given.get("training") is True


def _source(node: Node, placeholders: Sequence[Node]) -> tuple[Node, int] | None:
    """The tensor and the axis whose size a placeholder stands for."""
    value = node.meta.get("example_value")
    if not isinstance(value, torch.SymInt):
        return None
    for other in placeholders:
        tensor = other.meta.get("example_value")
        if isinstance(tensor, Tensor):
            for axis, size in enumerate(tensor.shape):
                if isinstance(size, torch.SymInt) and size.node.expr == value.node.expr:
                    return other, axis
    return None


def _forget_choice_of_library() -> None:
    """Drop a guard that costs a recompilation and does not concern bslite.

    To follow a convolution, Dynamo asks which of torch's libraries would run it. One library runs small
    images only if the batch is at least 16. The answer becomes a guard, so that a batch on the other side of
    16 recompiles the graph, whatever the backend. A graph that bslite runs is right on both sides. This uses
    private parts of torch; where they differ from what is expected, the guards stay.
    """
    try:
        from torch.utils._sympy.numbers import int_oo
        from torch.utils._sympy.value_ranges import ValueRanges

        context = torch._guards.TracingContext.try_get()
        if context is None or context.fake_mode is None or context.fake_mode.shape_env is None:
            return
        shapes = context.fake_mode.shape_env
        asked = [guard for guard in shapes.guards if _asked_by_convolution(guard)]
        symbols = {s for guard in asked for s in guard.expr.free_symbols}
        symbols -= {s for guard in shapes.guards if guard not in asked for s in guard.expr.free_symbols}
        shapes.guards[:] = [g for g in shapes.guards if g not in asked or not g.expr.free_symbols <= symbols]
        for symbol in symbols:
            shapes.var_to_range[symbol] = ValueRanges(2, int_oo)  # zero and one are always for themselves
    except (AttributeError, ImportError, TypeError):
        return


def _asked_by_convolution(guard: object) -> bool:
    place = guard.sloc.framework_loc  # type: ignore[attr-defined]
    file, function = QUESTION
    return place is not None and str(place.filename).endswith(file) and place.name == function
