"""Values and bindings: inputs and outputs named once, arrays of the host."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from bslite.errors import InputError
from bslite.onnxruntime.metadata import TYPES, NodeArg
from bslite.spec import Array


class Runs(Protocol):
    """What a binding asks of a session."""

    def get_outputs(self) -> list[NodeArg]:
        """See `InferenceSession`."""

    def run(self, output_names: Sequence[str] | None, input_feed: dict[str, Any]) -> list[Any]:
        """See `InferenceSession`."""


class OrtValue:
    """An array of the host."""

    def __init__(self, array: Array) -> None:
        self._array = array

    @staticmethod
    def ortvalue_from_numpy(array: Array, device_type: str = "cpu", device_id: int = 0) -> "OrtValue":
        """``array``, not copied."""
        _on_host(device_type)
        return OrtValue(array)

    @staticmethod
    def ortvalue_from_shape_and_type(
        shape: Sequence[int], element_type: Any, device_type: str = "cpu", device_id: int = 0
    ) -> "OrtValue":
        """A new array, its contents undefined."""
        _on_host(device_type)
        return OrtValue(np.empty(tuple(shape), element_type))

    def numpy(self) -> Array:
        """The array."""
        return self._array

    def shape(self) -> list[int]:
        """Its sizes."""
        return list(self._array.shape)

    def data_type(self) -> str:
        """Its type as onnxruntime writes it."""
        return f"tensor({TYPES.get(self._array.dtype.name, self._array.dtype.name)})"

    def element_type(self) -> int:
        """ONNX's number of its element type."""
        import onnx

        return int(onnx.helper.np_dtype_to_tensor_dtype(self._array.dtype))

    def device_name(self) -> str:
        """ "cpu"."""
        return "cpu"

    def is_tensor(self) -> bool:
        """True."""
        return True

    def has_value(self) -> bool:
        """True."""
        return True


class IOBinding:
    """Inputs and outputs of a session by name, for `InferenceSession.run_with_iobinding`."""

    def __init__(self, session: Runs) -> None:
        self._names = [o.name for o in session.get_outputs()]
        self._inputs: dict[str, Array] = {}
        self._outputs: dict[str, OrtValue | None] = {}

    def bind_cpu_input(self, name: str, array: Array) -> None:
        """Read input ``name`` from ``array`` at each run."""
        self._inputs[name] = array

    def bind_ortvalue_input(self, name: str, value: OrtValue) -> None:
        """Read input ``name`` from a value at each run."""
        self._inputs[name] = value.numpy()

    def bind_output(self, name: str, device_type: str = "cpu", device_id: int = 0, *unused: Any) -> None:
        """Compute output ``name``. InputError if memory of the caller's is given by its address."""
        _on_host(device_type)
        if any(x is not None for x in unused):
            raise InputError("bind_output takes no address; bind an OrtValue with bind_ortvalue_output")
        self._outputs[name] = None

    def bind_ortvalue_output(self, name: str, value: OrtValue) -> None:
        """Write output ``name`` into a value."""
        self._outputs[name] = value

    def run(self, session: Runs) -> None:
        """Compute the outputs that are bound."""
        names = list(self._outputs) or self._names
        for name, made in zip(names, session.run(names, self._inputs), strict=True):
            value = self._outputs.get(name)
            if value is None or value.numpy().shape != made.shape:
                if value is not None:
                    raise InputError(f"output {name!r} is {list(made.shape)}, its value {value.shape()}")
                self._outputs[name] = OrtValue(made)
            else:
                value.numpy()[...] = made

    def get_outputs(self) -> list[OrtValue]:
        """The outputs of the last run, in the order in which they were bound."""
        return [v for v in self._outputs.values() if v is not None]

    def copy_outputs_to_cpu(self) -> list[Array]:
        """The outputs of the last run as arrays."""
        return [v.numpy() for v in self.get_outputs()]

    def get_outputs_as_ortvaluevector(self) -> list[OrtValue]:
        """As `get_outputs`."""
        return self.get_outputs()

    def synchronize_inputs(self) -> None:
        """Nothing is left to wait for."""

    def synchronize_outputs(self) -> None:
        """Nothing is left to wait for."""

    def clear_binding_inputs(self) -> None:
        """Forget the inputs."""
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Forget the outputs."""
        self._outputs.clear()


def _on_host(device: str) -> None:
    if device != "cpu":
        raise InputError(f"device {device!r}: values of these bindings lie on the host, 'cpu'")
