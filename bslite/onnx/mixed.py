"""A whole ONNX model ready to run: what needs no cut is one piece, see `bslite.onnx.running`."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from bslite.errors import InputError
from bslite.frontends.onnx.file import Source
from bslite.frontends.onnx.read import refusals
from bslite.frontends.onnx.tensors import dtype_name
from bslite.onnx.graph import Graph
from bslite.onnx.inlined import inlined
from bslite.onnx.kinds import kind
from bslite.onnx.rep import Specialised, base
from bslite.onnx.running import Options, Running

#: Dtypes of which there is one name.
PLAIN = frozenset(
    ("bool", "string", "float16", "float32", "float64", "int8", "int16", "int32", "int64",
     "uint8", "uint16", "uint32", "uint64")
)  # fmt: skip


class MixedRep(base.BackendRep):  # type: ignore[name-defined]
    """A model ready to run. ``options.fallback``: what becomes of operators that bslite lacks."""

    def __init__(self, source: Source, options: Options) -> None:
        with refusals(source.name):
            self.source = source = inlined(source)
            self.running = Running(Graph(source, source.model.graph), options)
        self.names = self.running.graph.takes

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs for ``inputs``, a list in the order of the graph's inputs, or a dict by name: arrays,
        lists of arrays for sequences, None for an empty optional.

        Raises what `bslite.from_onnx` and `bslite.run` raise; InputError where a node does not take the
        values that reach it.
        """
        with np.errstate(all="ignore"):  # of nodes in NumPy
            return tuple(self.running.run(self._given(inputs)))

    def kept(self) -> list[Specialised]:
        """The models that are kept, those of branches and bodies too."""
        return list(self.running.specialised())

    def forget(self) -> None:
        """Drop the models that are kept."""
        self.running.forget()

    def _given(self, inputs: Any) -> dict[str, Any]:
        """The values of a run by name: given in order, by name, or the only one."""
        name, names = self.source.name, self.names
        if isinstance(inputs, Mapping):
            missing = [n for n in names if n not in inputs]
            if missing:
                raise InputError(f"model {name!r}: no array for {', '.join(missing)}")
            inputs = [inputs[n] for n in names]
        elif isinstance(inputs, np.ndarray):
            inputs = [inputs]
        if len(inputs) != len(names):
            raise InputError(f"model {name!r} takes {len(names)} arrays, {list(names)}")
        declared = self.running.graph.inputs()
        made = {}
        for n, x in zip(names, inputs, strict=True):
            what = f"model {name!r} takes {len(names)} arrays: {n!r}"
            made[n] = _checked(x, declared[n].type.WhichOneof("value"), what)
            want = dtype_name(declared[n].type.tensor_type.elem_type)
            if want in PLAIN and (got := kind(made[n])) != want:
                raise InputError(
                    f"model {name!r}: input {n!r} is {got}, expected {want}; bslite does not cast"
                )
        return made


def _checked(value: Any, declared: str | None, what: str) -> Any:
    """A value of the kind that the file declares: array, list of arrays, or either or None."""
    kind = declared or "tensor_type"
    if isinstance(value, np.generic):
        value = np.asarray(value)
    if kind in ("sequence_type", "optional_type") and isinstance(value, (list, tuple)):
        return [_checked(x, "tensor_type", what) for x in value]
    if isinstance(value, np.ndarray) and kind in ("tensor_type", "optional_type"):
        return value
    if value is None and kind == "optional_type":
        return None
    raise InputError(f"{what} is a {type(value).__name__}, expected a {kind.removesuffix('_type')}")
