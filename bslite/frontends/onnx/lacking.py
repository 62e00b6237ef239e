"""Operators of a model that bslite does not have in any form, found in the file alone."""

from collections.abc import Collection

from bslite.errors import UnsupportedError
from bslite.frontends.common.unsupported import Unsupported
from bslite.frontends.onnx.control import CONTROL
from bslite.frontends.onnx.file import Source
from bslite.frontends.onnx.ops import find
from bslite.frontends.onnx.problems import Problems
from bslite.frontends.onnx.schemas import find_schema
from bslite.frontends.onnx.walk import MICROSOFT, NONE, OF_MICROSOFT, known, name_of, reads


def check_operators(source: Source, also: Collection[str] = ()) -> None:
    """UnsupportedError that lists the operators of nodes on the way to an output that bslite does not have.

    ``also``: operators that something else than a builder computes, "domain:name" where not ONNX's own.
    Branches and bodies of control flow are left out, for one that is never taken need not run; and what a
    model's own functions hold.
    """
    graph, problems = source.model.graph, Problems()
    own = {(_domain(f.domain), f.name) for f in source.model.functions}
    live = {o.name for o in graph.output}
    for node in reversed(graph.node):
        if not live.intersection(node.output):
            continue
        live |= reads(node)
        domain = MICROSOFT if node.op_type in OF_MICROSOFT else _domain(node.domain)
        if (domain, node.op_type) in own or node.op_type in CONTROL:
            continue
        if (f"{domain}:{node.op_type}" if domain else node.op_type) in also:
            continue
        if domain:
            if find(f"{domain}:{node.op_type}", source.opsets.get(domain, 1)) is not None:
                continue
            problems.note(f"{node.op_type}: of the operator set {domain!r}", name_of(node))
            continue
        try:
            if known(node.op_type, find_schema(node.op_type, source.opsets[domain]), source.opsets[domain]):
                continue
            problems.note(f"{node.op_type}: {NONE}", name_of(node))
        except Unsupported as e:
            problems.note(f"{node.op_type}: {e}", name_of(node))
    if problems.found:
        raise UnsupportedError(problems.report(source.name))


def _domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain
