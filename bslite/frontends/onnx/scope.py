"""The values that nodes of an ONNX graph or function see while it is walked."""

from collections.abc import Collection, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from bslite.errors import SpecError
from bslite.frontends.onnx.file import Source
from bslite.frontends.onnx.memo import Memo
from bslite.frontends.onnx.store import Store
from bslite.frontends.onnx.tensors import to_array
from bslite.frontends.onnx.values import Const

MAX_DEPTH = 24  # functions within functions, graphs within graphs


@dataclass
class Scope:
    """A graph or function body being walked: its values, the attributes of the call, its operator sets."""

    values: MutableMapping[str, Any]
    attributes: Mapping[str, Any]
    opsets: Mapping[str, int]
    prefix: str = ""
    depth: int = 0


@dataclass
class Loops:
    """The loops that are written out. ``limited``: the places, in the model's own graph, of those of which no
    more than ``most`` nodes are to be, in all steps; ``written``: by place, the steps and nodes that were.
    """

    limited: Collection[int] = ()
    most: int = 0
    written: dict[int, tuple[int, int]] = field(default_factory=dict)


class Walker(Protocol):
    """The part of a walk that the graphs inside of a node use."""

    source: Source
    store: Store
    visited: int
    place: int
    loops: Loops

    def count(self) -> None:
        """Note that one more node or graph is visited; SpecError if there are too many."""

    def nodes(self, nodes: Sequence[Any], scope: Scope, wanted: Sequence[str]) -> None:
        """Visit those of ``nodes`` that the values ``wanted`` depend on."""

    def result(self, name: str, scope: Scope) -> Any:
        """An output of a function or branch."""


def add_initializers(graph: Any, values: dict[str, Any], source: Source, memo: Memo | None = None) -> None:
    """Note the graph's stored tensors as constants, decoded once if there is a ``memo``."""
    if graph.sparse_initializer:
        raise SpecError(f"graph {graph.name!r} has sparse initialisers, which bslite does not read")
    seen: set[str] = set()
    for tensor in graph.initializer:
        if not tensor.name or tensor.name in seen:
            raise SpecError(f"two initialisers are called {tensor.name!r}, or one has no name")
        seen.add(tensor.name)
        decode = partial(to_array, tensor, source.folder, "initialiser")
        values[tensor.name] = memo.tensor(tensor.name, decode) if memo else Const(decode(), tensor.name)
