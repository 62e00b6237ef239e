"""`verify`: a whole model, its layers and its outputs."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bslite.arithmetic import current, precision_of
from bslite.arithmetic import precision as least
from bslite.errors import EngineError, InputError
from bslite.spec import Array, ModelSpec
from bslite.spec.open import OpenModel, Ran, asked, in_order
from bslite.verification.checks import check, check_any, same_bits
from bslite.verification.engine import engine_for
from bslite.verification.layers import check_layers
from bslite.verification.result import Verification


def verify(
    spec: Any,
    x: Any,
    *,
    module: Callable[..., Any] | None = None,
    threads: int | None = None,
    on_layer: Callable[[str], None] | None = None,
    backend: str | None = None,
    precision: str | None = None,
) -> Verification:
    """Compare an engine with the reference on input ``x``; both may be anything that `bslite.run` takes.

    ``backend``: "cpu" or "cuda"; by default the GPU for CUDA tensors, else the CPU. On a GPU the second run
    is that of captured graphs.

    ``module``: the same network in torch (an ``nn.Module`` in eval mode, or any function of tensors), whose
    own error then sets the bound of the outputs. Of a compiled torch module and of one made by
    `bslite.optimize`, the traced graph in torch does. InputError if bslite runs the module in several parts.
    ``threads`` and ``precision`` as for `bslite.run`. ``on_layer`` is called with
    each layer's name as the references reach it. A few values per precision are held at a time, not the whole
    network.
    """
    from bslite.api import as_arrays, on_host, run, settled

    precision = getattr(spec, "precision", None) if precision is None else precision
    if precision is not None and precision_of(precision) is not current():
        with least(precision):
            return verify(spec, x, module=module, threads=threads, on_layer=on_layer, backend=backend)
    spec, backend, threads = asked(spec, backend, threads)
    if hasattr(type(spec), "_bslite_verified"):  # made by `bslite.optimize`: its class knows how
        if backend not in (None, "cpu"):
            raise EngineError(f"a torch module is verified where its parameters are, not on {backend!r}")
        spec, x, theirs = type(spec)._bslite_verified(spec, x)
        module, backend = theirs if module is None else module, None
    if isinstance(spec, OpenModel):
        each = in_order(spec, x)
        found = settled(spec, each)
        if found is None:
            return _verify_pieces(spec, each, module, threads, on_layer, backend)
        spec, x = found
    elif not isinstance(spec, ModelSpec):
        raise InputError(
            f"verify() takes a ModelSpec first, got {type(spec).__name__}; "
            "of any other model verify what bslite.compile makes of it"
        )
    engine = engine_for(list(x) if isinstance(x, (list, tuple)) else [x], backend, threads)
    first = _arrays(run(spec, x, threads=threads, backend=engine.backend))  # also checks the input, first
    again = _arrays(run(spec, x, threads=threads, backend=engine.backend))
    agree = None
    if engine.backend == "cpu":
        agree = same_bits(first, _arrays(run(spec, x, threads=1)))
    inputs, _ = as_arrays(spec, on_host(x))
    kept: dict[str, tuple[Array, Array]] = {}  # the references' values of the outputs
    layers = tuple(check_layers(spec, inputs, engine, {}, kept, on_layer))
    for declared, given in zip(spec.inputs, inputs, strict=True):
        if declared.name in spec.outputs:
            kept[declared.name] = given.astype(np.float64), given
    theirs = _torch_outputs(module, inputs, first)
    ops = {node.name: node.op for node in spec.nodes}
    outputs = tuple(
        check(name, "output " + ops.get(name, "input"), got, *kept[name], theirs[i] if theirs else None)
        for i, (name, got) in enumerate(zip(spec.outputs, first, strict=True))
    )
    peer = "float32" if spec.unrounded is None else "bfloat16"
    return Verification(spec.name, layers, outputs, same_bits(first, again), agree, engine.backend, peer)


def _verify_pieces(
    model: OpenModel, given: list[Any], module: Callable[..., Any] | None, threads: int | None,
    on_layer: Callable[[str], None] | None, backend: str | None,
) -> Verification:  # fmt: skip
    """As `verify`, of a model that several ModelSpecs compute: the layers of each for what it gets in a run,
    the outputs against those of the whole model in float64.
    """
    from bslite.api import as_arrays, in_pieces

    engine = engine_for(given, backend, threads)
    arrays: list[Any] = [x if isinstance(x, list) else _arrays(x)[0] for x in given]
    ran: list[Ran] = []
    first = in_pieces(model, arrays, engine.backend, threads)
    again = model.in_pieces(arrays, engine.backend, threads, ran)
    agree = None
    if engine.backend == "cpu":
        agree = same_bits(first, model.in_pieces(arrays, "cpu", 1))
    exact, single = (model.in_pieces(arrays, b, None) for b in ("reference64", "reference"))
    layers = [
        replace(c, name=f"{number}: {c.name}")
        for number, r in enumerate(ran, 1)
        if r.spec is not None
        for c in check_layers(r.spec, as_arrays(r.spec, r.inputs)[0], engine, {}, None, on_layer)
    ]
    theirs = _torch_outputs(module, arrays, first)
    outputs = tuple(
        checked
        for i, (port, got, wide, near) in enumerate(zip(model.outputs, first, exact, single, strict=True))
        for checked in check_any(port.name, got, wide, near, theirs[i] if theirs else None)
    )
    return Verification(model.name, tuple(layers), outputs, same_bits(first, again), agree, engine.backend)


def _arrays(x: Any) -> list[Array]:
    """What `bslite.run` or a torch module returns, as a list of NumPy arrays."""
    values = list(x) if isinstance(x, (list, tuple)) else [x]
    torch = sys.modules.get("torch")  # a tensor cannot exist without it, so never import it here
    return [
        v.detach().cpu().numpy() if torch and isinstance(v, torch.Tensor) else np.asarray(v) for v in values
    ]


def _torch_outputs(
    module: Callable[..., Any] | None, inputs: list[Array], ours: Sequence[Any]
) -> list[Array]:
    """What ``module`` makes of the inputs in float32; nothing where there is none. InputError unless that has
    the shapes of ``ours`` (what follows is left out).
    """
    if module is None:
        return []
    if not callable(module):
        raise InputError(f"verify(): module is a {type(module).__name__}, expected a torch module")
    import torch

    from bslite.engines.cuda.library import strict

    held = next(module.parameters(), None) if isinstance(module, torch.nn.Module) else None
    device = "cpu" if held is None else held.device
    with torch.no_grad(), strict(torch):
        made = module(*(torch.from_numpy(np.asarray(x, order="C")).to(device) for x in inputs))
    theirs = _arrays(list(made.values()) if isinstance(made, dict) else made)
    shapes = [[list(getattr(y, "shape", ())) for y in ys[: len(ours)]] for ys in (theirs, ours)]
    if shapes[0] != shapes[1]:
        raise InputError(f"verify(): the module gives shapes {shapes[0]}, expected {shapes[1]}")
    return theirs
