"""The table from ONNX operators to builders, by family in `bslite.frontends.onnx.ops`."""

from collections.abc import Callable
from typing import Any

Builder = Callable[..., Any]
#: Operator -> first opset that a builder is right for -> the builder.
TABLE: dict[str, dict[int, Builder]] = {}


def onnx_op(*names: str, since: int = 1) -> Callable[[Builder], Builder]:
    """Register a builder for ONNX operators as they are from opset ``since`` on.

    A builder takes a `Site`, the inputs in order (None where left out) and the attributes by name under the
    defaults of the operator's schema (None where it has none), and returns the outputs: one, or a tuple. What
    is an attribute in older opsets and an input in newer ones is one parameter.
    """

    def register(builder: Builder) -> Builder:
        for name in names:
            if TABLE.setdefault(name, {}).setdefault(since, builder) is not builder:
                raise RuntimeError(f"operator {name!r} has two builders from opset {since}")
        return builder

    return register


def find(op_type: str, opset: int) -> Builder | None:
    """The builder that is right for ``opset``."""
    versions = TABLE.get(op_type, {})
    return versions.get(max((since for since in versions if since <= opset), default=0))
