"""From an eager module to a graph of aten operations: ``torch.export`` with sizes left free."""

import inspect
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from textwrap import shorten
from types import TracebackType
from typing import TYPE_CHECKING, Any

from bslite.errors import InputError, SpecError, UnsupportedError
from bslite.frontends.common.lazy import load_torch
from bslite.frontends.torch.asked import as_hints, free_axes
from bslite.frontends.torch.autocast import autocast_unseen
from bslite.frontends.torch.checks import check_example, check_module, check_read
from bslite.frontends.torch.decompose import table, written_out
from bslite.frontends.torch.graph import Graph, is_same, note_memory, unseen_view, writes
from bslite.frontends.torch.modes import write_regions
from bslite.frontends.torch.noise import keep_order
from bslite.frontends.torch.packed.mode import packing
from bslite.frontends.torch.packed.uses import misuse, settle
from bslite.frontends.torch.selected import choose
from bslite.frontends.torch.sizes import Sizes, plain_inputs, sizes_of, tensor_inputs
from bslite.frontends.torch.strided import in_order
from bslite.frontends.torch.tracing.data import data_followed
from bslite.frontends.torch.tracing.eager import transformers
from bslite.frontends.torch.tracing.faithful import run_before
from bslite.frontends.torch.tracing.following import Following, enquires, followed
from bslite.frontends.torch.tracing.loose import unchanged
from bslite.frontends.torch.tracing.numbers import has_numbers, numbers_known, sizes_alone, unsettled
from bslite.frontends.torch.tracing.quiet import one_at_a_time, quiet
from bslite.frontends.torch.tracing.stand_ins import of_any_size
from bslite.frontends.torch.values import dims
from bslite.frontends.torch.written import functionalized, with_views

if TYPE_CHECKING:
    import torch


MAX_QUESTIONS = 16
MAX_REASON = 300  # characters


@dataclass(frozen=True)
class Example:
    """Arguments of a forward."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def tensors(self) -> "list[torch.Tensor]":
        """The tensors among them, in order."""
        torch = load_torch()
        leaves = torch.utils._pytree.tree_leaves((self.args, self.kwargs))
        return [x for x in leaves if isinstance(x, torch.Tensor)]


@dataclass(frozen=True)
class Captured:
    """An export, and the sizes it left free."""

    program: "torch.export.ExportedProgram"
    sizes: Sizes


def capture(module: "torch.nn.Module", example: Example, name: str, dynamic_shapes: Any = None) -> Captured:
    """Export ``module`` with the sizes free that it is free in, or those that ``dynamic_shapes`` names.

    By default that is the batch; if that fails, it is fixed, with a warning. With "auto" every axis is
    offered to torch.export, which fixes those that the module fixes.
    """
    check_module(module)
    check_example(example.tensors())
    arguments = arguments_of(module, example)
    run_before(module, example.args, example.kwargs)
    repeated, shared = repeat_batch(example)
    if dynamic_shapes == "auto":
        if (found := _open(module, example, repeated, shared)) is not None:
            return found
    elif dynamic_shapes is not None:
        return _as_asked(module, example, dynamic_shapes, name)
    dim = load_torch().export.Dim("N")
    try:
        if not any(shared):
            program = export(module, example, None)
        else:
            places = iter(shared)
            free = along(arguments, lambda x: {0: dim} if next(places) else None)
            program = export(module, repeated, free)
        return Captured(program, sizes_of(program, example.tensors(), [{}] * len(shared), shared))
    except Warning:  # the model's own, which the caller has made an error
        raise
    except Exception as first:
        if not any(shared):
            raise failure(module, name, first) from first
        reason = first
    try:
        program = export(module, example, None)
    except Exception as second:
        raise failure(module, name, second) from second
    batch = next(x.shape[0] for x in example.tensors() if x.ndim)
    warn_fixed(
        name, f"the batch is fixed at the example's {batch}, torch.export could not keep it free", reason
    )
    return Captured(program, sizes_of(program, example.tensors(), [{}] * len(shared), shared))


def warn_fixed(name: str, what: str, reason: Exception) -> None:
    """Say that a size that should be free is not."""
    warnings.warn(f"model {name!r}: {what}: {summary(reason)}", UserWarning, stacklevel=4)


def _open(
    module: "torch.nn.Module", example: Example, repeated: Example, shared: Sequence[bool]
) -> Captured | None:
    """An export with every axis free that the module leaves free; None if the batch is not among them."""
    torch = load_torch()
    auto = torch.export.Dim.AUTO
    try:
        free = along(
            arguments_of(module, repeated),
            lambda x: {a: auto for a, n in enumerate(x.shape) if n > 1} or None,
        )
        with few_questions():
            program = export(module, repeated, free)
    except Warning:
        raise
    except Exception:  # what is wrong is said when the batch alone is asked for
        return None
    batched = [
        not isinstance(dims(n.meta["val"])[0], int)
        for n, first in zip(tensor_inputs(program), shared, strict=True)
        if first
    ]
    if unsettled(module, program):
        return None
    if not batched or not all(batched) or not plain_inputs(program):
        return None
    sizes = sizes_of(program, example.tensors(), [{}] * len(shared), shared)
    if any(made[s] != n for made in sizes.doubtful() for s, n in sizes.example.items() if s in sizes.batch):
        return None  # the module asks for the batch
    return Captured(program, sizes)


def _as_asked(module: "torch.nn.Module", example: Example, dynamic_shapes: Any, name: str) -> Captured:
    """An export with the sizes free that the user named, in torch.export's words."""
    named = free_axes(arguments_of(module, example), dynamic_shapes)
    repeated, shared = repeat_batch(example)
    batched = [first and 0 in axes for first, axes in zip(shared, named, strict=True)]
    try:
        program = export(module, repeated if batched == shared else example, as_hints(dynamic_shapes))
    except Warning:
        raise
    except Exception as e:
        raise failure(module, name, e) from e
    lost = [
        f"{own or 'a size'} = {tensor.shape[axis]}"
        for node, tensor, axes in zip(tensor_inputs(program), example.tensors(), named, strict=True)
        for axis, own in axes.items()
        if isinstance(dims(node.meta["val"])[axis], int)
    ]
    if lost:
        reason = SpecError("the module does not leave it free")
        warn_fixed(name, f"fixed at the example's size: {', '.join(dict.fromkeys(lost))}", reason)
    return Captured(program, sizes_of(program, example.tensors(), named, batched))


def arguments_of(module: "torch.nn.Module", example: Example) -> dict[str, Any]:
    """The example's arguments by the names of the forward's parameters."""
    try:
        bound = inspect.signature(module.forward).bind(*example.args, **example.kwargs)
    except TypeError as e:
        raise InputError(f"example_inputs do not fit the forward of {type(module).__name__}: {e}") from None
    return dict(bound.arguments)


def along(arguments: Any, of: "Callable[[torch.Tensor], Any]") -> Any:
    """``dynamic_shapes`` for these arguments: ``of(x)`` for each tensor."""
    torch = load_torch()
    return torch.utils._pytree.tree_map(lambda x: of(x) if isinstance(x, torch.Tensor) else None, arguments)


def repeat_batch(example: Example) -> tuple[Example, list[bool]]:
    """The example with a batch of at least four, and which tensors have the batch as axis 0.

    torch.export treats sizes 0 and 1 as special and would fix the batch if it, or say half of it, were one of
    them: a small batch is repeated.
    """
    torch = load_torch()
    tensors = example.tensors()
    batch = next((x.shape[0] for x in tensors if x.ndim), None)
    shared = [bool(x.ndim) and x.shape[0] == batch for x in tensors]
    if batch is None or batch >= 4:
        return example, shared

    def repeated(x: Any) -> Any:
        return torch.cat([x] * 4) if isinstance(x, torch.Tensor) and x.ndim and x.shape[0] == batch else x

    return Example(*torch.utils._pytree.tree_map(repeated, (example.args, example.kwargs))), shared


def export(module: "torch.nn.Module", example: Example, dynamic: Any) -> "torch.export.ExportedProgram":
    """`trace` without torch's fast path for attention, whose operations are whole layers of transformers."""
    torch = load_torch()
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        return trace(module, example.args, dynamic, example.kwargs, fast)
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def trace(
    module: "torch.nn.Module", args: tuple[Any, ...], dynamic: Any, kwargs: dict[str, Any] | None = None,
    fast: bool | None = None, gradients: bool = False, following: Following | None = None,
) -> "torch.export.ExportedProgram":  # fmt: skip
    """``torch.export.export``, non-strict: the module runs as the Python it is, on stand-in tensors.

    ``fast``: whether torch's fast path for attention is what the module takes in eager mode; None: as it is
    set now. With ``gradients``, the graph shows where the module switches them off. ``following``: which of
    ``args`` are known, where those are tensors; what the module computes of sizes alone is followed anyway,
    if it has to be.
    """
    torch = load_torch()
    fast = torch.backends.mha.get_fastpath_enabled() if fast is None else fast
    with (
        one_at_a_time,
        quiet(),
        torch.set_grad_enabled(gradients),
        torch.autocast("cpu", enabled=False),
        autocast_unseen(),
        packing(module),
        data_followed(),
        of_any_size(),
        transformers(module, fast),
        unchanged(module),
    ):

        def exported() -> Any:
            return torch.export.export(module, args, kwargs or None, dynamic_shapes=dynamic, strict=False)

        program: Any = None
        error: Exception | None = None
        try:
            with followed(module, following) if following else nullcontext():
                program = exported()
        except Exception as e:
            error = e
        if error and not following and enquires(error):
            with suppress(Exception), followed(module, Following()):
                program, error = exported(), None
        # The plain trace comes first: it follows such buffers where they are values.
        if has_numbers(module) and (error or unsettled(module, program)):
            with suppress(Exception), numbers_known(module):
                known = exported()
                program, error = (known, None) if sizes_alone(known) else (program, error)
        if error:
            raise error
    complete(program, gradients)
    check_packing(program)
    check_read(program)
    return program


@contextmanager
def few_questions() -> Iterator[None]:
    """Have torch.export fix a size about which a module asks more than `MAX_QUESTIONS` times.

    Each answer is kept and takes part in all later ones: windows of a shifted transformer take minutes.
    """
    from torch.fx.experimental import _config

    with _config.patch(symbol_guard_limit_before_specialize=MAX_QUESTIONS):  # type: ignore[attr-defined]
        yield


def complete(program: "torch.export.ExportedProgram", gradients: bool) -> None:
    """Write down anew which nodes read each node: where a forward switches gradients off and on again,
    torch.export forgets those before. Put what is computed there among the rest in a trace without
    ``gradients``. And note the memory that a trace takes for another, and the order of noise.
    """
    graphs = [m.graph for m in program.graph_module.modules() if hasattr(m, "graph")]
    for graph in graphs:
        for node in graph.nodes:
            node.users.clear()
        for node in graph.nodes:
            for source in node.all_input_nodes:
                source.users[node] = None
    if not gradients:
        write_regions(program, set())
    for graph in graphs:
        for node in graph.nodes:
            if node.op == "call_function":
                keep_order(node)
        note_memory(graph)
        in_order(graph)
        choose(graph, gradients)


def check_packing(program: "torch.export.ExportedProgram") -> None:
    """UnsupportedError if packed sequences are used in a way that the stand-ins do not cover."""
    if not any(str(n.target).startswith("bslite.") for n in program.graph.nodes):
        return
    graph = Graph(program)
    if why := misuse(graph.nodes, graph.live):
        raise UnsupportedError(why)
    settle(graph.nodes, graph.live)


def functional(
    program: "torch.export.ExportedProgram", decomposed: bool = False
) -> "torch.export.ExportedProgram":
    """The same program without in-place operations. No layer is decomposed, or with ``decomposed`` those that
    have no builder. Raises UnsupportedError if torch would forget where a tensor lies.
    """
    torch = load_torch()
    with one_at_a_time, quiet(), torch.no_grad(), torch.autocast("cpu", enabled=False):
        in_place = any(map(writes, program.graph.nodes))
        made = functionalized(program) if in_place else None
        if decomposed and (made is not None or not in_place):
            made = written_out(made or program)
        if made is not None and (decomposed or not Graph(made).unknown()):
            return made
        if any(map(is_same, program.graph.nodes)):
            program = with_views(program)
        if view := unseen_view(program.graph.nodes):  # torch would take it for a new tensor
            raise UnsupportedError(f"an operation in place shows elsewhere, at {view.name!r}")
        try:
            return program.run_decompositions(dict(table()) if decomposed else {})
        except RuntimeError as e:
            if "as_strided" not in str(e):
                raise  # torch refuses the same in eager mode
            raise UnsupportedError("it writes by way of strides") from e


def failure(module: "torch.nn.Module", name: str, error: Exception) -> UnsupportedError:
    """The error for a failure of torch.export; the layer is read off the traceback."""
    if isinstance(error, UnsupportedError):
        return UnsupportedError(f"model {name!r}: {error}")
    layer = layer_of(module, error)
    where = f" at layer {layer!r}" if layer else ""
    return UnsupportedError(f"model {name!r}: torch.export cannot trace it{where}: {summary(error)}")


def layer_of(module: "torch.nn.Module", error: BaseException) -> str:
    """Path of the innermost submodule whose call is on the traceback, or ""."""
    paths = {id(m): path for path, m in module.named_modules()}
    found, frame = "", error.__traceback__
    while isinstance(frame, TracebackType):
        path = paths.get(id(frame.tb_frame.f_locals.get("self")))
        found, frame = path or found, frame.tb_next
    return found


def summary(error: Exception) -> str:
    """The lines of an export error that say what is wrong: its listed reasons, or else its first line, which
    may hold an expression of hundreds of terms.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reasons = [line.removeprefix("- ").partition(". ")[0] for line in lines if line.startswith("- ")]
    return shorten("; ".join(dict.fromkeys(reasons or lines[:1] or [type(error).__name__])), MAX_REASON)
