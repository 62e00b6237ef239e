"""Whether a trace computes what its module does: code may ask whether it is traced, and do something else.

Masks of transformers are an example: some are causal in a trace and not in eager mode, for one model.
"""

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bslite.frontends.common.lazy import load_torch
from bslite.frontends.torch.eager import transformers
from bslite.frontends.torch.graph import Graph, draws, memory, writes

if TYPE_CHECKING:
    import torch

MOST = 1e-2  # relative distance: the same operations in other kernels are never so far apart


def departure(
    program: "torch.export.ExportedProgram", module: "torch.nn.Module", args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
) -> str:  # fmt: skip
    """How far, in words, what torch computes by the trace is from what the module computes in eager mode; ""
    if it is the same, or cannot be compared: random numbers, changed buffers, packed sequences.
    """
    graph = Graph(program)
    stored = {memory(n) for n in graph.stored}
    if any(
        draws(n) or str(n.target).startswith("bslite.") or (writes(n) and memory(n.args[0]) in stored)
        for n in graph.nodes
    ):
        return ""
    mha = load_torch().backends.mha
    fast = mha.get_fastpath_enabled()
    mha.set_fastpath_enabled(False)  # as in the trace; see `eager.transformers`
    try:
        with warnings.catch_warnings(), load_torch().no_grad(), transformers(module, fast):
            warnings.simplefilter("ignore")  # the module's own, which the export has repeated
            traced = _numbers(program.module(check_guards=False)(*_copied(args), **_copied(kwargs or {})))
            eager = _numbers(module(*_copied(args), **_copied(kwargs or {})))
    except Exception:  # whatever it is, the caller's own call says it
        return ""
    finally:
        mha.set_fastpath_enabled(fast)
    if [x.shape for x in traced] != [x.shape for x in eager]:
        return "other sizes"
    far = max((_distance(a, b) for a, b in zip(traced, eager, strict=True)), default=0.0)
    return f"a relative distance of {far:.1e}" if far > MOST else ""


def _copied(arguments: Any) -> Any:
    """Arguments that a forward may write to."""
    torch = load_torch()
    copied = torch.utils._pytree.tree_map(
        lambda x: x.detach().clone() if isinstance(x, torch.Tensor) else x, arguments
    )
    return copied


def _numbers(results: Any) -> "list[torch.Tensor]":
    torch = load_torch()
    leaves = torch.utils._pytree.tree_leaves(results)
    return [x.detach() for x in leaves if isinstance(x, torch.Tensor) and x.layout == torch.strided]


def _distance(a: "torch.Tensor", b: "torch.Tensor") -> float:
    a, b = (x.abs() if x.is_complex() else x for x in (a, b))
    a, b = (x.double().nan_to_num(0.0, 0.0, 0.0) for x in (a, b))
    apart, size = float((a - b).norm()), float(b.norm())
    return apart / size if size else float(apart > 0)
