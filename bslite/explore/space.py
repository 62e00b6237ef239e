"""A design space: named axes, the points they span, and what a point must keep to.

All of it is plain data that can be printed. A machine's space comes from the function
``space(problem, machine)`` of its module (`bslite.explore.gpu`, ...); `bslite.explore.search` walks it.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from bslite.errors import EngineError

Value = int | str


@dataclass(frozen=True)
class Axis:
    """One parameter: its name, what it means, and its values, the one to prefer among equals first."""

    name: str
    meaning: str
    values: tuple[Value, ...]

    def __post_init__(self) -> None:
        if not self.values or len(set(self.values)) != len(self.values):
            raise EngineError(
                f"axis {self.name!r}: values must differ and be at least one, got {self.values}"
            )

    def refuses(self, value: object) -> str | None:
        """What a value must be, if this one is not: a listed word, or a number not below the least listed."""
        numbers = [listed for listed in self.values if isinstance(listed, int)]
        if len(numbers) < len(self.values):
            return None if value in self.values else f"one of {self}"
        fits = isinstance(value, int) and not isinstance(value, bool) and value >= min(numbers)
        return None if fits else f"a whole number from {min(numbers)} up"

    def __str__(self) -> str:
        numbers = [value for value in self.values if isinstance(value, int)]
        if len(numbers) > 2 and self.values == tuple(range(numbers[0], numbers[-1] + 1)):
            return f"{numbers[0]}..{numbers[-1]}"
        return " ".join(map(str, self.values))


@dataclass(frozen=True)
class Point:
    """One choice of a value for every axis: ``point["units"]``."""

    values: tuple[tuple[str, Value], ...]

    def __getitem__(self, name: str) -> Value:
        for axis, value in self.values:
            if axis == name:
                return value
        raise EngineError(f"point ({self}) has no axis {name!r}")

    def number(self, name: str) -> int:
        """The value of an axis of whole numbers."""
        value = self[name]
        if not isinstance(value, int):
            raise EngineError(f"axis {name!r} of point ({self}) is {value!r}, not a whole number")
        return value

    def as_dict(self) -> dict[str, Value]:
        """For JSON."""
        return dict(self.values)

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.values)


@dataclass(frozen=True)
class Constraint:
    """What every point of a space keeps to. ``broken`` says of a point why it does not, or None."""

    meaning: str
    broken: Callable[[Point], str | None]


@dataclass(frozen=True)
class Space:
    """The points of all axes that keep all constraints."""

    name: str
    axes: tuple[Axis, ...]
    constraints: tuple[Constraint, ...] = ()

    def __len__(self) -> int:
        """The number of points of the axes, whether or not they keep the constraints."""
        return math.prod(len(axis.values) for axis in self.axes)

    def candidates(self) -> Iterator[Point]:
        """All points; the last axis changes fastest."""
        names = [axis.name for axis in self.axes]
        for values in itertools.product(*(axis.values for axis in self.axes)):
            yield Point(tuple(zip(names, values, strict=True)))

    def points(self) -> Iterator[Point]:
        """The points that keep the constraints, in the same order."""
        return (point for point in self.candidates() if self.violation(point) is None)

    def broken(self, point: Point) -> Constraint | None:
        """The first constraint that the point does not keep."""
        return next((c for c in self.constraints if c.broken(point) is not None), None)

    def violation(self, point: Point) -> str | None:
        """Why the point does not fit, or None."""
        broken = self.broken(point)
        return None if broken is None else f"{broken.meaning}: {broken.broken(point)}"

    def point(self, values: Mapping[str, Value]) -> Point:
        """The point with these values, which need not be among those the axes list.

        Raises EngineError naming a missing or unknown axis, or the constraint that does not hold.
        """
        names = [axis.name for axis in self.axes]
        if missing := [name for name in names if name not in values]:
            raise EngineError(f"{self.name}: no value given for {', '.join(missing)}")
        if unknown := sorted(set(values) - set(names)):
            raise EngineError(
                f"{self.name}: unknown {', '.join(map(repr, unknown))}; its axes: {', '.join(names)}"
            )
        for axis in self.axes:
            if (expected := axis.refuses(values[axis.name])) is not None:
                raise EngineError(f"{self.name}: {axis.name} is {values[axis.name]!r}, expected {expected}")
        point = Point(tuple((name, values[name]) for name in names))
        if (why := self.violation(point)) is not None:
            raise EngineError(f"{self.name}: {point} does not fit. {why}")
        return point

    def __str__(self) -> str:
        width = max(len(axis.name) for axis in self.axes)
        lines = [f"{self.name}: {len(self)} points"]
        lines += [f"  {axis.name:<{width}}  {axis}  ({axis.meaning})" for axis in self.axes]
        lines += [f"  - {constraint.meaning}" for constraint in self.constraints]
        return "\n".join(lines)
