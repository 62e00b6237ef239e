"""Operators that run in NumPy: the size or kind of their result depends on values, or the engine has not the
type of their values, or not the operator.

`HOST` holds one plain function per operator, from arrays (lists of arrays for sequences, None for what is
left out or an empty optional) and attributes to its output, or a tuple of them. Operators of other sets than
ONNX's own go by the set's name too: "ai.onnx.ml:Scaler". What a function computes is of the types that come
in, so that nothing is cast but where the operator says so.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np

from bslite.errors import BsliteError, InputError
from bslite.frontends.onnx.attributes import by_schema, resolve, value
from bslite.frontends.onnx.schemas import accepted, check_arity, find_schema
from bslite.frontends.onnx.walk import name_of
from bslite.onnx.graph import Graph

Function = Callable[..., Any]
HOST: dict[str, Function] = {}
#: Those that run here even where they could be specialised on the value they read.
FIRST: set[str] = set()
#: Those that run here only where the engine has not their form: it is far quicker, even with a plan a value.
LAST: set[str] = set()
#: Operator sets of which ONNX has the schemas.
SCHEMAS = ("", "ai.onnx.ml")


def host_op(*names: str, first: bool = False, last: bool = False) -> Callable[[Function], Function]:
    """Register the function of operators.

    One with a parameter ``op_type`` is told which it is, one with ``opset`` of which version, one with
    ``results`` how many are asked for, one with ``exact`` whether all is computed in float64, one with
    ``threads`` how many it may use, one with ``engine`` whether the CPU engine computes the rest. One with
    ``cache`` gets a dict of the node's own; what it puts there as "call" is called with the arrays alone from
    then on; if "silent" is there too, NumPy has nothing to warn of. For all others its warnings are off.
    """

    def register(function: Function) -> Function:
        for name in names:
            if HOST.setdefault(name, function) is not function:
                raise RuntimeError(f"operator {name!r} has two functions")
        FIRST.update(names if first else ())
        LAST.update(names if last else ())
        return function

    return register


def key_of(node: Any) -> str:
    """A node's operator as `HOST` has it."""
    return str(node.op_type) if node.domain in ("", "ai.onnx") else f"{node.domain}:{node.op_type}"


class HostNode:
    """One node run by its function. Unsupported if that does not know one of its attributes."""

    def __init__(
        self, graph: Graph, node: Any, exact: bool = False, threads: int | None = None, engine: bool = False
    ) -> None:
        self.what = f"node {graph.label + name_of(node)!r} ({node.op_type})"
        self.node, self.function = node, HOST[key_of(node)]
        self._cache: dict[str, Any] = {}
        domain = "" if node.domain == "ai.onnx" else node.domain
        opset, protos = graph.source.opsets.get(domain, 0), resolve(node, {})
        if domain in SCHEMAS:
            schema = find_schema(node.op_type, opset, domain)
            attributes, given = by_schema(schema, protos, graph.source.folder)
            check_arity(schema, [i or None for i in node.input], node)
        else:
            attributes = {name: value(proto, graph.source.folder) for name, proto in protos.items()}
            given = set(attributes)
        context = {
            "op_type": node.op_type,
            "opset": opset,
            "results": len(node.output),
            "exact": exact,
            "threads": threads,
            "engine": engine,
            "cache": self._cache,
        }
        accepted(self.function, attributes, given)
        #: What it reads, those left out at the end excepted, and what it makes.
        self.inputs = tuple(node.input)
        while self.inputs and not self.inputs[-1]:
            self.inputs = self.inputs[:-1]
        self.outputs = tuple(node.output)
        self.attributes: dict[str, Any] = {}
        parameters = inspect.signature(self.function).parameters
        takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        for name, content in {**attributes, **context}.items():
            if name in parameters or (takes_all and name in attributes):
                self.attributes[name] = content
        self._read = reader(self.inputs)
        self._call = partial(self.function, **self.attributes) if self.attributes else self.function

    @property
    def silent(self) -> bool:
        """Whether NumPy's warnings need not be off."""
        return "silent" in self._cache

    def inside(self) -> Iterator[Any]:
        """No graphs."""
        return iter(())

    def __call__(self, values: Mapping[str, Any]) -> tuple[Any, ...]:
        """The outputs for the values that the node reads, by name. InputError if it does not take them."""
        return self.on(self._read(values))

    def on(self, given: Sequence[Any]) -> tuple[Any, ...]:
        """As `__call__`, of the values in the order of ``inputs``."""
        try:
            made = (self._cache.get("call") or self._call)(*given)
        except BsliteError as e:
            raise type(e)(f"{self.what}: {e}") from None
        except Exception as e:  # what NumPy finds wrong with the values
            came = ", ".join(describe(x) for x in given)
            raise InputError(f"{self.what}: {type(e).__name__}: {e}; it got {came}") from e
        if type(made) is np.ndarray:
            return (made,)
        return tuple(np.asarray(y) if isinstance(y, np.generic) else y for y in _tuple(made))


def reader(names: Sequence[str]) -> Callable[[Mapping[str, Any]], Sequence[Any]]:
    """A function of values by name: those of ``names``, None where one is empty."""
    if not all(names) or not names:
        return lambda values: [values[name] if name else None for name in names]
    if len(names) == 1:
        (only,) = names
        return lambda values: (values[only],)
    return itemgetter(*names)


def _tuple(made: Any) -> tuple[Any, ...]:
    return made if isinstance(made, tuple) else (made,)


def describe(given: Any) -> str:
    """A value as messages show it."""
    if isinstance(given, np.ndarray):
        return f"{given.dtype} {list(given.shape)}"
    return "nothing" if given is None else f"a {type(given).__name__} of {len(given)}"
