"""Visits the nodes of an ONNX graph in order and hands each to its builder; functions are written out."""

from collections.abc import Mapping, Sequence
from typing import Any

from bslite.errors import BsliteError, InputError, SpecError
from bslite.frontends.common.lazy import load_onnx
from bslite.frontends.common.unsupported import Unsupported, Varies
from bslite.frontends.onnx.attributes import by_schema, resolve
from bslite.frontends.onnx.attributes import value as value_of
from bslite.frontends.onnx.control import CONTROL, Call, control
from bslite.frontends.onnx.file import MAX_NODES, Source
from bslite.frontends.onnx.ops import find
from bslite.frontends.onnx.problems import Abandoned, Problems, flops
from bslite.frontends.onnx.schemas import (
    accepted,
    check_arity,
    check_signature,
    find_schema,
    function_body,
    named,
)
from bslite.frontends.onnx.scope import MAX_DEPTH, Loops, Scope
from bslite.frontends.onnx.site import Site
from bslite.frontends.onnx.standin import MISSING, declared, free_sizes, is_standin, standins
from bslite.frontends.onnx.store import Store
from bslite.frontends.onnx.values import NeedsValue, Operand

MICROSOFT = "com.microsoft"
OF_MICROSOFT = ("SimplifiedLayerNormalization",)  # what onnxruntime writes as if it were one of ONNX's own
NONE = "bslite has no such operator"


def operator(node: Any) -> str:
    """The node's operator as messages name it."""
    return str(node.op_type)


def wrong(error: Exception, name: str, node: Any) -> BsliteError:
    """The error to raise for a node's failure: itself, or a SpecError that names the node."""
    if isinstance(error, (SpecError, InputError)):
        return (
            error if str(error).startswith("node ") else SpecError(f"node {name!r} ({node.op_type}): {error}")
        )
    if isinstance(error, BsliteError):
        return error
    # whatever a hostile file made of an operator; see `bslite.spec.file.read`
    return SpecError(f"node {name!r} ({node.op_type}): invalid ({type(error).__name__}: {error})")


def known(op_type: str, schema: Any, opset: int) -> bool:
    """Whether bslite has the operator at all, in some form, or ONNX defines it by others."""
    return find(op_type, opset) is not None or schema.has_function or schema.has_context_dependent_function


def name_of(node: Any) -> str:
    """The node's own name, or else its first output's."""
    return str(node.name or next((o for o in node.output if o), node.op_type))


class Walk:
    """One pass over a model's graph, filling a `Store`. ``loops``: which are limited."""

    def __init__(self, source: Source, store: Store, brief: bool = False, loops: Loops | None = None) -> None:
        self.source, self.store, self.loops = source, store, loops or Loops()
        self.problems = Problems(brief=brief)
        self.visited = 0
        self.place = -1  # of the node being visited, in the model's own graph
        self.declared: dict[str, Any] | None = None  # value -> its type as the file has it, when asked for
        self.free: dict[str, tuple[int, ...]] = {}
        self.functions: dict[tuple[str, str, str], Any] = {}
        for f in source.model.functions:
            key = (_domain(f.domain), f.name, getattr(f, "overload", ""))
            if key in self.functions:
                raise SpecError(f"the function {f.name!r} is defined twice")
            self.functions[key] = f

    def nodes(self, nodes: Sequence[Any], scope: Scope, wanted: Sequence[str]) -> None:
        """Visit those of ``nodes`` that the values ``wanted`` depend on."""
        made: dict[str, int] = {}
        for i, node in enumerate(nodes):
            for out in node.output:
                if out and (out in made or (out in scope.values and scope.depth == 0)):
                    raise SpecError(f"the value {out!r} is made twice")
                made[out] = i
        live = set(wanted)
        kept = []
        for i, node in reversed(list(enumerate(nodes))):
            if any(out in live for out in node.output if out):
                used = [bool(out) and out in live for out in node.output]
                kept.append((i, node, used))
                live.update(reads(node))
        for i, node, used in reversed(kept):
            self.count()
            self.place = self.place if scope.depth else i
            self.node(node, scope, used)

    def count(self) -> None:
        """Note that one more node or graph is visited; SpecError if there are too many."""
        self.visited += 1
        if self.visited > MAX_NODES:
            raise SpecError(f"the graph with its functions written out has more than {MAX_NODES} nodes")

    def node(self, node: Any, scope: Scope, used: Sequence[bool]) -> None:
        """Visit one node and note its outputs."""
        name = scope.prefix + name_of(node)
        inputs = [self.look_up(i, scope, name) for i in node.input]
        memo = None if scope.depth or node.op_type in CONTROL else self.source.memo
        if memo is not None and (kept := memo.find(node, inputs, used)) is not None:
            scope.values.update((out, value) for out, value in zip(node.output, kept, strict=True) if out)
            return
        results: Any = MISSING
        refused = ""
        try:
            results = self.convert(node, name, inputs, scope, used)
        except Unsupported as e:
            refused = f"{operator(node)}: {e}"
            self.problems.note(refused, name, e, self.place)
        except Abandoned:
            raise
        except (RecursionError, MemoryError) as e:
            raise SpecError(f"node {name!r} ({node.op_type}): {type(e).__name__}") from e
        except Exception as e:
            if not any(map(is_standin, inputs)):  # else it may be the stand-in's fault
                raise wrong(e, name, node) from e
        given = list(results) if isinstance(results, tuple) else [results] * len(node.output)
        given += [None] * (len(node.output) - len(given))
        for i, value in enumerate(given[: len(node.output)]):
            if value is None and used[i]:
                refused = f"{operator(node)}: its output {i} is used"
                self.problems.note(refused, name, None, self.place)
                given[i] = MISSING
        if any(value is MISSING for value in given):
            made = self.stand_ins(node, inputs, scope)
            given = [m if v is MISSING else v for v, m in zip(given, made, strict=False)]
            if refused and name in self.problems.found.get(refused, ()):
                self.problems.flops[name] = flops(node.op_type, inputs, made)
        if memo is not None and not refused:
            given = memo.keep(node, inputs, used, given[: len(node.output)])
        scope.values.update((out, value) for out, value in zip(node.output, given, strict=False) if out)

    def stand_ins(self, node: Any, inputs: Sequence[Any], scope: Scope) -> list[Any]:
        """Stand-ins for the outputs of a node that could not be converted."""
        made = [MISSING] * len(node.output)
        domain = _domain(node.domain)
        if not domain and (domain, node.op_type, "") not in self.functions:
            try:
                schema = find_schema(node.op_type, scope.opsets.get(domain, 0))
            except Unsupported:
                schema = None
            protos = resolve(node, scope.attributes)
            made = standins(schema, node, named(protos), inputs, {"": scope.opsets.get("", 1)})
        if scope.depth:
            return made
        if self.declared is None:
            graph = self.source.model.graph
            self.declared = {v.name: v.type for v in (*graph.value_info, *graph.output)}
            self.free = free_sizes(graph.input, scope.values)
        return [
            declared(self.declared[out], out, self.free) if m is MISSING and out in self.declared else m
            for m, out in zip(made, node.output, strict=True)
        ]

    def look_up(self, name: str, scope: Scope, node: str) -> Any:
        """The operand called ``name``, None for one left out."""
        if not name:
            return None
        if name not in scope.values:
            raise SpecError(
                f"node {node!r} reads {name!r}, which is neither an input nor made by an earlier node"
            )
        return scope.values[name]

    def convert(
        self, node: Any, name: str, inputs: list[Operand | None], scope: Scope, used: Sequence[bool]
    ) -> Any:
        """The node's outputs by its builder, else by the function that defines it."""
        protos = resolve(node, scope.attributes)
        domain = _domain(node.domain)
        function = self.functions.get((domain, node.op_type, getattr(node, "overload", "")))
        if function is not None:
            return self.function(function, name, inputs, protos, scope, used)
        if domain not in scope.opsets:
            raise SpecError(f"its operator set {domain!r} is not imported")
        opset = scope.opsets[domain]
        if domain or node.op_type in OF_MICROSOFT:
            return self.contributed(
                node, domain or MICROSOFT, Site(self.store, name, node.op_type, opset, used), inputs, protos
            )
        schema = find_schema(node.op_type, opset)
        check_arity(schema, inputs, node)
        if any(x is MISSING for x in inputs) and node.op_type not in CONTROL:
            if known(node.op_type, schema, opset):
                return MISSING
            raise Unsupported(NONE)
        values, given = by_schema(schema, protos, self.source.folder)
        if node.op_type in CONTROL:
            return control(self, node.op_type, Call(name, opset, values, inputs, scope, used))
        builder, refused = find(node.op_type, opset), Unsupported(NONE)
        if builder is not None:
            site = Site(self.store, name, node.op_type, opset, used)
            try:
                return builder(site, *inputs, **accepted(builder, values, given))
            except Unsupported as e:
                if isinstance(e, NeedsValue):
                    raise
                refused = e
        body = function_body(schema, node, protos, inputs, opset)
        if body is None or scope.depth > MAX_DEPTH:
            raise refused
        problems, self.problems = self.problems, Problems()
        try:
            result = self.function(body, name, inputs, protos, scope, used, values)
        finally:
            inside, self.problems = self.problems, problems
        if inside.found:
            if inside.roots:
                raise NeedsValue(next(iter(inside.found)), inside.roots)
            if inside.varies:
                raise Varies(next(iter(inside.found)))
            if str(refused) != NONE:
                raise refused
            raise Unsupported(f"as {', '.join(sorted({what.split(':')[0] for what in inside.found}))}")
        return result

    def contributed(
        self, node: Any, domain: str, site: Site, inputs: list[Operand | None], protos: Mapping[str, Any]
    ) -> Any:
        """The node's outputs by the builder of an operator that is none of ONNX's own: its schema."""
        builder = find(f"{domain}:{node.op_type}", site.opset)
        if builder is None:
            raise Unsupported(f"of the operator set {domain!r}")
        given = {key: value_of(attribute, self.source.folder) for key, attribute in protos.items()}
        check_signature(builder, inputs)
        if any(x is MISSING for x in inputs):
            return MISSING
        return builder(site, *inputs, **accepted(builder, given, set(given)))

    def function(
        self, function: Any, name: str, inputs: list[Operand | None], protos: Mapping[str, Any], scope: Scope,
        used: Sequence[bool], defaults: Mapping[str, Any] | None = None,
    ) -> Any:  # fmt: skip
        """The outputs of a function, its nodes written out."""
        if scope.depth >= MAX_DEPTH:
            raise SpecError(f"functions within functions, more than {MAX_DEPTH} deep")
        if len(inputs) > len(function.input):
            raise SpecError(f"it has {len(inputs)} inputs, the function takes {len(function.input)}")
        values: dict[str, Any] = dict.fromkeys(function.input)
        values.update(zip(function.input, inputs, strict=False))
        attributes = {a.name: a for a in function.attribute_proto}
        if defaults is not None:
            schema_defaults = {k: v for k, v in defaults.items() if v is not None and k not in protos}
            attributes.update(
                {k: load_onnx().helper.make_attribute(k, v) for k, v in schema_defaults.items()}
            )
        attributes.update(protos)
        opsets = {_domain(o.domain): o.version for o in function.opset_import} or scope.opsets
        inner = Scope(values, attributes, opsets, f"{name}/", scope.depth + 1)
        wanted = [out for out, read in zip(function.output, used, strict=False) if read]
        self.nodes(function.node, inner, wanted)
        return tuple(self.result(out, inner) if out in wanted else None for out in function.output)

    def result(self, name: str, scope: Scope) -> Any:
        """An output of a function or branch."""
        if name not in scope.values:
            raise SpecError(f"its output {name!r} is made by no node")
        return scope.values[name]


def reads(node: Any) -> set[str]:
    """Names of the values that a node reads, in its subgraphs too."""
    names = set(node.input)
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                names |= reads(inner)
            names.update(o.name for o in graph.output)
    return names - {""}


def _domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain
