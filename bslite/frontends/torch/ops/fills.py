"""Builders of ranges and fills whose sizes are free; those of known sizes are computed beforehand."""

from typing import Any

from bslite.frontends.common.moves import reshape
from bslite.frontends.common.unsupported import Unsupported, Varies
from bslite.frontends.common.values import Value
from bslite.frontends.torch.builders import aten
from bslite.frontends.torch.counting import count, filled, number
from bslite.frontends.torch.operands import converted, inner
from bslite.frontends.torch.ops.index import expanded
from bslite.frontends.torch.site import Site
from bslite.frontends.torch.values import Const, Operand, expression_of, kept_as


@aten("arange", "arange.start", "arange.start_step")
def arange(s: Site, *bounds: Any, **_: Any) -> Operand:
    start, step = (bounds[0] if len(bounds) > 1 else 0), (bounds[2] if len(bounds) > 2 else 1)
    if not isinstance(step, int) or any(isinstance(b, float) for b in bounds):
        raise Varies("by steps that are no known integers, to a bound that depends on a free size")
    dtype, start = kept_as(s.node.meta["val"]), expression_of(start)
    if step == 1:
        made = count(s, s.shape[0], start)
    else:
        made = inner(s, "mul", count(s, s.shape[0]), s.store.scalar(step, "int64"))
        made = inner(s, "add", made, number(s, start)) if start != 0 else made
    return made if dtype == "int64" else s.emit("cast", made, to=dtype)


@aten("full", "ones", "full_like", "zeros_like", "ones_like", "new_full", "new_ones", "new_zeros")
@aten("empty", "empty_like", "new_empty")
def fill(s: Site, _: Any, *rest: Any, **__: Any) -> Operand:
    """What torch leaves as it finds it is zeros."""
    value = next((n for key, n in (("zero", 0), ("one", 1), ("empty", 0)) if key in s.operation), None)
    value = rest[-1] if value is None else value
    if not isinstance(value, (bool, int, float)):
        raise Unsupported("with a value that is computed")
    return filled(s, s.shape, value, kept_as(s.node.meta["val"]))


@aten("fill")
def fill_all(s: Site, x: Operand, value: Any) -> Operand:
    """One number, known or computed, in the place of all."""
    if isinstance(value, Const):
        value = value.data.item()
    if isinstance(value, Value):
        return expanded(s, reshape(s, converted(s, value, x.dtype), (1,) * len(s.shape), last=False), s.shape)
    if not isinstance(value, (bool, int, float)):
        raise Unsupported("with a number that is computed")
    return filled(s, s.shape, value, x.dtype)
