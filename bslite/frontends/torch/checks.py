"""What a module, its arguments and its trace have to be: errors before anything is built."""

import functools
from collections.abc import Iterator, Sequence
from types import CodeType
from typing import TYPE_CHECKING, Any

from bslite.errors import InputError, SpecError, UnsupportedError
from bslite.frontends.common.lazy import load_torch
from bslite.frontends.torch.values import DTYPES, dtype_name

if TYPE_CHECKING:
    import torch

MOST_WRAPPED = 8  # functions around one


def check_module(module: "torch.nn.Module", *others: str) -> None:
    """Raise unless ``module`` is a module in eval mode whose parameters are float32, or of ``others`` by
    dtype.

    What never asks for its mode may be in training mode, as a new Sequential of old layers is, or a copy of a
    layer of einops.
    """
    torch = load_torch()
    if not isinstance(module, torch.nn.Module):
        raise UnsupportedError(f"from_torch takes a torch.nn.Module, got {type(module).__name__}")
    training = [path or type(m).__name__ for path, m in module.named_modules() if in_training(m)]
    if training:
        raise SpecError(
            f"bslite runs inference, but the model is in training mode ({_some(training)}); call .eval()"
        )
    check_tensors(module, "complex64", *others)


def in_training(layer: "torch.nn.Module") -> bool:
    """Whether a layer is in training mode, and may ask for it."""
    return layer.training and _reads_mode(type(layer))  # type: ignore[arg-type]


@functools.cache
def _reads_mode(layer: Any) -> bool:
    """Whether the code of a layer's class names the layer's mode. A trace follows what functions elsewhere do
    with it.
    """
    base = load_torch().nn.Module
    own = [c for c in layer.__mro__ if not issubclass(base, c)]
    return any(_names(code, "training") for c in own for value in vars(c).values() for code in _codes(value))


def _codes(value: Any) -> Iterator[CodeType]:
    """The code of a method or property, and what it wraps."""
    value = getattr(value, "fget", getattr(value, "__func__", value))
    for _ in range(MOST_WRAPPED):
        if isinstance(code := getattr(value, "__code__", None), CodeType):
            yield code
        value = getattr(value, "__wrapped__", None)


def _names(code: CodeType, name: str) -> bool:
    return name in code.co_names or any(_names(c, name) for c in code.co_consts if isinstance(c, CodeType))


def check_tensors(module: "torch.nn.Module", *others: str) -> None:
    """Raise unless a module's tensors have values, and parameters of no integers are float32,
    or of ``others`` by dtype.

    Buffers may be of other dtypes: what is made of them before they meet a value (positions, say, cast to
    float32) is a constant.
    """
    wrong = [
        f"{key} is {dtype_name(t)}"
        for key, t in module.named_parameters(remove_duplicate=False)
        if (t.is_floating_point() or t.is_complex()) and dtype_name(t) not in ("float32", *others)
    ]
    if wrong:
        raise SpecError(f"bslite takes float32 parameters: {_some(wrong)}; convert the model with .float()")
    meta = [key for key, t in tensors(module) if t.is_meta]
    if meta:
        raise SpecError(f"parameters without values, on the meta device: {_some(meta)}")


def tensors(module: "torch.nn.Module") -> "Iterator[tuple[str, torch.Tensor]]":
    """Parameters, then buffers, under all their names; but none that is sparse: see `check_read`."""
    strided = load_torch().strided
    for own in (module.named_parameters, module.named_buffers):
        yield from ((key, t) for key, t in own(remove_duplicate=False) if t.layout == strided)


def check_example(examples: "Sequence[torch.Tensor]") -> None:
    """Raise unless there are tensors among the example inputs, all of dtypes bslite has."""
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


def check_read(program: "torch.export.ExportedProgram") -> None:
    """Raise UnsupportedError where a forward reads a sparse tensor of the module's, or an object, such as a
    generator of its own, whose state a call changes.
    """
    torch = load_torch()
    places = {n.name: n for n in program.graph.nodes if n.op == "placeholder"}
    for spec in program.graph_signature.input_specs:
        if spec.kind.name == "CUSTOM_OBJ":
            kind = getattr(spec.arg, "class_fqn", "torch")
            raise UnsupportedError(f"its forward reads an object that no trace follows, a {kind}")
        node = places[spec.arg.name]
        layout = getattr(node.meta["val"], "layout", torch.strided)
        if spec.target is not None and node.users and layout != torch.strided:
            raise UnsupportedError(f"bslite takes dense parameters: {spec.target} is {layout}")


def _some(items: Sequence[str]) -> str:
    """A few of ``items``, and how many more there are."""
    more = f" and {len(items) - 5} more" if len(items) > 5 else ""
    return ", ".join(items[:5]) + more
