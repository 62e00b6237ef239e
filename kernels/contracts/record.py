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
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, ClassVar, NamedTuple

Two = tuple[int, int]
Three = tuple[int, int, int]
Four = tuple[int, int, int, int]
Five = tuple[int, int, int, int, int]
Six = tuple[int, int, int, int, int, int]


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
        layout = _layout(type(self))
        given = zip(layout.names, layout.kinds, self.arguments(), strict=True)
        return {name: value for name, kind, value in given if kind is Operand}

    def numbers(self) -> dict[str, Any]:
        """All other fields by name: numbers of the declared type (an enumeration's value), variants, None.

        Raises TypeError for a float where a whole number is declared.
        """
        layout = _layout(type(self))
        given = zip(layout.names, layout.kinds, self.arguments(), strict=True)
        return {name: value for name, kind, value in given if kind is not Operand}

    def arguments(self) -> list[Any]:
        """The values of the `parameters` in order: of `operands` and `numbers`."""
        layout = _layout(type(self))
        return [
            value if type(value) is kind else _typed(self, name, kind, value)
            for name, kind, value in zip(layout.names, layout.kinds, layout.values(self), strict=True)
        ]

    def variants(self) -> list["Variant"]:
        """The compiled kernels of families that the step calls."""
        return [value for value in _layout(type(self)).values(self) if isinstance(value, Variant)]


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


def _typed(record: Record, name: str, kind: Any, value: Any) -> Any:
    """A value converted to the type ``kind`` that its field declares."""
    value = value.value if isinstance(value, Enum) else value
    if kind is Operand:
        return Operand(*value)
    if kind is float:
        return float(value)
    if kind is not int:
        return value
    try:
        return operator.index(value)
    except TypeError:
        what = type(record).__name__
        raise TypeError(f"{what}: {name} is {value!r}, expected a whole number") from None


class Layout(NamedTuple):
    """How a record is read: names and types of its parameters, and its fields with those of nested records.

    ``kinds``: `Operand`, int, float or another declared type. ``spread``: whether each field is a tuple
    of several parameters.
    """

    names: tuple[str, ...]
    kinds: tuple[Any, ...]
    fields: Callable[[Any], Any]
    spread: tuple[bool, ...]

    def values(self, record: Record) -> list[Any]:
        """The values of the `parameters`, in the same order."""
        read = self.fields(record)
        if len(self.spread) == 1:
            read = (read,)
        if True not in self.spread:
            return list(read)
        found: list[Any] = []
        for value, spread in zip(read, self.spread, strict=True):
            if spread:
                found += value
            else:
                found.append(value)
        return found


@functools.cache
def _layout(record: type[Record]) -> Layout:
    kinds = [Operand if is_operand(p.type) else _plain(p.type) for p in parameters(record)]
    places = list(_places(record))
    return Layout(
        tuple(p.name for p in parameters(record)),
        tuple(kinds),
        operator.attrgetter(*(place for place, _ in places)) if places else lambda record: (),
        tuple(spread for _, spread in places),
    )


def _plain(hint: Any) -> Any:
    """A declared type without what is noted of it."""
    return typing.get_args(hint)[0] if typing.get_origin(hint) is typing.Annotated else hint


def _places(record: type[Record], before: str = "") -> Iterator[tuple[str, bool]]:
    """The fields of a record and of those nested in it, and whether each is a tuple of parameters."""
    hints = typing.get_type_hints(record, include_extras=True)
    for field in fields(record):
        hint = hints[field.name]
        if isinstance(hint, type) and issubclass(hint, Record):
            yield from _places(hint, f"{before}{field.name}.")
        else:
            yield before + field.name, typing.get_origin(hint) is tuple


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

    @property
    def of_parts(self) -> int:
        """Products of bfloat16 in the place of each float32 product; 0 for multiply-adds."""
        return 0

    @property
    def arithmetic(self) -> str:
        """The same in words; empty for multiply-adds."""
        if not self.of_parts:
            return ""
        return f"{self.of_parts} product{'s' * (self.of_parts > 1)} of bfloat16 for each of float32"

    @property
    def beside(self) -> str:
        """What the step makes beside its results, in words; empty for nothing."""
        return ""
