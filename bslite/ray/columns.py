"""Columns of Ray Data's batches as the inputs of a model, and its outputs as columns."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bslite.compiled.outputs import Outputs
from bslite.errors import InputError
from bslite.spec import Array
from bslite.spec.ports import Port


def taken(ports: Sequence[Port], renamed: Mapping[str, str] | None) -> dict[str, str]:
    """Input -> column. InputError if a name is none of the model's inputs."""
    return {port.name: port.name for port in ports} | _known("inputs", [p.name for p in ports], renamed or {})


def given(ports: Sequence[Port], renamed: Mapping[str, str] | None) -> dict[str, str]:
    """Output -> column: all outputs by their own names, or those that are named."""
    names = [port.name for port in ports]
    found = _known("outputs", names, renamed) if renamed else dict(zip(names, names, strict=True))
    if twice := {column for column in found.values() if list(found.values()).count(column) > 1}:
        raise InputError(f"outputs: the column {sorted(twice)[0]!r} is named for several outputs")
    return found


def _known(what: str, names: Sequence[str], renamed: Mapping[str, str]) -> dict[str, str]:
    if unknown := [name for name in renamed if name not in names]:
        raise InputError(
            f"{what}: the model has no {what[:-1]} {unknown[0]!r}; it has {', '.join(map(repr, names))}. "
            f"Expected {{name of the model's {what[:-1]}: name of the column}}"
        )
    return dict(renamed)


def column(batch: Mapping[str, Any], port: Port, name: str) -> Any:
    """The rows for an input: an array of them, or, where their shapes differ, a list of arrays.

    InputError that names the column if it is missing, empty in places, or of another dtype or rank.
    """
    if name not in batch:
        raise InputError(
            f"there is no column {name!r} for input {port}; there are {', '.join(map(repr, batch))}: say "
            f"which it is by inputs={{{port.name!r}: COLUMN}}"
        )
    found, what = batch[name], f"column {name!r}, for input {port},"
    if not isinstance(found, np.ndarray):
        raise InputError(f"{what} is a {type(found).__name__}; expected a NumPy array (batch_format='numpy')")
    if found.dtype != object or port.dtype == "string":
        return _checked(found, port, what)
    for i, row in enumerate(found):
        if not isinstance(row, np.ndarray):
            raise InputError(f"{what} has a {type(row).__name__} in row {i} of this batch; expected an array")
    return [_checked(row[None], port, what) for row in found]


def _checked(x: Array, port: Port, what: str) -> Array:
    if port.dtype != "string" and x.dtype != np.dtype(port.dtype):
        raise InputError(f"{what} is {x.dtype}; bslite does not cast")
    if port.shape is not None and x.ndim != len(port.shape):
        raise InputError(f"{what} has rows of shape {list(x.shape[1:])}")
    return x


def joined(made: Sequence[Outputs], name: str) -> Array:
    """One output's rows as a column: an array, or, where their shapes differ, an array of arrays."""
    rows = [one[name] for one in made]
    if len({y.shape[1:] for y in rows}) == 1:
        return rows[0] if len(rows) == 1 else np.concatenate(rows)
    each = [y for several in rows for y in several]
    column = np.empty(len(each), object)
    for i, y in enumerate(each):  # all at once NumPy would look for one shape
        column[i] = y
    return column


def nothing(port: Port) -> Array:
    """The column of an output for no rows; sizes that are not known are 0."""
    sizes = tuple(n if isinstance(n, int) else 0 for n in (port.shape or ())[1:])
    return np.empty((0, *sizes), object if port.dtype == "string" else port.dtype)
