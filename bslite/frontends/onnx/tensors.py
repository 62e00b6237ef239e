"""Tensors stored in an ONNX model as arrays. Sizes are checked against the bytes that are there before
anything is allocated, because a file may be hostile.
"""

import functools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bslite.errors import FileError, SpecError
from bslite.frontends.common.lazy import load_onnx
from bslite.spec import Array

#: Types whose numbers are int32 inside a model: the least and the largest.
HALF_WORDS = {"uint16": (0, 2**16 - 1), "int16": (-(2**15), 2**15 - 1)}
#: Types of four bits, two numbers to a byte, the lower half first -> the type that they are read into, one
#: number to a byte. Its metadata tells such an array from one that was stored as bytes: see `halves`.
HALF_BYTES = {
    name: np.dtype(wide, metadata={"stored": name}) for name, wide in (("int4", "int8"), ("uint4", "uint8"))
}
MAX_RANK = 32
MAX_SIZE = 2**40  # of one dimension, and of the elements of one value: beyond any memory
#: Where a type without a raw form keeps its numbers; bool, int32 and the small types share one field.
FIELDS = {
    "float32": "float_data", "float64": "double_data", "int64": "int64_data",
    "uint64": "uint64_data", "uint32": "uint64_data",
    **dict.fromkeys(("int32", "int16", "int8", "uint16", "uint8", "bool", "float16"), "int32_data"),
}  # fmt: skip


def sizes(dims: Sequence[int], what: str) -> tuple[int, ...]:
    """Dimensions as a shape. SpecError if one is negative or they are beyond any memory."""
    shape = tuple(dims)
    if len(shape) > MAX_RANK:
        raise SpecError(f"{what} has {len(shape)} dimensions; at most {MAX_RANK} make sense")
    if any(d < 0 for d in shape):
        raise SpecError(f"{what} has the shape {list(shape)}: a size is negative")
    if any(d > MAX_SIZE for d in shape) or math.prod(shape) > MAX_SIZE:
        raise SpecError(f"{what} has the shape {list(shape)}, too large for any memory")
    return shape


@functools.lru_cache(256)
def dtype_name(code: int) -> str:
    """``"float32"`` for 1; a type NumPy lacks goes by its ONNX name in lower case; "" for an unknown code."""
    onnx = load_onnx()
    if code not in onnx.TensorProto.DataType.values():
        return ""
    name = str(onnx.TensorProto.DataType.Name(code)).lower()
    return {"float": "float32", "double": "float64"}.get(name, name)


def code_of(dtype: str) -> int:
    """1 for ``"float32"``: what `dtype_name` reads."""
    return int(load_onnx().helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def to_array(tensor: Any, folder: Path | None, what: str) -> Array:
    """The array of a TensorProto. ``folder`` is where external data may lie, None if there is none.

    Raises SpecError if type, dimensions and data do not fit, FileError if external data cannot be read.
    """
    what = f"{what} {tensor.name!r}" if tensor.name else what
    shape, name = sizes(tensor.dims, what), dtype_name(tensor.data_type)
    if name == "string":
        return _texts(tensor, shape, what)
    if name in HALF_BYTES:
        return _half_bytes(tensor, name, shape, what)
    if name not in FIELDS:
        raise SpecError(f"{what} is of type {name or tensor.data_type}, which bslite does not read")
    dtype = np.dtype(name)
    count = math.prod(shape)
    if tensor.HasField("segment"):
        raise SpecError(f"{what} is stored in segments, which bslite does not read")
    if tensor.data_location == load_onnx().TensorProto.EXTERNAL:
        return _external(tensor, folder, dtype, shape, what)
    if tensor.HasField("raw_data"):
        if len(tensor.raw_data) != count * dtype.itemsize:
            raise SpecError(
                f"{what}: {len(tensor.raw_data)} bytes of data do not fill {dtype} {list(shape)}, "
                f"which takes {count * dtype.itemsize}"
            )
        return (
            np.frombuffer(tensor.raw_data, dtype.newbyteorder("<")).astype(dtype, copy=False).reshape(shape)
        )
    data = getattr(tensor, FIELDS[name])
    if len(data) != count:
        raise SpecError(f"{what}: {len(data)} numbers do not fill {dtype} {list(shape)}, which takes {count}")
    if name == "float16":
        return np.array(data, np.int64).astype(np.uint16).view(np.float16).reshape(shape)
    numbers = np.array(data, np.int64 if name in ("bool", "int32", "int16", "int8") else None)
    if dtype.kind in "iu" and numbers.size and not _fits(numbers, dtype):
        raise SpecError(f"{what}: its numbers do not fit {dtype}")
    return numbers.astype(dtype).reshape(shape)


def _texts(tensor: Any, shape: tuple[int, ...], what: str) -> Array:
    """Texts as an array of str."""
    if len(tensor.string_data) != math.prod(shape):
        raise SpecError(f"{what}: {len(tensor.string_data)} texts do not fill {list(shape)}")
    made = np.empty(len(tensor.string_data), object)
    try:
        made[:] = [text.decode("utf-8") for text in tensor.string_data]
    except UnicodeDecodeError as e:
        raise SpecError(f"{what}: not UTF-8 ({e})") from None
    return made.reshape(shape)


def _half_bytes(tensor: Any, name: str, shape: tuple[int, ...], what: str) -> Array:
    """The numbers of 4 bits that are stored in the tensor itself, as numbers of 8."""
    count = math.prod(shape)
    data = (
        np.frombuffer(tensor.raw_data, np.uint8) if tensor.raw_data else np.array(tensor.int32_data, np.int64)
    )
    if tensor.data_location == load_onnx().TensorProto.EXTERNAL or tensor.HasField("segment"):
        raise SpecError(f"{what} is {name} in a file or in segments, which bslite does not read")
    if len(data) != (count + 1) // 2:
        raise SpecError(f"{what}: {len(data)} bytes of data do not fill {name} {list(shape)}")
    numbers = np.stack([data & 15, data >> 4 & 15], 1).reshape(-1)[:count].astype(HALF_BYTES[name].type)
    made = (numbers ^ 8) - 8 if name == "int4" else numbers
    return np.asarray(made).reshape(shape).view(HALF_BYTES[name])


def halves(array: Array) -> bool:
    """Whether an array of bytes was stored as numbers of 4 bits, of which it has one in each byte."""
    return "stored" in (array.dtype.metadata or ())


def _fits(numbers: Array, dtype: np.dtype[Any]) -> bool:
    info = np.iinfo(dtype)
    return int(numbers.min()) >= info.min and int(numbers.max()) <= info.max


def _external(
    tensor: Any, folder: Path | None, dtype: np.dtype[Any], shape: tuple[int, ...], what: str
) -> Array:
    """Data from a file beside the model. The file must lie in the model's own folder, links followed."""
    entries = {e.key: e.value for e in tensor.external_data}
    location = entries.get("location", "")
    if folder is None:
        raise FileError(
            f"{what}: its data is in the file {location!r}, and only a model given by its path has such files"
        )
    try:
        offset, length = int(entries.get("offset", "0") or 0), entries.get("length")
        size = int(length) if length else math.prod(shape) * dtype.itemsize
    except ValueError as e:
        raise FileError(f"{what}: {e} in the description of its external data") from None
    if size != math.prod(shape) * dtype.itemsize or offset < 0:
        raise FileError(
            f"{what}: {size} bytes of external data at {offset} do not fill {dtype} {list(shape)}"
        )
    path = external_path(location, folder, what)
    try:
        if offset + size > path.stat().st_size:
            raise FileError(f"{what}: {path} ends before byte {offset + size}, where its data should end")
        with path.open("rb") as file:
            file.seek(offset)
            data = file.read(size)
    except (OSError, OverflowError) as e:
        raise FileError(f"{what}: cannot read {path} ({e})") from e
    if len(data) != size:
        raise FileError(f"{what}: {path} is truncated")
    return np.frombuffer(data, dtype.newbyteorder("<")).astype(dtype, copy=False).reshape(shape)


def check_external(graph: Any, folder: Path) -> None:
    """FileError if a file beside the model that an initialiser of ``graph`` lies in is not there."""
    for tensor in graph.initializer:
        if tensor.data_location == load_onnx().TensorProto.EXTERNAL:
            location = next((e.value for e in tensor.external_data if e.key == "location"), "")
            external_path(location, folder, f"initialiser {tensor.name!r}")


def external_path(location: str, folder: Path, what: str) -> Path:
    """The file ``location`` names, which must lie in ``folder`` or below. Raises FileError."""
    try:
        if not location or "\0" in location or Path(location).is_absolute():
            raise ValueError(location)
        path, root = (folder / location).resolve(), folder.resolve()
        path.relative_to(root)
        regular = path.is_file()
    except (ValueError, OSError, RuntimeError):
        raise FileError(
            f"{what}: its external data {location!r:.200} is not inside the model's own folder"
        ) from None
    if not regular:
        raise FileError(f"{what}: its external data {location!r:.200} is not there")
    return path


def unpacked(array: Array, bits: int) -> Array:
    """Numbers of 2, 4 or 8 bits along the last axis, in a byte the lowest bits first."""
    if bits == 8:
        return array
    parts = [array >> at & (1 << bits) - 1 for at in range(0, 8, bits)]
    return np.stack(parts, -1).reshape(*array.shape[:-1], -1)
