"""Stand-ins in an export for what some operations make, at any size.

torch.export runs recurrent layers step by step on its stand-ins, which takes seconds and fixes the length. It
computes a size of two other operations as a number, or as an expression that it cannot simplify. In the graph
each of them is one operation.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from bslite.frontends.common.lazy import load_torch
from bslite.frontends.torch.noise import RECURRENT

if TYPE_CHECKING:
    from torch import Tensor

_here = threading.local()  # ``any_size``: whether this thread's operations make the stand-ins below


@contextmanager
def of_any_size() -> Iterator[None]:
    """A context in which this thread's exports leave sizes free that torch's own stand-ins fix."""
    _install()
    before, _here.any_size = getattr(_here, "any_size", False), True
    try:
        yield
    finally:
        _here.any_size = before


def _install() -> None:
    """Have torch's stand-ins ask this thread which way it takes; torch may have taken ours away."""
    import torch._decomp.decompositions  # registers some that are replaced

    torch = load_torch()
    aten, composed = torch.ops.aten, torch._C.DispatchKey.CompositeImplicitAutograd
    table = torch._decomp.decomposition_table
    made: dict[Any, Callable[..., Any]] = {getattr(aten, name).input: _recurrent for name in RECURRENT}
    made |= {aten.max_pool1d.default: _max_pool1d, aten.pixel_unshuffle.default: _pixel_unshuffle}
    for op, ours in made.items():
        kernels = dict(op.py_kernels)
        if op.has_kernel_for_dispatch_key(composed):
            kernels.setdefault(composed, partial(op._op_dk, composed))
        new = {key: _Either(ours, own) for key, own in kernels.items() if not isinstance(own, _Either)}
        if new:
            op.py_kernels.update(new)
            op._dispatch_cache.clear()
        if op in table and not isinstance(table[op], _Either):
            table[op] = _Either(ours, table[op])


@dataclass
class _Either:
    """An operation on stand-ins, by this thread's exports or torch's own way."""

    ours: Callable[..., Any]
    own: Callable[..., Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return (self.ours if getattr(_here, "any_size", False) else self.own)(*args, **kwargs)


def _recurrent(
    x: "Tensor", states: "Tensor | Sequence[Tensor]", params: "Sequence[Tensor]", has_biases: bool,
    num_layers: int, dropout: float, train: bool, bidirectional: bool, batch_first: bool,
) -> "tuple[Tensor, ...]":  # fmt: skip
    """What ``torch.lstm`` and its kin return: y, and the states behind the last step."""
    states = (states,) if isinstance(states, load_torch().Tensor) else tuple(states)
    if batch_first:
        x = x.transpose(0, 1)
    size = states[0].shape[-1] * (2 if bidirectional else 1)
    y, *last = _of_all((*x.shape[:2], size), *(s.shape for s in states), operands=(x, *params, *states))
    return (y.transpose(0, 1) if batch_first else y, *last)


def _of_all(*shapes: Sequence[Any], operands: "Sequence[Tensor]") -> "list[Tensor]":
    """Tensors of these shapes that depend on all operands, as their gradients ask."""
    one = sum(x.sum() for x in operands)
    return [one.expand(*shape).contiguous() for shape in shapes]  # type: ignore[union-attr]


def _max_pool1d(
    x: "Tensor", kernel_size: Sequence[int], stride: Sequence[int] = (), padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,), ceil_mode: bool = False,
) -> "Tensor":  # fmt: skip
    """The pool of an image of one line."""
    if x.dim() not in (2, 3):
        raise RuntimeError(f"max_pool1d: expected a signal [C, L] or [N, C, L], got {list(x.shape)}")
    window = (1, *kernel_size), (1, *stride) if stride else (), (0, *padding), (1, *dilation)
    made = load_torch().ops.aten.max_pool2d.default(x.unsqueeze(-2), *window, ceil_mode)
    return made.squeeze(-2)


def _pixel_unshuffle(x: "Tensor", factor: int) -> "Tensor":
    *batch, channels, height, width = x.shape
    shape = (*batch, channels * factor**2, height // factor, width // factor)
    return _of_all(shape, operands=(x,))[0]
