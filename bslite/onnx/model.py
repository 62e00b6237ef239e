"""`OnnxModel`: an ONNX model that runs as it is, its open sizes and needed values settled by each call."""

from collections.abc import Mapping
from typing import Any

from bslite import api
from bslite.frontends.onnx.file import read_model
from bslite.frontends.onnx.tensors import dtype_name
from bslite.onnx.rep import BsliteRep
from bslite.spec import Array
from bslite.spec.ports import Port


class OnnxModel:
    """The model in a file, in bytes or a ModelProto (see `bslite.from_onnx`), ready to run."""

    def __init__(self, model: Any, backend: str = "cpu", threads: int | None = None) -> None:
        self.source = read_model(model)
        self.name = self.source.name
        graph = self.source.model.graph
        stored = {t.name for t in graph.initializer}
        self.inputs = tuple(_port(v) for v in graph.input if v.name not in stored)
        self.outputs = tuple(_port(v) for v in graph.output)
        self._rep = BsliteRep(self.source, backend, threads)

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs by name for one array per input."""
        return dict(zip([o.name for o in self.outputs], self._rep.run(inputs), strict=True))

    def specs(self) -> list[Any]:
        """The models that it was specialised to."""
        return [s.spec for s in self._rep.kept() if s.spec is not None]

    def memory(self) -> dict[str, int]:
        """Bytes held: of ``weights``, packed for the engine, and of ``values`` between layers."""
        held = [api.memory(spec) for spec in self.specs()]
        return {key: sum(h[key] for h in held) for key in ("weights", "values")}

    def close(self) -> None:
        """Let go of plans, packed weights and values."""
        for spec in self.specs():
            api.release(spec)
        self._rep.forget()


def _port(value: Any) -> Port:
    """An input or output as the file declares it."""
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        return Port(value.name, None, str(kind))
    tensor = value.type.tensor_type
    dtype = dtype_name(tensor.elem_type) or "unknown"
    if not tensor.HasField("shape"):
        return Port(value.name, None, dtype)
    sizes: list[int | str | None] = []
    for d in tensor.shape.dim:
        known = d.HasField("dim_value") and d.dim_value >= 0
        sizes.append(d.dim_value if known else d.dim_param or None)
    return Port(value.name, tuple(sizes), dtype)
