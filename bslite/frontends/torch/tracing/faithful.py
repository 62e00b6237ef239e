"""Whether a trace computes what its module does: code may ask whether it is traced, and do something else.

Masks of transformers are an example: some are causal in a trace and not in eager mode, for one model.
"""

import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from bslite.errors import UnsupportedError
from bslite.frontends.common.lazy import load_torch
from bslite.frontends.torch.builders import operation
from bslite.frontends.torch.graph import Graph, targets
from bslite.frontends.torch.memory import memory
from bslite.frontends.torch.tracing.copies import deep_copy
from bslite.frontends.torch.tracing.eager import transformers
from bslite.frontends.torch.tracing.loose import unchanged
from bslite.frontends.torch.tracing.noticing import generators
from bslite.frontends.torch.tracing.parameters import alias, parameters_kept
from bslite.frontends.torch.tracing.quiet import one_at_a_time
from bslite.frontends.torch.values import is_narrow

if TYPE_CHECKING:
    import torch
    from torch.fx import Node

SMALL = 1e-6  # what may stand where eager mode has zeros alone
#: Operations whose results are whatever lies in memory.
EMPTY = ("empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided")
MOST = 1e-2  # relative distance: the same operations in other kernels are never so far apart,
MOST_NARROW = 5e-2  # nor so far in 16 bits


def check_faithful(
    name: str, program: "torch.export.ExportedProgram", module: "torch.nn.Module", args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None, gradients: bool = False,
) -> None:  # fmt: skip
    """Raise UnsupportedError if a trace and its module compute different things for these arguments.
    ``gradients``: as in training, with gradients on.
    """
    if far := _departure(program, module, args, kwargs or {}, gradients):
        raise UnsupportedError(f"model {name!r}: its trace computes something else than its forward: {far}")


def _departure(
    program: "torch.export.ExportedProgram", module: "torch.nn.Module", args: Sequence[Any],
    kwargs: Mapping[str, Any], gradients: bool,
) -> str:  # fmt: skip
    """How far, in words, what torch computes by the trace is from what the module computes in eager mode,
    with the same random numbers; "" if it is the same, or cannot be compared: changed buffers (counters may
    change) or parameters, packed sequences.
    """
    graph = Graph(program)
    if written_parameters(program) or any(
        str(n.target).startswith("bslite.") or operation(n) in EMPTY or _changes_numbers(n, graph.stored)
        for n in graph.nodes
    ):
        return ""
    torch, far, refused, eager = load_torch(), 0.0, None, None
    try:
        with aside(gradients) as fast, unchanged(module):
            whole = program.module(check_guards=False)
            for m in whole.modules():  # what is written to buffers is not to reach the module's
                m._buffers.update({name: x.clone() for name, x in m._buffers.items() if x is not None})
            torch.default_generator.manual_seed(0)  # of no other device, which nothing sets back
            with transformers(module, fast):
                try:
                    eager = _numbers(called_apart(module, args, kwargs))
                except Exception as e:
                    refused = e
                    raise
            torch.default_generator.manual_seed(0)
            traced = _numbers(whole(*_copied(args), **_copied(kwargs)))
            if [x.shape for x in traced] != [x.shape for x in eager]:
                return "other sizes"
            if [x.dtype for x in traced] != [x.dtype for x in eager]:
                return "other dtypes"
            narrow = any(is_narrow(x) for x in eager)
            far = max((_distance(a, b) for a, b in zip(traced, eager, strict=True)), default=0.0)
    except Exception as e:  # whatever it is, the caller's own call says it
        if not any(is_narrow(n.meta.get("val")) for n in graph.nodes):
            return ""
        if refused is not None:
            raise refused from None  # a trace mixes dtypes that torch does not
        return "" if eager is None else f"torch refuses it ({(str(e).splitlines() or [type(e).__name__])[0]})"
    return f"a relative distance of {far:.1e}" if far > (MOST_NARROW if narrow else MOST) else ""


@contextmanager
def aside(gradients: bool) -> Iterator[bool]:
    """Run code of a module as if it had not run: no warnings, no random numbers gone. Torch's fast path for
    attention is off, as in a trace; yields whether it was on.
    """
    torch = load_torch()
    fast: bool = torch.backends.mha.get_fastpath_enabled()
    numbers = generators()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        mode, drawn = torch.set_grad_enabled(gradients), torch.random.fork_rng(devices=[])
        with warnings.catch_warnings(), mode, drawn, torch.autocast("cpu", enabled=False):
            warnings.simplefilter("ignore")  # the module's own, which the export repeats
            yield fast
    finally:
        for state, back in numbers:
            back(state)
        torch.backends.mha.set_fastpath_enabled(fast)


def written_parameters(program: "torch.export.ExportedProgram") -> list[str]:
    """The parameters that a forward writes to: it is not to run where these are the module's own."""
    own = {s.arg.name: s.target for s in program.graph_signature.input_specs if s.kind.name == "PARAMETER"}
    return [str(own[n.name]) for n in _written(program.graph_module) if n.name in own]


def _written(module: Any) -> "list[Node]":
    """What a graph is given and writes to, also where gradients are off."""
    given = [n for n in module.graph.nodes if n.op == "placeholder"]
    places = set[int | None]()
    for node in module.graph.nodes:
        places.update(memory(x) for x in targets(node))
        if node.target is load_torch().ops.higher_order.wrap_with_set_grad_enabled:
            _, held, *operands = node.args
            region = getattr(module, str(held.target))
            inner = [n for n in region.graph.nodes if n.op == "placeholder"]
            written = _written(region)
            places.update(memory(x) for x, n in zip(operands, inner, strict=True) if n in written)
    return [n for n in given if memory(n) in places - {None}]


def _changes_numbers(node: Any, stored: "Collection[Node]") -> bool:
    """Whether a node writes to a tensor of the module that is no counter."""
    own = {memory(n) for n in stored}
    return any(x.meta["val"].is_floating_point() for x in targets(node) if memory(x) in own)


def run_before(
    module: "torch.nn.Module", args: Sequence[Any], kwargs: Mapping[str, Any] | None = None,
    gradients: bool = False,
) -> bool:  # fmt: skip
    """Run a forward that is going to be traced; whether it did not fail. What its code keeps for later calls,
    as functools.cache does, is not to be a trace's stand-ins; without ``gradients`` it has none. Nothing else
    of it remains: one that writes to parameters fails before it does.
    """
    own = {id(p): alias(p) for p in module.parameters()}
    with suppress(Exception), one_at_a_time, aside(gradients), unchanged(module):
        with parameters_kept(own.values()):
            deep_copy(module, dict(own))(*_copied(args), **_copied(kwargs or {}))
        return True
    return False


def called_apart(
    module: "torch.nn.Module", args: Sequence[Any], kwargs: Mapping[str, Any] | None = None
) -> Any:
    """What a copy of ``module`` gives for copies of the arguments: its forward may write to all of them, and
    to attributes and buffers. Parameters are shared: a trace has shown that it writes to none.
    """
    copy = deep_copy(module, {id(p): p for p in module.parameters()})
    return copy(*_copied(args), **_copied(kwargs or {}))


def _copied(arguments: Any) -> Any:
    """Arguments that a forward may write to; where gradients are on, they ask for theirs as before."""
    torch = load_torch()

    def copied(x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        made = x.detach().clone()
        return made.requires_grad_() if x.requires_grad and torch.is_grad_enabled() else made

    return torch.utils._pytree.tree_map(copied, arguments)


def _numbers(results: Any) -> "list[torch.Tensor]":
    torch = load_torch()
    leaves = torch.utils._pytree.tree_leaves(results)
    return [x.detach() for x in leaves if isinstance(x, torch.Tensor) and x.layout == torch.strided]


def _distance(a: "torch.Tensor", b: "torch.Tensor") -> float:
    a, b = (x.abs() if x.is_complex() else x for x in (a, b))
    a, b = (x.double().nan_to_num(0.0, 0.0, 0.0) for x in (a, b))
    far, size = float((a - b).norm()), float(b.norm())
    return far / size if size else float(far > SMALL * a.numel() ** 0.5)
