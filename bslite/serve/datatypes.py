"""The protocol's datatypes: their names, and values as bytes and as JSON.

https://github.com/kserve/open-inference-protocol (tensor data types), and Triton's binary tensor data
extension.
"""

import math
import struct
from itertools import chain
from typing import Any

import numpy as np

from bslite.serve.problem import Problem
from bslite.spec import Array

#: A port's dtype -> the protocol's name.
DATATYPES = {
    "bool": "BOOL",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "float16": "FP16",
    "float32": "FP32",
    "float64": "FP64",
    "string": "BYTES",
}
#: Types of JSON's values, by the kind of dtype.
_TYPES: dict[str, tuple[type, ...]] = {"b": (bool,), "u": (int,), "i": (int,), "f": (int, float), "s": (str,)}


def from_bytes(raw: memoryview, dtype: str, shape: tuple[int, ...], what: str) -> Array:
    """An array of a port's ``dtype`` from its bytes: little endian, row by row; of texts each with its
    length.

    Problem 400 if there are more or fewer than the shape takes.
    """
    if dtype == "string":
        return np.array(_texts(raw, math.prod(shape), what), object).reshape(shape)
    kind = np.dtype(dtype)
    if (wanted := math.prod(shape) * kind.itemsize) != len(raw):
        raise Problem(
            400, f"{what}: shape {list(shape)} of {DATATYPES[dtype]} is {wanted} bytes; got {len(raw)}"
        )
    flat = np.frombuffer(raw, kind.newbyteorder("<"))
    if dtype == "bool" and len(raw) and np.frombuffer(raw, np.uint8).max() > 1:
        raise Problem(400, f"{what}: BOOL is bytes of 0 and 1; got {np.frombuffer(raw, np.uint8).max()}")
    # Where the tensor begins among the body's bytes is anyone's choice; engines take aligned arrays.
    return np.require(flat, kind, ["C", "ALIGNED"]).reshape(shape)


def _texts(raw: memoryview, count: int, what: str) -> list[str]:
    made, at = [], 0
    while at < len(raw):
        if len(raw) - at < 4:
            raise Problem(400, f"{what}: {len(raw) - at} bytes left where the length of a text takes 4")
        (size,) = struct.unpack_from("<I", raw, at)
        at += 4
        if size > len(raw) - at:
            raise Problem(400, f"{what}: a text of {size} bytes, but {len(raw) - at} are left")
        try:
            made.append(str(raw[at : at + size], "utf-8"))
        except UnicodeDecodeError as e:
            raise Problem(400, f"{what}: element {len(made)} is not UTF-8 ({e.reason})") from None
        at += size
    if len(made) != count:
        raise Problem(400, f"{what}: its shape has {count} elements; got {len(made)}")
    return made


def made_dtype(port: str, array: Array) -> str:
    """The dtype of an output: the array's, whatever its port, of which a file may declare anything, says."""
    return array.dtype.name if port != "string" and array.dtype.name in DATATYPES else port


def to_bytes(array: Array, dtype: str) -> bytes:
    """The bytes of an array of a port's ``dtype``."""
    if dtype == "string":
        texts = [x if isinstance(x, bytes) else str(x).encode() for x in array.ravel()]
        return b"".join(part for text in texts for part in (struct.pack("<I", len(text)), text))
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()


def from_json(data: Any, dtype: str, shape: tuple[int, ...], what: str) -> Array:
    """An array of a port's ``dtype`` from JSON's values: flat, or nested as the shape is.

    Problem 400 where their number, nesting or type is another, or where one is outside the type's range.
    """
    if not isinstance(data, list):
        raise Problem(400, f"{what}: data is a list; got {type(data).__name__}")
    flat = _flat(data, shape, what)
    if (count := math.prod(shape)) != len(flat):
        raise Problem(400, f"{what}: shape {list(shape)} has {count} elements; got {len(flat)}")
    takes = _TYPES["s" if dtype == "string" else np.dtype(dtype).kind]
    if wrong := set(map(type, flat)).difference(takes):
        found, wanted = (" or ".join(sorted(t.__name__ for t in types)) for types in (wrong, takes))
        raise Problem(400, f"{what}: {DATATYPES[dtype]} takes JSON's {wanted}; got {found}")
    if dtype == "string":
        return np.array(flat, object).reshape(shape)
    kind = np.dtype(dtype)
    try:
        if kind.kind != "f":
            return np.array(flat, kind).reshape(shape)
        wide = np.array(flat, np.float64)
    except OverflowError:
        raise Problem(400, f"{what}: a value is outside the range of {DATATYPES[dtype]}") from None
    if wide.size and not np.abs(wide).max() <= np.finfo(kind).max:
        raise Problem(400, f"{what}: a value is outside the range of {DATATYPES[dtype]}")
    return wide.astype(kind).reshape(shape)


def _flat(data: list[Any], shape: tuple[int, ...], what: str) -> list[Any]:
    if not data or not isinstance(data[0], list):
        return data
    level: list[Any] = [data]
    for axis, size in enumerate(shape):
        for part in level:
            if not isinstance(part, list) or len(part) != size:
                got = f"a list of {len(part)}" if isinstance(part, list) else type(part).__name__
                raise Problem(
                    400, f"{what}: shape {list(shape)} has lists of {size} along axis {axis}; got {got}"
                )
        level = list(chain.from_iterable(level))
    return level


def to_json(array: Array, dtype: str, what: str) -> list[str] | Array:
    """JSON's values of an array, flat. Problem 406 for what JSON cannot hold: NaN, infinities, odd bytes."""
    if dtype == "string":
        try:
            texts = [x if isinstance(x, bytes) else str(x).encode() for x in array.ravel()]
            return [str(text, "utf-8") for text in texts]
        except UnicodeError:
            raise Problem(406, f"{what} has bytes that are no UTF-8; ask for it as binary_data") from None
    if array.dtype.kind != "f":
        return np.ascontiguousarray(array).ravel()
    if not np.isfinite(array).all():
        raise Problem(406, f"{what} has NaN or infinities, which JSON has not; ask for it as binary_data")
    return array.astype(np.float64).ravel()  # as many digits as a reader of doubles needs to get it back
