"""An ONNX graph as a ModelSpec for given sizes of its inputs, with open sizes left free where they can be."""

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bslite.errors import BsliteError, SpecError, UnsupportedError
from bslite.frontends.common.unsupported import Unsupported, Varies
from bslite.frontends.onnx.file import Source, read_model
from bslite.frontends.onnx.inputs import check_names, examples, graph_inputs
from bslite.frontends.onnx.problems import Abandoned, Problems
from bslite.frontends.onnx.scope import Loops, Scope, add_initializers
from bslite.frontends.onnx.sizing import BATCH, FIXED, Sizing, sizings
from bslite.frontends.onnx.standin import is_standin
from bslite.frontends.onnx.store import Store
from bslite.frontends.onnx.tensors import HALF_WORDS, dtype_name
from bslite.frontends.onnx.values import Const, Operand, Sizes, Value, probes
from bslite.frontends.onnx.walk import Walk
from bslite.ops import Shape
from bslite.spec import Array, GraphBuilder, ModelSpec


class NotConverted(UnsupportedError):
    """What is raised for operators that bslite cannot express. ``roots`` are the graph inputs whose values
    would have to be known, ``nodes`` the names of the nodes that stand in the way, ``causes`` their places in
    the graph with the inputs whose values each needs (None where another reason stands in the way),
    ``reasons`` their places with what stands in the way.
    """

    def __init__(
        self, message: str, roots: frozenset[str], nodes: frozenset[str] = frozenset(),
        causes: Mapping[int, frozenset[str] | None] | None = None, reasons: Mapping[int, str] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(message)
        self.roots, self.nodes, self.causes, self.reasons = roots, nodes, causes or {}, reasons or {}


def input_names(model: Any) -> list[str]:
    """Names of the inputs that a caller of the model gives, initialisers left out."""
    graph = read_model(model).model.graph
    stored = {t.name for t in graph.initializer}
    return [v.name for v in graph.input if v.name not in stored]


@dataclass(frozen=True)
class Converted:
    """A converted graph: its outputs as operands with the file's names of them, and which sizes are free.
    ``loops``: see `Loops.written`.
    """

    store: Store
    outputs: list[Operand]
    names: list[str]
    sizing: Sizing
    loops: Mapping[int, tuple[int, int]]

    def spec(self, outputs: Sequence[Operand]) -> ModelSpec:
        """The model of some of the outputs."""
        name, wanted = self.store.builder.name, set(map(id, outputs))
        labels = [n for n, o in zip(self.names, self.outputs, strict=True) if id(o) in wanted]
        with refusals(name):
            try:
                return self.store.spec([self.store.value(x).name for x in outputs], labels)
            except Unsupported as e:
                raise UnsupportedError(f"model {name!r}: an output: {e}") from None


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


class Reader:
    """Makes models of one ONNX file for inputs of any sizes; what was tried in vain is not tried again.

    ``built_in``: names of inputs that a caller of the models does not give. ``bounded``: free sizes may have
    a largest one (`Sizing.most`), which the user of the models then has to check. ``limited`` and ``most``:
    see `Loops`.
    """

    def __init__(
        self, source: Source, name: str | None = None, built_in: Sequence[str] = (), bounded: bool = True,
        limited: Collection[int] = (), most: int = 0,
    ) -> None:  # fmt: skip
        self.source, self.name, self.bounded = source, name or source.name, bounded
        self._limited, self._most = limited, most
        with refusals(source.name):
            self.declared = graph_inputs(source, built_in)
        self._sizings = sizings(self.declared)
        self._vain: set[Sizing] = set()
        self._bounded: dict[Sizing, None] = {}  # of those with a bound, what was not in vain

    @property
    def labels(self) -> list[str]:
        """The file's labels of open sizes."""
        return list(dict.fromkeys(d for i in self.declared for d in i.shape or () if isinstance(d, str)))

    def sizings(self, shapes: Sequence[Shape]) -> list[Sizing]:
        """What may be left free for inputs of these shapes, the most first. `FIXED` is always among it."""
        whole = [s for s in self._sizings if s.step == 1 and len(s.names) == len(self.labels)]
        within = [w for s in whole if self.bounded for w in s.within(self.declared, shapes)]
        tried = [
            *whole,
            *dict.fromkeys((*self._bounded, *within)),
            *(s for s in self._sizings if s not in whole),
        ]
        return [s for s in tried if s not in self._vain and s.fits(self.declared, shapes)]

    def find(self, shapes: Mapping[str, Sequence[int]], constants: Mapping[str, Array]) -> Converted:
        """The model for inputs of these shapes by name, examples of sizes that are not in ``shapes`` found
        here; otherwise as `convert`.

        Raises InputError for unfit ``shapes``, and where nothing fits the model the error of the first try.
        """
        check_names(self.source, [i.name for i in self.declared], shapes)
        wrong: BsliteError | None = None
        for example in examples(self.declared, shapes):
            try:
                return self.convert(example, constants)
            except SpecError as e:
                wrong = wrong or e
        assert wrong is not None
        raise wrong

    def convert(self, shapes: Sequence[Shape], constants: Mapping[str, Array]) -> Converted:
        """The model for inputs of these shapes, in which as many open sizes are free as can be.

        Raises SpecError where the model does not take them, NotConverted for what bslite cannot express.
        """
        with refusals(self.name):
            fixed: Converted | None = None
            for sizing in self.sizings(shapes):
                if sizing == FIXED:
                    break
                try:
                    made = self._attempt(sizing, shapes, constants)
                except Abandoned:
                    self._vain.add(sizing)
                except (SpecError, NotConverted):  # the fault of this size, or of one that is only tried
                    fixed = fixed or self._attempt(FIXED, shapes, constants)
                    self._vain.add(sizing)
                else:
                    if sizing.most:
                        self._bounded[sizing] = None
                    return made
            return fixed or self._attempt(FIXED, shapes, constants)

    def _attempt(self, sizing: Sizing, shapes: Sequence[Shape], constants: Mapping[str, Array]) -> Converted:
        """One walk over the graph. Abandoned as soon as a free size is in the way."""
        graph = self.source.model.graph
        example: dict[str, int] = {}
        declared = [sizing.shape(i, s) for i, s in zip(self.declared, shapes, strict=True)]
        for shape, given in zip(declared, shapes, strict=True):
            example.update((d, n) for d, n in zip(shape, given, strict=True) if isinstance(d, str))
        store = Store(GraphBuilder(self.name), probes(example, sizing.step, BATCH, sizing.most))
        store.memo = self.source.memo
        loops = Loops(self._limited, self._most)
        walk, values = Walk(self.source, store, bool(example), loops), dict[str, Any]()
        for i, shape, given in zip(self.declared, declared, shapes, strict=True):
            if i.name in values:
                raise SpecError(f"two inputs are called {i.name!r}")
            values[i.name] = store.input(i.name, shape, given, i.dtype)
        values.update((name, store.memo.adopt(const)) for name, const in self.source.stored.items())
        add_initializers(graph, values, self.source, self.source.memo)
        for key, array in constants.items():
            values[key] = Const(array, key)
        scope = Scope(values, {}, self.source.opsets, self.source.prefix)
        names = [o.name for o in graph.output]
        walk.nodes(graph.node, scope, names)
        outputs = [walk.result(n, scope) for n in names]
        for n, o in zip(names, outputs, strict=True):
            if isinstance(o, Sizes):
                walk.problems.note("an output that is a free size", n, Varies())
        for value, o in zip(graph.output, outputs, strict=True):
            kind = dtype_name(value.type.tensor_type.elem_type)
            if kind in HALF_WORDS and isinstance(o, Value) and o.dtype == "int32":
                makers = (i for i, node in enumerate(graph.node) if value.name in node.output)
                walk.problems.note(
                    f"an output of {kind}; bslite has int32", value.name, None, next(makers, -1)
                )
        if any(map(is_standin, outputs)) or walk.problems.found:
            walk.problems.rest = store.flops
            problems: Problems = walk.problems
            nodes = frozenset(node for found in problems.found.values() for node in found)
            raise NotConverted(
                problems.report(self.source.name), problems.roots, nodes, problems.causes, problems.reasons
            )
        return Converted(store, outputs, names, sizing, loops.written)
