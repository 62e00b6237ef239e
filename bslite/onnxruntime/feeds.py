"""What a session is fed, as arrays: onnxruntime takes lists of numbers and its own values as well."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bslite.errors import InputError
from bslite.onnxruntime.binding import OrtValue
from bslite.onnxruntime.metadata import NodeArg, dtype_of
from bslite.spec import Array


def arrays(declared: Sequence[NodeArg], feed: Mapping[str, Any]) -> dict[str, Any]:
    """``feed`` with an array for each list, but for sequences, and `OrtValue`; what is wrong with the rest,
    the model says.
    """
    by_name = {arg.name: arg for arg in declared}
    return {name: _array(by_name[name], x) if name in by_name else x for name, x in feed.items()}


def _array(arg: NodeArg, value: Any) -> Any:
    if isinstance(value, OrtValue):
        return value.numpy()
    if not isinstance(value, list) or not arg.type.startswith("tensor("):
        return value
    return of_list(arg, value)


def of_list(arg: NodeArg, value: list[Any]) -> Array:
    """Nested lists of numbers in the input's dtype. InputError for numbers that it does not hold."""
    try:
        dtype = dtype_of(arg.type)
        given = np.array(value)
        made = given.astype(dtype, casting="same_kind") if given.size else given.astype(dtype)
    except (TypeError, ValueError, OverflowError) as e:
        raise InputError(f"input {arg.name!r}: a list that is no {arg.type} ({e})") from None
    if made.dtype.kind in "iu" and not np.array_equal(made, given):
        raise InputError(f"input {arg.name!r}: numbers of the list do not fit {dtype}")
    return made
