"""The builder of ``as_strided``, which takes elements by their places in memory."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bslite.frontends.common.lazy import load_torch
from bslite.frontends.common.moves import reshape
from bslite.frontends.common.unsupported import Unsupported
from bslite.frontends.torch.builders import aten, operation
from bslite.frontends.torch.ops.repeat import plain
from bslite.frontends.torch.site import Site
from bslite.frontends.torch.values import Operand

if TYPE_CHECKING:
    from torch.fx import Node


@aten("as_strided")
def as_strided(
    s: Site, x: Operand, size: Sequence[int], stride: Sequence[int], offset: int | None = None
) -> Operand:
    """Elements by their places in memory, in which those of ``x`` lie one after the other: a gather of rows,
    as long as fits.
    """
    if not takes_own(s.node):
        raise Unsupported("of an input, of memory that is not all the operand's, or is written later")
    count, offset = math.prod(x.shape), offset or 0
    plain(count, offset, *size, *stride)
    rows, row = len(size), 1
    for axis in reversed(range(len(size))):
        if stride[axis] != row or any(n % (row * size[axis]) for n in (count, offset, *stride[:axis])):
            break
        rows, row = axis, row * size[axis]
    torch = load_torch()
    places = torch.tensor(offset // row)
    for n, step in zip(size[:rows], stride[:rows], strict=True):
        places = places[..., None] + torch.arange(n) * (step // row)
    flat = reshape(s, x, (count // row, row), last=False)
    made = s.emit("gather", flat, s.derived("places", places), inner=(*size[:rows], row), axis=0)
    return reshape(s, made, tuple(size))


def takes_own(node: "Node") -> bool:
    """Whether an ``as_strided`` takes elements of its operand alone, a copy that `in_order` has made."""
    source: Any = node.args[0]
    size, stride, *offset = node.args[1:]
    return operation(source) == "clone" and bool(_last(size, stride, *offset) < source.meta["val"].numel())


def _last(size: Any, stride: Any, offset: Any = None) -> Any:
    """The place of the last element, behind the ``offset`` of the first."""
    sizes, steps = ([n.meta["val"] if hasattr(n, "meta") else n for n in given] for given in (size, stride))
    first = offset.meta["val"] if hasattr(offset, "meta") else offset or 0
    return first + sum((n - 1) * step for n, step in zip(sizes, steps, strict=True))
