"""Operators that run in NumPy, because the size or kind of their result depends on values.

`HOST` holds one plain function per operator, from arrays (lists of arrays for sequences, None for what is
left out or an empty optional) and attributes to its output, or a tuple of them.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from bslite.errors import BsliteError, InputError
from bslite.frontends.onnx.attributes import by_schema, resolve
from bslite.frontends.onnx.schemas import check_arity, find_schema
from bslite.frontends.onnx.walk import name_of
from bslite.onnx.graph import Graph

Function = Callable[..., Any]
HOST: dict[str, Function] = {}
#: Those that run here even where they could be specialised on the value they read.
FIRST: set[str] = set()


def host_op(*names: str, first: bool = False) -> Callable[[Function], Function]:
    """Register the function of operators. One with a parameter ``op_type`` is told which it is."""

    def register(function: Function) -> Function:
        for name in names:
            if HOST.setdefault(name, function) is not function:
                raise RuntimeError(f"operator {name!r} has two functions")
        FIRST.update(names if first else ())
        return function

    return register


class HostNode:
    """One node run by its function."""

    def __init__(self, graph: Graph, node: Any) -> None:
        self.what = f"node {graph.label + name_of(node)!r} ({node.op_type})"
        self.node, self.function = node, HOST[node.op_type]
        opset = graph.source.opsets.get("", 0)
        schema = find_schema(node.op_type, opset)
        attributes, _ = by_schema(schema, resolve(node, {}), graph.source.folder)
        check_arity(schema, [i or None for i in node.input], node)
        self.attributes: dict[str, Any] = {}
        context = {"op_type": node.op_type, "opset": opset, "results": len(node.output)}
        parameters = inspect.signature(self.function).parameters
        for name, value in {**attributes, **context}.items():
            if name in parameters:
                self.attributes[name] = value

    def inside(self) -> Iterator[Any]:
        """No graphs."""
        return iter(())

    def __call__(self, values: Mapping[str, Any]) -> tuple[Any, ...]:
        """The outputs for the values that the node reads. InputError if it does not take them."""
        given = [values[name] if name else None for name in self.node.input]
        while given and given[-1] is None and not self.node.input[len(given) - 1]:
            given.pop()
        try:
            with np.errstate(all="ignore"):
                made = self.function(*given, **self.attributes)
        except BsliteError as e:
            raise type(e)(f"{self.what}: {e}") from None
        except Exception as e:  # what NumPy finds wrong with the values
            came = ", ".join(describe(x) for x in given)
            raise InputError(f"{self.what}: {type(e).__name__}: {e}; it got {came}") from e
        return made if isinstance(made, tuple) else (made,)


def describe(value: Any) -> str:
    """A value as messages show it."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {list(value.shape)}"
    return "nothing" if value is None else f"a sequence of {len(value)}"
