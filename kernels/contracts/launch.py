"""Records of launches: what the planner tells a GPU kernel.

A launch record's fields are the kernel's parameters: operands with the type of their cells (`F4`, `I4`), then
numbers (int is 32 bits, `I8` 64, float 32, `F8` 64). The constants compiled into a kernel are its *variant*,
a dataclass whose fields are the arguments of the function that makes the kernel.
"""

import typing
from dataclasses import fields
from enum import Enum
from typing import Annotated, Any, ClassVar

from bslite.kernels.contracts.record import Frozen, Operand, Record, is_operand, parameters

F4 = Annotated[Operand, "f4"]  # float32 cells
I4 = Annotated[Operand, "i4"]  # int32 cells
F8 = Annotated[Operand, "f8"]  # float64 cells
PAIRS = F8  # float32, two at a time
I8 = Annotated[int, "i8"]
R8 = Annotated[float, "f8"]


class LaunchRecord(Record):
    """Base of the records of launches. ``kernel`` is the name under which the kernel is registered.

    ``pairs``: the arrays whose cells are pairs of floats in this kernel, whatever their field says. Both are
    arguments of the class: ``class Trilu(LaunchRecord, kernel="trilu")``.
    """

    kernel: ClassVar[str]
    pairs: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, kernel: str = "", pairs: tuple[str, ...] = ()) -> None:
        super().__init_subclass__()
        if kernel:
            cls.kernel, cls.pairs = kernel, pairs


class LaunchVariant(Frozen):
    """Base of a kernel's compile-time constants: ints, enumerations, names, and tuples of these."""

    def constants(self) -> dict[str, Any]:
        """The arguments of the function that makes the kernel; an enumeration is given by its value."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value.value if isinstance(value, Enum) else value for name, value in given.items()}


class Threads(LaunchVariant):
    """The threads of a block."""

    threads: int


def kinds(record: type[LaunchRecord]) -> tuple[dict[str, str], dict[str, str]]:
    """The types of a kernel's arrays and of its numbers, by name: "f4", "i4", "f8", "i8"."""
    arrays, numbers = {}, {}
    for name, hint in parameters(record):
        if is_operand(hint):
            arrays[name] = "f8" if name in record.pairs else typing.get_args(hint)[1]
        else:
            numbers[name] = _number_kind(hint)
    return arrays, numbers


def _number_kind(hint: Any) -> str:
    if typing.get_origin(hint) is Annotated:
        return str(typing.get_args(hint)[1])
    return "f4" if hint is float else "i4"
