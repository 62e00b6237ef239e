"""`Served`: a model under its name, ready to be asked."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bslite.compiled import CompiledModel
from bslite.compiled.together import together
from bslite.errors import UnsupportedError
from bslite.serve.datatypes import DATATYPES
from bslite.serve.price import Price
from bslite.spec import Array
from bslite.spec.ports import Port

VERSION = "1"  # every model has one version


@dataclass(eq=False)
class Served:
    """A compiled model with its name and, once it is warm, the price of its batches.

    ``alone``: why its requests are computed one by one; empty where they are computed together.
    """

    name: str
    compiled: CompiledModel
    path: Path | None = None
    price: Price = field(default_factory=lambda: Price({1: 0.0}))
    alone: str = "it is not warm yet"
    ready: bool = False
    warmed: float = 0.0  # seconds that it took

    def __post_init__(self) -> None:
        """UnsupportedError for ports that the protocol has no datatype for."""
        self.inputs, self.outputs = self.compiled.inputs, self.compiled.outputs
        if odd := [str(p) for p in (*self.inputs, *self.outputs) if p.dtype not in DATATYPES]:
            raise UnsupportedError(
                f"model {self.name!r} cannot be served: the protocol has no datatype for {', '.join(odd)}"
            )

    def metadata(self) -> dict[str, Any]:
        """What the protocol tells of a model; open sizes are -1."""
        kind = "onnx" if self.path is not None and self.path.suffix.lower() == ".onnx" else "bslite"
        return {
            "name": self.name,
            "versions": [VERSION],
            "platform": kind,
            "inputs": [_described(p) for p in self.inputs],
            "outputs": [_described(p) for p in self.outputs],
        }

    def kind(self, arrays: Sequence[Array]) -> tuple[Any, ...] | None:
        """Equal for requests that can be computed together; None for one that must be alone."""
        if self.alone:
            return None
        rows = {x.shape[0] for x in arrays}
        if len(rows) != 1 or 0 in rows:
            return None
        return tuple(x.shape[1:] for x in arrays)

    def run(self, arrays: Sequence[Any]) -> dict[str, Any]:
        """The results of one request by name."""
        return dict(self.compiled(dict(zip([p.name for p in self.inputs], arrays, strict=True))))

    def run_together(self, requests: Sequence[Sequence[Array]]) -> list[dict[str, Array]]:
        """The results of each of several requests of one kind, from one run."""
        return together(lambda *arrays: self.run(arrays), requests)


def _described(port: Port) -> dict[str, Any]:
    sizes = [-1] if port.shape is None else [d if isinstance(d, int) else -1 for d in port.shape]
    return {"name": port.name, "datatype": DATATYPES[port.dtype], "shape": sizes}
