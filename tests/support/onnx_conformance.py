"""ONNX's own node tests: which operator each tests, and which of them bslite claims.

A test of a function written out (``test_elu_expanded``) belongs to the operator that the test of the same
name without that ending (``test_elu``) is about.
"""

import contextlib
import functools
import hashlib
import pickle
import re
import sys
import warnings
from typing import Any, NamedTuple

import numpy as np
import pytest

from bslite import cache, ops
from bslite.frontends.onnx.claims import CLAIMED, NOT_COMPARABLE
from support.once import once

onnx = pytest.importorskip("onnx")


class Tested(NamedTuple):
    """A node test and the operator it is about."""

    case: Any
    op: str
    expanded: bool


@functools.cache
def node_cases() -> list[Any]:
    """ONNX's node tests with their data, which take seconds to compute and are kept on disk."""
    versions = f"{onnx.__version__} {np.__version__} {sys.version_info[:2]}"
    file = cache.cache_dir() / "tests" / f"onnx-{hashlib.sha256(versions.encode()).hexdigest()[:16]}.pickle"
    with once(file.name):
        with contextlib.suppress(OSError, EOFError, pickle.UnpicklingError):
            return list(pickle.loads(file.read_bytes()))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the makers of the test data divide by zero on purpose
            from onnx.backend.test.loader import load_model_tests

            cases = load_model_tests(kind="node")
        cache.write(file, pickle.dumps(cases))
    return list(cases)


@functools.cache
def node_tests() -> list[Tested]:
    """All node tests of the installed onnx."""
    cases = node_cases()
    ops_by_name = {c.name: c.model.graph.node[-1].op_type for c in cases if len(c.model.graph.node) == 1}
    made = []
    for c in cases:
        short = re.sub(r"_expanded.*", "", c.name)
        if short in ops_by_name:
            made.append(Tested(c, ops_by_name[short], short != c.name))
        elif len(c.model.graph.node):
            made.append(Tested(c, c.model.graph.node[-1].op_type, False))
    return made


def within_dtypes(case: Any) -> bool:
    """Whether all inputs and outputs are of the dtypes that bslite has (or sequences of such, or optional),
    and so is what is inside."""
    kinds = {onnx.TensorProto.DataType.Value(n) for n in ("FLOAT", "INT64", "INT32", "BOOL", "UINT8", "INT8")}
    graph = case.model.graph
    inside = [a.i for n in graph.node for a in n.attribute if a.name in ("to", "softmax_precision")]
    if not set(inside) <= kinds:
        return False
    return bool(graph.node) and all(
        element(v.type).tensor_type.elem_type in kinds for v in (*graph.input, *graph.output)
    )


def element(kind: Any) -> Any:
    """The type of the tensors in a sequence or optional value."""
    what = kind.WhichOneof("value")
    return element(getattr(kind, what).elem_type) if what in ("sequence_type", "optional_type") else kind


assert set(ops.DTYPES) == {"float32", "int64", "int32", "bool", "uint8", "int8"}


@functools.cache
def claimed_tests() -> list[Tested]:
    """The tests of the claimed operators, of the dtypes that bslite has."""
    return [
        t
        for t in node_tests()
        if t.op in CLAIMED and within_dtypes(t.case) and t.case.name not in NOT_COMPARABLE
    ]
