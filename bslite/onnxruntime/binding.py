"""Values and bindings: inputs and outputs named once, arrays of the host."""

import ctypes
import math
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
    """An array of the host, or what a model returns that is none: a list, a dict."""

    def __init__(self, array: Any) -> None:
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
        return OrtValue(np.empty(tuple(shape), _dtype(element_type)))

    @staticmethod
    def ortvalue_from_numpy_with_onnx_type(data: Array, onnx_element_type: int) -> "OrtValue":
        """``data``, not copied, read as the element type of ONNX's of that number."""
        return OrtValue(data.view(_dtype(onnx_element_type)))

    @staticmethod
    def from_dlpack(data: Any) -> "OrtValue":
        """The memory of another library's array, not copied."""
        return OrtValue(np.from_dlpack(data))

    def __dlpack__(self, *, stream: Any = None) -> Any:
        return self._array.__dlpack__()

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self._array, dtype, copy=copy)

    def update_inplace(self, data: Array) -> None:
        """Write ``data`` into its memory. InputError if it is of another shape or dtype."""
        if (data.shape, data.dtype) != (self._array.shape, self._array.dtype):
            raise InputError(
                f"a value of {self._array.dtype} {self.shape()} takes no {data.dtype} {list(data.shape)}"
            )
        self._array[...] = data

    def data_ptr(self) -> int:
        """The address of its memory."""
        return int(self._array.ctypes.data)

    def tensor_size_in_bytes(self) -> int:
        """Bytes of its elements."""
        return int(self._array.nbytes)

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
        """Whether it is an array."""
        return isinstance(self._array, np.ndarray)

    def is_tensor_sequence(self) -> bool:
        """Whether it is a list of arrays."""
        return isinstance(self._array, list) and all(isinstance(x, np.ndarray) for x in self._array)

    def is_sparse_tensor(self) -> bool:
        """False."""
        return False

    def has_value(self) -> bool:
        """True."""
        return True


class IOBinding:
    """Inputs and outputs of a session by name, for `InferenceSession.run_with_iobinding`."""

    def __init__(self, session: Runs) -> None:
        self._names = [o.name for o in session.get_outputs()]
        self._inputs: dict[str, Array] = {}
        self._outputs: dict[str, OrtValue | None] = {}  # bound; None: without memory of the caller's
        self._made: dict[str, OrtValue] = {}

    def bind_cpu_input(self, name: str, array: Array) -> None:
        """Read input ``name`` from ``array`` at each run."""
        self._inputs[name] = array

    def bind_ortvalue_input(self, name: str, value: OrtValue) -> None:
        """Read input ``name`` from a value at each run."""
        self._inputs[name] = value.numpy()

    def bind_input(
        self,
        name: str,
        device_type: str,
        device_id: int,
        element_type: Any,
        shape: Sequence[int],
        buffer_ptr: int,
    ) -> None:
        """Read input ``name`` at each run from memory of the caller's, given by its address."""
        _on_host(device_type)
        self._inputs[name] = _at(buffer_ptr, shape, element_type)

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Compute output ``name``; if an address is given, with type and shape, into the memory there."""
        _on_host(device_type)
        if buffer_ptr is None:
            self._outputs[name] = None
            return
        if element_type is None or shape is None:
            raise InputError(f"output {name!r}: an address without element type and shape")
        self._outputs[name] = OrtValue(_at(buffer_ptr, shape, element_type))

    def bind_ortvalue_output(self, name: str, value: OrtValue) -> None:
        """Write output ``name`` into a value."""
        self._outputs[name] = value

    def run(self, session: Runs) -> None:
        """Compute the outputs that are bound: into the caller's memory, or else into values made anew."""
        names = list(self._outputs) or self._names
        for name, made in zip(names, session.run(names, self._inputs), strict=True):
            value = self._outputs.get(name)
            if value is None:
                self._made[name] = OrtValue(made)
                continue
            if value.numpy().shape != made.shape:
                raise InputError(f"output {name!r} is {list(made.shape)}, its value {value.shape()}")
            if value.numpy().dtype != made.dtype:
                raise InputError(f"output {name!r} is {made.dtype}, its value {value.numpy().dtype}")
            value.numpy()[...] = made
            self._made[name] = value

    def get_outputs(self) -> list[OrtValue]:
        """The outputs of the last run, in the order in which they were bound."""
        return [self._made[name] for name in self._outputs or self._names if name in self._made]

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
        self._made.clear()


def _dtype(element_type: Any) -> np.dtype[Any]:
    """NumPy's dtype of its own or of ONNX's number of an element type."""
    if isinstance(element_type, int):
        import onnx

        return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(element_type))
    return np.dtype(element_type)


def _at(address: int, shape: Sequence[int], element_type: Any) -> Array:
    """Memory of the caller's as an array. InputError for sizes and addresses that no memory has."""
    dtype, sizes = _dtype(element_type), tuple(shape)
    if any(n < 0 for n in sizes):
        raise InputError(f"memory of the shape {list(sizes)}: sizes are not negative")
    if dtype.hasobject:
        raise InputError(f"memory of {dtype}: an address gives numbers only")
    if 0 in sizes:
        return np.empty(sizes, dtype)
    if not address:
        raise InputError(f"memory of the shape {list(sizes)} at address 0")
    held = (ctypes.c_char * (math.prod(sizes) * dtype.itemsize)).from_address(address)
    return np.frombuffer(memoryview(held).cast("B"), dtype).reshape(sizes)


def _on_host(device: str) -> None:
    if device != "cpu":
        raise InputError(f"device {device!r}: values of these bindings lie on the host, 'cpu'")
