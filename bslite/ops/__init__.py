"""The ops, each declared once. To add one: a class in the file of its family, and that file listed here."""

from bslite.ops import (
    activation,
    binary,
    contraction,
    conv,
    movement,
    normalize,
    pointwise,
    pool,
    softmax,
    unary,
    upsample,
)
from bslite.ops.core import REGISTRY, Attr, Case, Kind, Op, RowMap, Shape, get, infer, parse_attrs

__all__ = [
    "REGISTRY",
    "Attr",
    "Case",
    "Kind",
    "Op",
    "RowMap",
    "Shape",
    "activation",
    "binary",
    "contraction",
    "conv",
    "get",
    "infer",
    "movement",
    "normalize",
    "parse_attrs",
    "pointwise",
    "pool",
    "softmax",
    "unary",
    "upsample",
]
