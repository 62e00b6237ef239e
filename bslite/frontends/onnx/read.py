"""`from_onnx`: an ONNX model as a ModelSpec."""

import contextlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bslite.errors import BsliteError, SpecError, UnsupportedError
from bslite.frontends.common.unsupported import Unsupported, Varies
from bslite.frontends.onnx.file import Source, read_model
from bslite.frontends.onnx.inputs import BATCH, GraphInput, graph_inputs
from bslite.frontends.onnx.problems import Problems
from bslite.frontends.onnx.scope import Scope, add_initializers
from bslite.frontends.onnx.standin import is_standin
from bslite.frontends.onnx.store import Store
from bslite.frontends.onnx.values import Const, Operand, Sizes, probes
from bslite.frontends.onnx.walk import Walk
from bslite.spec import Array, GraphBuilder, ModelSpec

#: What to do about operators that bslite does not have.
INSTEAD = (
    'bslite.onnx.backend.prepare(model, fallback="warn") runs the rest on the engine and these in '
    "ONNX's reference evaluator"
)


class NotConverted(UnsupportedError):
    """What `from_onnx` raises for operators it cannot express. ``roots`` are the graph inputs whose values
    would have to be known, ``nodes`` the names of the nodes that stand in the way.
    """

    def __init__(self, message: str, roots: frozenset[str], nodes: frozenset[str] = frozenset()) -> None:
        super().__init__(message)
        self.roots, self.nodes = roots, nodes


def from_onnx(
    model: Any,
    *,
    name: str | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    constants: Mapping[str, Array] | None = None,
) -> ModelSpec:
    """The model in an ONNX file (its path), in the bytes of one, or in an ``onnx.ModelProto``.

    Opset 7 and later. Values are float32, int64, int32 and bool. The size at axis 0 stays free ("N") where
    the file leaves it open; other open sizes stay free under the file's names and need an example, given in
    ``shapes``: input name -> example shape. Where the model cannot be expressed with a size left free, it is
    fixed to the example's, with a warning. ``constants``: input name -> array to build into the model in the
    place of that input.

    Layers are named after their nodes (where those have no name, after the node's output), parameters after
    their initialisers. What depends on no input is computed here. External data is read from the model's own
    folder only.

    Raises FileError for a file that cannot be read, SpecError for a model that is wrong, InputError for unfit
    ``shapes`` or ``constants``, UnsupportedError if it uses operators bslite does not have: all of them are
    listed, those that depend on each other too, with the nodes that use them and their share of the flops.
    EngineError if the package onnx is not installed.
    """
    try:
        converted = convert(model, name=name, shapes=shapes, constants=constants)
    except NotConverted as e:
        raise NotConverted(f"{e}\n{INSTEAD}", e.roots, e.nodes) from None
    spec = converted.spec(converted.outputs)
    if converted.lost:
        warnings.warn(
            f"model {spec.name!r}: the free sizes {', '.join(converted.lost)} are fixed to the example's; it "
            "cannot be expressed with them left free",
            stacklevel=2,
        )
    return spec


def input_names(model: Any) -> list[str]:
    """Names of the inputs that a caller of the model gives, initialisers left out."""
    graph = read_model(model).model.graph
    stored = {t.name for t in graph.initializer}
    return [v.name for v in graph.input if v.name not in stored]


@dataclass(frozen=True)
class Converted:
    """A converted graph: its outputs as operands with the file's names of them, and the free sizes that are
    fixed to the example's.
    """

    store: Store
    outputs: list[Operand]
    names: list[str]
    lost: list[str]

    def spec(self, outputs: Sequence[Operand]) -> ModelSpec:
        """The model of some of the outputs."""
        name, wanted = self.store.builder.name, set(map(id, outputs))
        labels = [n for n, o in zip(self.names, self.outputs, strict=True) if id(o) in wanted]
        with refusals(name):
            try:
                return self.store.spec([self.store.value(x).name for x in outputs], labels)
            except Unsupported as e:
                raise UnsupportedError(f"model {name!r}: an output: {e}") from None


def convert(
    model: Any,
    *,
    name: str | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    constants: Mapping[str, Array] | None = None,
) -> Converted:
    """Walk the model, with free sizes if it can be, else fixed ones."""
    source = read_model(model)
    with refusals(source.name):
        return _convert(source, name, shapes or {}, constants or {})


@contextlib.contextmanager
def refusals(name: str) -> Iterator[None]:
    """Turn any failure that a hostile file causes, foreseen or not, into a SpecError."""
    try:
        yield
    except BsliteError:
        raise
    except (RecursionError, MemoryError) as e:
        raise SpecError(f"model {name!r}: too deep or too large ({type(e).__name__})") from e
    except Exception as e:
        raise SpecError(f"model {name!r} is invalid ({type(e).__name__}: {e})") from e


def _convert(
    source: Source, name: str | None, shapes: Mapping[str, Sequence[int]], constants: Mapping[str, Array]
) -> Converted:
    declared = graph_inputs(source, shapes, constants)
    free = {d for i in declared for d in i.shape if isinstance(d, str)}
    tries = [free, free & {BATCH}, set[str]()]
    problems = Problems()
    for keep in [t for i, t in enumerate(tries) if t not in tries[:i]]:
        made, problems = _attempt(source, name or source.name, [i.fix(keep) for i in declared], constants)
        if made is not None:
            return Converted(*made, [o.name for o in source.model.graph.output], sorted(free - keep))
        if not problems.varies:
            break
    nodes = frozenset(node for found in problems.found.values() for node in found)
    raise NotConverted(problems.report(source.name), problems.roots, nodes)


def _attempt(
    source: Source, name: str, declared: Sequence[GraphInput], constants: Mapping[str, Array]
) -> tuple[tuple[Store, list[Operand]] | None, Problems]:
    """One walk over the graph: the model under construction, or None; and its problems."""
    example = {d: n for i in declared for d, n in zip(i.shape, i.example, strict=True) if isinstance(d, str)}
    store = Store(GraphBuilder(name), probes(example))
    walk, values = Walk(source, store), dict[str, Any]()
    graph = source.model.graph
    for i in declared:
        if i.name in values:
            raise SpecError(f"two inputs are called {i.name!r}")
        values[i.name] = store.input(i.name, i.shape, i.example, i.dtype)
    add_initializers(graph, values, source)
    for key, array in constants.items():
        values[key] = Const(array, key)
    scope = Scope(values, {}, source.opsets)
    names = [o.name for o in graph.output]
    walk.nodes(graph.node, scope, names)
    outputs = [walk.result(n, scope) for n in names]
    for n, o in zip(names, outputs, strict=True):
        if isinstance(o, Sizes):
            walk.problems.note("an output that is a free size", n, Varies())
    if any(map(is_standin, outputs)) or walk.problems.found:
        walk.problems.rest = store.flops
        return None, walk.problems
    return (store, outputs), walk.problems
