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
from bslite.frontends.onnx.overridable import overridable, without_defaults
from bslite.onnx.model import OnnxModel, port_of
from bslite.spec.ports import Port


class OnnxRunner:
    """Takes NumPy arrays or CPU tensors; with a tensor among them, the results are tensors.

    ``overridable``: inputs with a default, which may be given by name. For each set of them that a call gives
    there is another runner, made at the first such call.
    """

    def __init__(self, model: Any, options: Options) -> None:
        source = model.source if isinstance(model, OnnxModel) else model
        self.model = OnnxModel(source, options.device, options.threads)
        self.name, self.inputs, self.outputs = self.model.name, self.model.inputs, self.model.outputs
        self.memory, self._options = self.model.memory, options
        self.overridable = tuple(map(port_of, overridable(self.model.source)))
        self._defaults = frozenset(p.name for p in self.overridable)
        self._others: dict[frozenset[str], OnnxRunner] = {}
        self._takes, self._gives = [i.name for i in self.inputs], [o.name for o in self.outputs]

    def pieces(self) -> list[str]:
        return self.model.pieces

    def close(self) -> None:
        self.model.close()
        while self._others:
            self._others.popitem()[1].close()

    def call(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Outputs:
        if self._defaults and (other := self._overridden(args, kwargs)) is not None:
            return other.call(args, kwargs)
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

    def _overridden(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> "OnnxRunner | None":
        """The runner that takes the inputs with a default that are given; None if there are none of them."""
        by_name = args[0] if len(args) == 1 and hasattr(args[0], "keys") else kwargs  # sooner than isinstance
        if self._defaults.isdisjoint(by_name) and self._defaults.isdisjoint(kwargs):
            return None
        names = self._defaults.intersection([*by_name, *kwargs])
        if names not in self._others:
            source = without_defaults(self.model.source, names)
            self._others[names] = OnnxRunner(source, self._options)
        return self._others[names]


def _array(port: Port, value: Any) -> Any:
    if port.dtype in ("sequence_type", "optional_type"):
        return value
    if not isinstance(value, (np.ndarray, np.generic)):
        raise InputError(
            f"input {port.name!r} is a {type(value).__name__}; expected a numpy array or a torch tensor"
        )
    return np.asarray(value)
