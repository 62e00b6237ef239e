"""Records: what a step tells its kernel, as dataclasses that planner, encoder and kernels import.

A record is a frozen dataclass. Its fields are operands (where a tensor begins), numbers, enumerations,
choices of a compiled kernel, tuples of a fixed number of these, or records that several kinds of steps share.
The planner fills a record, the engine encodes it, and the kernel reads it by the names of its cells, so a
name is spelled in one place.

`cells` gives the flat list: ``x: Operand`` is two cells, ``x`` (which buffer) and ``x_at`` (bytes into it);
``n: tuple[int, int]`` is ``n0 n1``; a nested record is replaced by its own cells.
"""

import functools
import operator
import typing
from collections.abc import Iterator
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, ClassVar, NamedTuple


class Operand(NamedTuple):
    """Where a tensor begins: a buffer or a constant of the plan, and the first element in it."""

    buffer: str
    at: int


class Frozen:
    """Base of all that planner and kernel agree on: each subclass is a frozen dataclass."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True)(cls)


class Variant(Frozen):
    """One compiled kernel of a family, which a step calls; the fields identify it."""


class Record(Frozen):
    """Base of all records; see the module's docstring."""

    def operands(self) -> dict[str, Operand]:
        """Where the kernel's tensors begin, by name."""
        return {p.name: Operand(*value) for p, value in _parts(self) if is_operand(p.type)}

    def numbers(self) -> dict[str, Any]:
        """All other fields by name: numbers of the declared type (an enumeration's value), variants, None.

        Raises TypeError for a float where a whole number is declared.
        """
        return {p.name: _typed(self, p, value) for p, value in _parts(self) if not is_operand(p.type)}


class Parameter(NamedTuple):
    """A field of a flat record: its name, its declared type (`Operand`, int, float, ...)."""

    name: str
    type: Any


@functools.cache
def parameters(record: type[Record]) -> tuple[Parameter, ...]:
    """The fields of a record in order, with tuples and nested records flattened."""
    hints = typing.get_type_hints(record, include_extras=True)
    found: list[Parameter] = []
    for field in fields(record):
        hint = hints[field.name]
        if isinstance(hint, type) and issubclass(hint, Record):
            found += parameters(hint)
        elif typing.get_origin(hint) is tuple:
            found += [Parameter(f"{field.name}{i}", t) for i, t in enumerate(typing.get_args(hint))]
        else:
            found.append(Parameter(field.name, hint))
    names = [p.name for p in found]
    if len(set(names)) != len(names):
        twice = sorted({n for n in names if names.count(n) > 1})
        raise TypeError(f"{record.__name__}: {', '.join(twice)} named twice")
    return tuple(found)


def _typed(record: Record, parameter: Parameter, value: Any) -> Any:
    """A number converted to the type that its field declares."""
    value = value.value if isinstance(value, Enum) else value
    hint = parameter.type
    hint = typing.get_args(hint)[0] if typing.get_origin(hint) is typing.Annotated else hint
    if hint is float:
        return float(value)
    if hint is not int:
        return value
    try:
        return operator.index(value)
    except TypeError:
        kind = type(record).__name__
        raise TypeError(f"{kind}: {parameter.name} is {value!r}, expected a whole number") from None


def _parts(record: Record) -> Iterator[tuple[Parameter, Any]]:
    return zip(parameters(type(record)), _values(record), strict=True)


def _values(record: Record) -> Iterator[Any]:
    """The values of the `parameters`, in the same order."""
    for field in fields(record):
        value = getattr(record, field.name)
        if isinstance(value, Record):
            yield from _values(value)
        elif isinstance(value, tuple) and not _one(record, field.name):
            yield from value
        else:
            yield value


@functools.cache
def _single(record: type[Record]) -> frozenset[str]:
    return frozenset(p.name for p in parameters(record))


def _one(record: Record, name: str) -> bool:
    """Whether the field is one parameter, and not a tuple or a record of several."""
    return name in _single(type(record))


def is_operand(hint: Any) -> bool:
    """Whether this declared type is an operand: `Operand`, or an annotated one that gives the type of its
    cells.
    """
    return hint is Operand or (
        typing.get_origin(hint) is typing.Annotated and typing.get_args(hint)[0] is Operand
    )


@functools.cache
def cells(record: type[Record]) -> tuple[str, ...]:
    """Names of a record's cells, in order; an operand has two."""
    names: list[str] = []
    for name, hint in parameters(record):
        names += [name, f"{name}_at"] if is_operand(hint) else [name]
    return tuple(names)


class StepRecord(Record):
    """Base of the records of CPU steps; ``class Copy(StepRecord, kernel="copy")`` names the kernel."""

    kernel: ClassVar[str]

    def __init_subclass__(cls, kernel: str | None = None) -> None:
        super().__init_subclass__()
        if kernel is not None:
            cls.kernel = kernel

    @property
    def tile(self) -> str:
        """The register tile as ``rows x vector registers``, where the kernel has one."""
        return ""
