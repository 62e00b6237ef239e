"""From an eager module to a graph of aten operations: ``torch.export`` with the batch left free."""

import inspect
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

from bslite.errors import InputError, SpecError, UnsupportedError
from bslite.frontends.common.lazy import load_torch
from bslite.frontends.torch.graph import Graph
from bslite.frontends.torch.packed.mode import packing
from bslite.frontends.torch.packed.uses import misuse, settle
from bslite.frontends.torch.values import DTYPES

if TYPE_CHECKING:
    import torch


def capture(module: "torch.nn.Module", example: Sequence[Any], name: str) -> "torch.export.ExportedProgram":
    """Export ``module`` with axis 0 of its inputs free; if that fails, fixed, with a warning."""
    torch = load_torch()
    check_module(module)
    check_example(example)
    args, dynamic = free_batch(module, example)
    try:
        return export(module, args, dynamic)
    except Warning:  # the model's own, which the caller has made an error
        raise
    except Exception as first:
        if not dynamic:
            raise failure(module, name, first) from first
        reason = first
    try:
        program = export(module, tuple(example), None)
    except Exception as second:
        raise failure(module, name, second) from second
    batch = next(x.shape[0] for x in torch.utils._pytree.tree_leaves(example) if _has_batch(x))
    warnings.warn(
        f"model {name!r}: the batch is fixed at the example's {batch}, torch.export could not keep it free: "
        f"{summary(reason)}",
        UserWarning,
        stacklevel=3,
    )
    return program


def check_module(module: "torch.nn.Module") -> None:
    """Raise unless ``module`` is a module in eval mode whose floating-point tensors are all float32."""
    torch = load_torch()
    if not isinstance(module, torch.nn.Module):
        raise UnsupportedError(f"from_torch takes a torch.nn.Module, got {type(module).__name__}")
    training = [path or type(module).__name__ for path, m in module.named_modules() if m.training]
    if training:
        raise SpecError(
            f"bslite runs inference, but the model is in training mode ({_some(training)}); call .eval()"
        )
    wrong = [
        f"{key} is {str(t.dtype).removeprefix('torch.')}"
        for key, t in tensors(module)
        if (t.is_floating_point() or t.is_complex()) and t.dtype != torch.float32
    ]
    if wrong:
        raise SpecError(f"bslite takes float32 parameters: {_some(wrong)}; convert the model with .float()")
    meta = [key for key, t in tensors(module) if t.is_meta]
    if meta:
        raise SpecError(f"parameters without values, on the meta device: {_some(meta)}")


def tensors(module: "torch.nn.Module") -> "Iterator[tuple[str, torch.Tensor]]":
    """Parameters, then buffers, under all their names."""
    yield from module.named_parameters(remove_duplicate=False)
    yield from module.named_buffers(remove_duplicate=False)


def check_example(example: Sequence[Any]) -> None:
    """Raise unless there are tensors among the example inputs, all of dtypes bslite has."""
    torch = load_torch()
    examples = [x for x in torch.utils._pytree.tree_leaves(example) if isinstance(x, torch.Tensor)]
    if not examples:
        raise InputError(
            "example_inputs holds no tensor; give a tensor, or a tuple of the forward's arguments"
        )
    for i, x in enumerate(examples):
        dtype = str(x.dtype).removeprefix("torch.")
        if dtype not in DTYPES:
            raise InputError(
                f"example input {i} is {dtype} {list(x.shape)}; bslite models take {', '.join(DTYPES)}"
            )


def free_batch(module: "torch.nn.Module", example: Sequence[Any]) -> tuple[tuple[Any, ...], Any]:
    """Inputs to export with and their ``dynamic_shapes``: axis 0 free where it is the first input's batch.

    torch.export treats sizes 0 and 1 as special and would fix the batch if it, or say half of it, were one of
    them: a small batch is repeated.
    """
    torch = load_torch()
    tree = torch.utils._pytree
    try:
        arguments = inspect.signature(module.forward).bind(*example).arguments
    except TypeError as e:
        raise InputError(f"example_inputs do not fit the forward of {type(module).__name__}: {e}") from None
    batches = [x.shape[0] for x in tree.tree_leaves(tuple(example)) if _has_batch(x)]
    if not batches:
        return tuple(example), None
    batch, dim = batches[0], torch.export.Dim("N")

    def shared(x: Any) -> bool:
        return _has_batch(x) and x.shape[0] == batch

    def repeated(x: Any) -> Any:
        return torch.cat([x] * 4) if shared(x) else x

    args = tree.tree_map(repeated, tuple(example)) if batch < 4 else tuple(example)
    return args, tree.tree_map(lambda x: {0: dim} if shared(x) else None, dict(arguments))


def _has_batch(x: Any) -> bool:
    return isinstance(x, load_torch().Tensor) and x.ndim > 0


def export(module: "torch.nn.Module", args: tuple[Any, ...], dynamic: Any) -> "torch.export.ExportedProgram":
    """`trace` without torch's fast path for attention, whose operations are whole layers of transformers."""
    torch = load_torch()
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        return trace(module, args, dynamic)
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def trace(module: "torch.nn.Module", args: tuple[Any, ...], dynamic: Any) -> "torch.export.ExportedProgram":
    """``torch.export.export``, non-strict: the module runs as the Python it is, on stand-in tensors."""
    torch = load_torch()
    with quiet(), torch.no_grad(), packing(module):
        program: Any = torch.export.export(module, args, dynamic_shapes=dynamic, strict=False)
    check_packing(program)
    return program


def check_packing(program: "torch.export.ExportedProgram") -> None:
    """UnsupportedError if packed sequences are used in a way that the stand-ins do not cover."""
    if not any(str(n.target).startswith("bslite.") for n in program.graph.nodes):
        return
    graph = Graph(program)
    if why := misuse(graph.nodes, graph.live):
        raise UnsupportedError(why)
    settle(graph.nodes, graph.live)


def functional(program: "torch.export.ExportedProgram") -> "torch.export.ExportedProgram":
    """The same program without in-place operations. No layer is decomposed."""
    with quiet(), load_torch().no_grad():
        return program.run_decompositions({})


@contextmanager
def quiet() -> Iterator[None]:
    """Drop torch.export's warnings about its own use of torch; repeat other warnings at the end.

    At the end, so that one that the caller's filters make an error is not taken for a failure of the export.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    own = re.compile(r".*isinstance\(treespec, LeafSpec\)|.*_flat_weights\[0\].* were assigned during export")
    for text, category, file, line in {(str(w.message), w.category, w.filename, w.lineno): 0 for w in caught}:
        if not own.match(text):
            warnings.warn_explicit(text, category, file, line)


def failure(module: "torch.nn.Module", name: str, error: Exception) -> UnsupportedError:
    """The error for a failure of torch.export; the layer is read off the traceback."""
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
    """The lines of an export error that say what is wrong: its listed reasons, or else its first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reasons = [line.removeprefix("- ").partition(". ")[0] for line in lines if line.startswith("- ")]
    return "; ".join(reasons or lines[:1] or [type(error).__name__])


def _some(items: Sequence[str], most: int = 5) -> str:
    """A few of ``items``, and how many more there are."""
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(items[:most]) + more
