"""Reading and writing safetensors files, with every failure a FileError that names the file."""

import contextlib
import os
import uuid
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from bslite.errors import FileError, InputError

Array = npt.NDArray[Any]
Path = str | os.PathLike[str]


def path_of(path: Path) -> str:
    """The name of a file as a str. InputError for what is none."""
    try:
        return os.fsdecode(path)
    except TypeError:
        raise InputError(f"expected the path of a file, got {type(path).__name__}") from None


class TensorFile:
    """An open safetensors file: its ``metadata``, and the ``dtypes`` ("F32", "BF16", ...) of its tensors.

    Opening reads only the header. Use it in a ``with`` statement; ``array`` copies out of the mapped file, so
    arrays outlive it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path_of(path)
        if not os.path.exists(self.path):
            raise FileError(f"{self.path}: no such file")
        if not os.path.isfile(self.path):
            raise FileError(f"{self.path}: not a regular file")
        try:
            self._file = safe_open(self.path, framework="numpy")
            self.metadata: dict[str, str] = dict(self._file.metadata() or {})
            self.dtypes = {key: str(self._file.get_slice(key).get_dtype()) for key in self._file.keys()}  # noqa: SIM118  (not a dict)
        except (OSError, SafetensorError, ValueError) as e:
            raise FileError(f"{self.path}: not a readable safetensors file ({e})") from e

    def __enter__(self) -> "TensorFile":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.__exit__(kind, error, trace)

    def shape(self, key: str) -> tuple[int, ...]:
        """Shape of one tensor, from the header."""
        return tuple(self._file.get_slice(key).get_shape())

    def array(self, key: str, dtypes: Sequence[str] = ("F32",)) -> Array:
        """One tensor as a NumPy array; FileError unless its dtype, in the file's words, is in ``dtypes``."""
        if self.dtypes[key] not in dtypes:
            raise FileError(
                f"{self.path}: tensor {key!r} has dtype {self.dtypes[key]}, expected {' or '.join(dtypes)}"
            )
        try:
            return np.asarray(self._file.get_tensor(key))
        except (OSError, SafetensorError, ValueError, OverflowError) as e:
            raise FileError(f"{self.path}: tensor {key!r} cannot be read ({e})") from e


def little_endian(array: Array) -> Array:
    """``array`` as it lies in a file: dense, row-major, low byte first."""
    return np.asarray(array, array.dtype.newbyteorder("<"), order="C")


def write_tensors(path: Path, arrays: Mapping[str, Array], metadata: Mapping[str, str]) -> None:
    """Write arrays to ``path``, whole or not at all: a reader never sees half a file.

    The data goes to a temporary file beside the target, which then replaces it in one step.
    """
    target = os.path.realpath(path_of(path))  # through a link, so that the link stays one
    temporary = os.path.join(os.path.dirname(target), f".bslite-{uuid.uuid4().hex}.tmp")
    # safetensors stores the raw memory of an array: it must be little-endian and in C order.
    dense = {key: little_endian(array) for key, array in arrays.items()}
    try:
        save_file(dense, temporary, metadata=dict(metadata))
        os.replace(temporary, target)
    except (OSError, SafetensorError, ValueError) as e:
        raise FileError(f"{path_of(path)}: cannot be written ({e})") from e
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
