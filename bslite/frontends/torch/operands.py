"""Operands of torch's arithmetic: numbers as constants, dtypes promoted, shapes broadcast."""

from typing import Any

from bslite.frontends.common.lazy import load_torch
from bslite.frontends.common.unsupported import Unsupported, Varies
from bslite.frontends.common.values import Dims, Value
from bslite.frontends.torch.counting import number
from bslite.frontends.torch.site import Site
from bslite.frontends.torch.values import Const, Number, Operand, expression_of
from bslite.ops import BYTES, RANGES

Term = Operand | Number
RANKS = {"bool": 0, "uint8": 1, "int8": 1, "int32": 1, "int64": 1, "float32": 2}
WIDTHS = {"uint8": 8, "int8": 8, "int32": 32, "int64": 64}


def promoted(*terms: Any) -> str:
    """The dtype in which torch computes with ``terms``: numbers and tensors of rank 0 count only if they are
    of a higher kind (bool, integer, float) than all the others.
    """
    groups: list[list[str]] = [[], [], []]  # tensors, tensors of rank 0, numbers
    for term in terms:
        if isinstance(term, (Value, Const)):
            groups[not term.shape].append(term.dtype)
        elif isinstance(term, (bool, int, float)):
            groups[2].append(
                "bool" if isinstance(term, bool) else "int64" if isinstance(term, int) else "float32"
            )
        elif is_size(term):
            groups[2].append("int64")
        else:
            raise Varies("a scalar is computed from the input's size")
    result = ""
    for group in groups:
        own = False  # whether the result so far is one of this group
        for dtype in sorted(group, key=lambda d: (RANKS.get(d, 3), d)):
            if dtype not in RANKS:
                raise Unsupported(f"an operand is {dtype}")
            if not result or RANKS[dtype] > RANKS[result]:
                result, own = dtype, True
            elif own and RANKS[dtype] == RANKS[result]:
                result = _wider(result, dtype)
    return result


def _wider(a: str, b: str) -> str:
    """The dtype that holds all numbers of two of one kind."""
    if a != b and WIDTHS[a] == WIDTHS[b]:
        raise Unsupported(f"operands are {a} and {b}")
    return max(a, b, key=lambda dtype: WIDTHS.get(dtype, 0))


def is_size(term: Any) -> bool:
    """Whether ``term`` is a whole number computed from a free size."""
    return isinstance(term, load_torch().SymInt)


def converted(s: Site, term: Any, dtype: str) -> Operand:
    """``term`` as a value or constant of ``dtype``."""
    if isinstance(term, Value):
        return term if term.dtype == dtype else s.emit("cast", term, inner=term.shape, to=dtype)
    if isinstance(term, Const):
        same = term.dtype == dtype
        return term if same else s.derived(dtype, term.data.to(getattr(load_torch(), dtype)))
    if isinstance(term, (bool, int, float)):
        if dtype in BYTES and not RANGES[dtype][0] <= term <= RANGES[dtype][1]:
            raise Unsupported(f"{term} is no {dtype}")
        return s.store.scalar(term, dtype)
    if is_size(term):
        size = number(s, expression_of(term))
        return converted(s, size, dtype)
    raise Varies("a scalar is computed from the input's size")


def together(s: Site, *terms: Any) -> list[Operand]:
    """The terms converted to the dtype that torch promotes them to."""
    dtype = promoted(*terms)
    return [converted(s, term, dtype) for term in terms]


def broadcast(*operands: Operand) -> Dims:
    """The shape of a result of all of them."""
    rank = max(len(x.shape) for x in operands)
    aligned = [(*(1,) * (rank - len(x.shape)), *x.shape) for x in operands]
    return tuple(next((d for d in sizes if d != 1), 1) for sizes in zip(*aligned, strict=True))


def inner(s: Site, op: str, *operands: Operand, **attrs: Any) -> Value:
    """A layer on the way to the operation's result."""
    return s.emit(op, *operands, inner=broadcast(*operands), **attrs)
