"""Visits the nodes of an ONNX graph in order and hands each to its builder; functions are written out."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bslite.errors import BsliteError, InputError, SpecError
from bslite.frontends import onnx_attributes
from bslite.frontends.onnx_context import Site, Store
from bslite.frontends.onnx_file import MAX_NODES, Source
from bslite.frontends.onnx_lazy import load_onnx
from bslite.frontends.onnx_ops import find
from bslite.frontends.onnx_tensors import to_array
from bslite.frontends.onnx_values import Const, NeedsValue, Operand, Unsupported, Value, Varies

#: Operators that need no builder, with how they are handled.
HANDLED = {"If": "the branch of a known condition"}
MAX_DEPTH = 24  # functions within functions
MISSING: Any = object()  # stands for the result of a node that could not be converted


@dataclass
class Scope:
    """A graph or function body being walked: its values, the attributes of the call, its operator sets."""

    values: dict[str, Any]
    attributes: Mapping[str, Any]
    opsets: Mapping[str, int]
    prefix: str = ""
    depth: int = 0


@dataclass
class Problems:
    """All that stands in the way of a conversion."""

    found: dict[str, list[str]] = field(default_factory=dict)  # what -> nodes
    roots: frozenset[str] = frozenset()  # graph inputs whose values were needed
    varies: bool = False  # whether a free size was in the way

    def note(self, what: str, node: str, error: Exception | None = None) -> None:
        self.found.setdefault(what, []).append(node)
        if isinstance(error, NeedsValue):
            self.roots |= error.roots
        self.varies |= isinstance(error, Varies)

    def report(self, model: str) -> str:
        """All of it, each with the number of uses and the nodes."""
        lines = [f"model {model!r} needs what bslite does not have:"]
        for what, nodes in sorted(self.found.items(), key=lambda item: -len(item[1])):
            places = list(dict.fromkeys(nodes))
            more = f" and {len(places) - 8} more" if len(places) > 8 else ""
            lines.append(f"  {len(nodes)} x {what}; at {', '.join(places[:8])}{more}")
        return "\n".join(lines)


def name_of(node: Any) -> str:
    """What a node is called: by its own name, or else by its first output's."""
    return str(node.name or next((o for o in node.output if o), node.op_type))


class Walk:
    """One pass over a model's graph, filling a `Store`."""

    def __init__(self, source: Source, store: Store) -> None:
        self.source, self.store = source, store
        self.problems = Problems()
        self.visited = 0
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
        for node in reversed(nodes):
            if any(out in live for out in node.output if out):
                used = [bool(out) and out in live for out in node.output]
                kept.append((node, used))
                live.update(reads(node))
        for node, used in reversed(kept):
            self.visited += 1
            if self.visited > MAX_NODES:
                raise SpecError(f"the graph with its functions written out has more than {MAX_NODES} nodes")
            self.node(node, scope, used)

    def node(self, node: Any, scope: Scope, used: Sequence[bool]) -> None:
        """Visit one node and note its outputs."""
        name = scope.prefix + name_of(node)
        inputs = [self.look_up(i, scope, name) for i in node.input]
        results: Any = MISSING
        if not any(i is MISSING for i in inputs):
            try:
                results = self.convert(node, name, inputs, scope, used)
            except Unsupported as e:
                self.problems.note(f"{node.op_type}: {e}" if str(e) else node.op_type, name, e)
            except (SpecError, InputError) as e:
                raise (
                    e if str(e).startswith("node ") else SpecError(f"node {name!r} ({node.op_type}): {e}")
                ) from e
            except BsliteError:
                raise
            except (RecursionError, MemoryError) as e:
                raise SpecError(f"node {name!r} ({node.op_type}): {type(e).__name__}") from e
            except Exception as e:  # whatever a hostile file made of an operator; see `bslite.spec.file.load`
                raise SpecError(f"node {name!r} ({node.op_type}): invalid ({type(e).__name__}: {e})") from e
        given = results if isinstance(results, tuple) else (results,)
        for i, out in enumerate(node.output):
            if out:
                value = MISSING if results is MISSING else given[i] if i < len(given) else None
                if value is None and used[i]:
                    self.problems.note(f"{node.op_type}: its output {i} is used", name)
                    value = MISSING
                scope.values[out] = value

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
        protos = onnx_attributes.resolve(node, scope.attributes)
        domain = _domain(node.domain)
        function = self.functions.get((domain, node.op_type, getattr(node, "overload", "")))
        if function is not None:
            return self.function(function, name, inputs, protos, scope, used)
        if domain not in scope.opsets:
            raise SpecError(f"its operator set {domain!r} is not imported")
        if domain:
            raise Unsupported(f"of the operator set {domain!r}")
        opset = scope.opsets[domain]
        schema = find_schema(node.op_type, opset)
        check_arity(schema, inputs, node)
        values, given = onnx_attributes.by_schema(schema, protos, self.source.folder)
        if node.op_type == "If":
            return self.branch(values, inputs, scope)
        builder, refused = find(node.op_type, opset), Unsupported("")
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
            if str(refused):
                raise refused
            raise Unsupported(f"as {', '.join(sorted({what.split(':')[0] for what in inside.found}))}")
        return result

    def function(
        self,
        function: Any,
        name: str,
        inputs: list[Operand | None],
        protos: Mapping[str, Any],
        scope: Scope,
        used: Sequence[bool],
        defaults: Mapping[str, Any] | None = None,
    ) -> Any:
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

    def branch(self, values: Mapping[str, Any], inputs: list[Operand | None], scope: Scope) -> Any:
        """The branch of an If whose condition is known."""
        (condition,) = inputs
        if isinstance(condition, Value):
            raise NeedsValue("its condition is computed from the input", condition.roots)
        if not isinstance(condition, Const):
            raise Varies("its condition depends on free sizes")
        if condition.array.size != 1 or condition.dtype != "bool":
            raise SpecError(
                f"its condition is {condition.dtype} {list(condition.array.shape)}, expected one bool"
            )
        if scope.depth >= MAX_DEPTH:
            raise SpecError(f"graphs within graphs, more than {MAX_DEPTH} deep")
        graph = values["then_branch" if condition.array.item() else "else_branch"]
        inner = Scope(dict(scope.values), scope.attributes, scope.opsets, scope.prefix, scope.depth + 1)
        add_initializers(graph, inner.values, self.source)
        wanted = [o.name for o in graph.output]
        self.nodes(graph.node, inner, wanted)
        return tuple(self.result(name, inner) for name in wanted)


def add_initializers(graph: Any, values: dict[str, Any], source: Source) -> None:
    """Note the graph's stored tensors as constants."""
    if graph.sparse_initializer:
        raise SpecError(f"graph {graph.name!r} has sparse initialisers, which bslite does not read")
    seen: set[str] = set()
    for tensor in graph.initializer:
        if not tensor.name or tensor.name in seen:
            raise SpecError(f"two initialisers are called {tensor.name!r}, or one has no name")
        seen.add(tensor.name)
        values[tensor.name] = Const(to_array(tensor, source.folder, "initialiser"), tensor.name)


def reads(node: Any) -> set[str]:
    """Names of the values that a node reads, in its subgraphs too."""
    names = set(node.input)
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                names |= reads(inner)
            names.update(o.name for o in graph.output)
    return names - {""}


def find_schema(op_type: str, opset: int) -> Any:
    """The operator's schema in ``opset``. Unsupported if there is none."""
    defs = load_onnx().defs
    try:
        schema = defs.get_schema(op_type, max_inclusive_version=opset, domain="")
    except defs.SchemaError:
        raise Unsupported("no operator of that name") from None
    if schema.deprecated:
        raise Unsupported(f"deprecated before opset {opset}")
    return schema


def check_arity(schema: Any, inputs: Sequence[Any], node: Any) -> None:
    """SpecError unless the node has as many inputs and outputs as the operator."""
    if not schema.min_input <= len(inputs) <= schema.max_input:
        raise SpecError(f"it has {len(inputs)} inputs, expected {schema.min_input} to {schema.max_input}")
    if len(node.output) > schema.max_output:
        raise SpecError(f"it has {len(node.output)} outputs, expected at most {schema.max_output}")
    option = load_onnx().defs.OpSchema.FormalParameterOption.Single
    for i, (declared, operand) in enumerate(zip(schema.inputs, inputs, strict=False)):
        if operand is None and declared.option == option:
            raise SpecError(f"its input {i} ({declared.name}) is left out")


def accepted(builder: Any, values: Mapping[str, Any], given: set[str]) -> dict[str, Any]:
    """The attributes that the builder takes. Unsupported if it does not take one that is set."""
    parameters = inspect.signature(builder).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return dict(values)
    names = {p.name for p in parameters if p.kind is p.KEYWORD_ONLY}
    extra = sorted(given - names)
    if extra:
        raise Unsupported(f"with {', '.join(f'{n}={values[n]!r:.40}' for n in extra)}")
    return {n: v for n, v in values.items() if n in names}


def function_body(
    schema: Any, node: Any, protos: Mapping[str, Any], inputs: Sequence[Operand | None], opset: int
) -> Any:
    """The function that defines the operator in terms of others, None if there is none.

    ``protos`` are the node's attributes, none of them a reference.
    """
    onnx = load_onnx()
    if schema.has_function:
        body = schema.function_body
        data = None
        versions = [v for v in schema.function_opset_versions if v <= opset]
        if versions:
            data = schema.get_function_with_opset_version(max(versions))
        if not data:
            return body
    elif schema.has_context_dependent_function:
        versions = [v for v in schema.context_dependent_function_opset_versions if v <= opset]
        types = [_type(x) for x in inputs]
        if not versions:
            return None
        plain = onnx.NodeProto()
        plain.CopyFrom(node)
        plain.ClearField("attribute")
        for name, attribute in protos.items():
            plain.attribute.add().CopyFrom(attribute)
            plain.attribute[-1].name = name
        data = schema.get_context_dependent_function_with_opset_version(
            max(versions), plain.SerializeToString(), types
        )
        if not data:
            return None
    else:
        return None
    body = onnx.FunctionProto()
    body.ParseFromString(data)
    return body


def _type(operand: Operand | None) -> bytes:
    """The operand's type as a serialised TypeProto."""
    onnx = load_onnx()
    proto = onnx.TypeProto()
    if operand is not None:
        import numpy as np

        proto.tensor_type.elem_type = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(operand.dtype))
        for d in operand.shape:
            dim = proto.tensor_type.shape.dim.add()
            if isinstance(d, int):
                dim.dim_value = d
    data: bytes = proto.SerializeToString()
    return data


def _domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain
