"""The ops, each declared once. To add one, write a class in the file of its family."""

from bslite.ops.core import (
    BYTES,
    DTYPES,
    INTEGERS,
    RANGES,
    REGISTRY,
    Attr,
    Case,
    Kind,
    Op,
    RowMap,
    Shape,
    get,
    infer,
    parse_attrs,
)
from bslite.registry import load_modules

load_modules(__name__, skip=("table",))

__all__ = [
    "BYTES",
    "DTYPES",
    "INTEGERS",
    "RANGES",
    "REGISTRY",
    "Attr",
    "Case",
    "Kind",
    "Op",
    "RowMap",
    "Shape",
    "get",
    "infer",
    "parse_attrs",
]
