"""What kind of value something is, by name: dtypes, and what ONNX has besides arrays."""

import functools
from typing import Any


def kind(value: Any) -> str:
    """The dtype of an array or tensor, "string" for texts; "no array", "sequence", "map" for other values."""
    if value is None:
        return "no array"
    if isinstance(value, (list, dict)):
        return "sequence" if isinstance(value, list) else "map"
    return _dtype_kind(value.dtype)


@functools.lru_cache(64)
def _dtype_kind(dtype: Any) -> str:
    name = str(dtype).removeprefix("torch.")
    return "string" if name == "object" or name.startswith("<U") else name
