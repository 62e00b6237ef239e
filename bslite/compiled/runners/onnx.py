"""An ONNX model as a compiled model runs it."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bslite.api import of_tensors
from bslite.compiled.arguments import ordered
from bslite.compiled.outputs import Outputs
from bslite.compiled.runners.runner import Options
from bslite.errors import InputError
from bslite.onnx.model import OnnxModel
from bslite.spec.ports import Port


class OnnxRunner:
    """Takes NumPy arrays or CPU tensors; with a tensor among them, the results are tensors."""

    def __init__(self, model: Any, options: Options) -> None:
        source = model.source if isinstance(model, OnnxModel) else model
        self.model = OnnxModel(source, options.device, options.threads)
        self.name, self.inputs, self.outputs = self.model.name, self.model.inputs, self.model.outputs
        self.memory, self.close = self.model.memory, self.model.close
        self._takes, self._gives = [i.name for i in self.inputs], [o.name for o in self.outputs]

    def pieces(self) -> list[str]:
        return self.model.pieces

    def call(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Outputs:
        given = ordered(self.name, self._takes, args, kwargs)
        if (made := self.model.again(given)) is not None:
            named = Outputs()
            for i, name in enumerate(self._gives):  # sooner than by `zip`
                named[name] = made[i]
            return named if len(named) == len(made) else Outputs.of(self._gives, made)
        arrays, any_tensor = of_tensors(self.inputs, given)
        arrays = [_array(port, x) for port, x in zip(self.inputs, arrays, strict=True)]
        made = self.model.again(arrays)
        if made is None:
            ran = self.model.run(dict(zip(self._takes, arrays, strict=True)))
            made = [ran[name] for name in self._gives]
        if any_tensor:
            torch = sys.modules["torch"]
            made = [
                torch.from_numpy(y) if isinstance(y, np.ndarray) and y.dtype.kind != "O" else y for y in made
            ]
        return Outputs.of(self._gives, made)


def _array(port: Port, value: Any) -> Any:
    if port.dtype in ("sequence_type", "optional_type"):
        return value
    if not isinstance(value, (np.ndarray, np.generic)):
        raise InputError(
            f"input {port.name!r} is a {type(value).__name__}; expected a numpy array or a torch tensor"
        )
    return np.asarray(value)
