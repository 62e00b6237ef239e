"""What kind of value something is, by name: dtypes, and what ONNX has besides arrays."""

import functools
from collections.abc import Mapping, Set
from typing import Any

from bslite.errors import InputError
from bslite.frontends.onnx.read import NotConverted
from bslite.frontends.onnx.tensors import dtype_name
from bslite.onnx.graph import Graph
from bslite.ops import DTYPES


def kind(value: Any) -> str:
    """The dtype of an array or tensor, "string" for texts; "no array", "sequence", "map" for other values."""
    if value is None:
        return "no array"
    if isinstance(value, (list, dict)):
        return "sequence" if isinstance(value, list) else "map"
    return _dtype_kind(value.dtype)


@functools.lru_cache(64)
def _dtype_kind(dtype: Any) -> str:
    name = str(dtype).removeprefix("torch.")
    return "string" if name == "object" or name.startswith("<U") else name


def refusal(graph: Graph, odd: Mapping[str, str], reads: Mapping[int, Set[str]]) -> NotConverted:
    """The error for values of ``odd`` kinds, by name, in a piece whose nodes, by number, have such ``reads``.

    InputError where the file says that the value is of a dtype that bslite has.
    """
    model = f"model {graph.source.name!r}"
    for name, declared in graph.inputs().items():
        want = dtype_name(declared.type.tensor_type.elem_type)
        if name in odd and want in DTYPES:
            raise InputError(f"{model}: input {name!r} is {odd[name]}, expected {want}")
    hit = {i: sorted(names & set(odd)) for i, names in reads.items() if names & set(odd)}
    listed = ", ".join(f"{n!r} is {k}" for n, k in odd.items())
    return NotConverted(
        f"{model}: {graph.label}{listed}; bslite has {', '.join(DTYPES)}",
        frozenset(),
        causes=dict.fromkeys(hit),
        reasons={i: f"of {', '.join(sorted({odd[n] for n in names}))}" for i, names in hit.items()},
    )
