"""The machine a plan is made for: plain numbers, detected by an engine, measured, or written by hand."""

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeVar, get_type_hints

from bslite.errors import EngineError

LEVELS = ("l1", "l2", "l3", "memory")
TILE_FLOPS = 2.0 * 16 * 32 * 16  # of one product of tiles
T = TypeVar("T")


@dataclass(frozen=True)
class Rates:
    """Measured rates of ``threads`` cores at once, per second, all of them together."""

    threads: int
    clock: float  # cycles of one core
    flops: float  # float32 operations out of registers; a multiply-add is two
    l1_read: float  # bytes read from what fits each level,
    l2_read: float
    l3_read: float
    memory_read: float
    l1_copy: float  # and bytes read plus bytes written, where both fit it
    l2_copy: float
    l3_copy: float
    memory_copy: float
    #: Products of tiles, 16 x 32 by 32 x 16 bfloat16; 0 where there is no unit for them.
    tiles: float = dataclasses.field(default=0.0, metadata={"zero": True})

    dots: float = dataclasses.field(
        default=0.0, metadata={"zero": True}
    )  # FLOP/s of dot products of bfloat16

    @property
    def tile_flops(self) -> float:
        """FLOP/s of products of bfloat16 tiles; 0 where there is no unit for them."""
        return TILE_FLOPS * self.tiles

    def read(self, level: str) -> float:
        """Bytes/s read from one of `LEVELS`."""
        return float(getattr(self, f"{level}_read"))

    def copy(self, level: str) -> float:
        """Bytes/s read plus bytes/s written within one of `LEVELS`."""
        return float(getattr(self, f"{level}_copy"))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Rates":
        """The rates from plain data, all of them given. Raises EngineError naming what is wrong."""
        return checked(cls, data, "rates")


@dataclass(frozen=True)
class Machine:
    """The numbers that tuning decisions consult. Sizes are in bytes, per core where a cache is private."""

    threads: int = 1
    lanes: int = 16  # float32 per vector register
    registers: int = 32  # vector registers
    l1: int = 32 << 10
    l2: int = 1 << 20
    l3: int = 32 << 20  # shared
    fma_ports: int = 2  # vector multiply-adds, and vector loads, per cycle
    fma_latency: int = 4  # cycles
    l2_bytes_per_cycle: float = 32.0  # what one core streams from its L2,
    l3_bytes_per_cycle: float = 10.0  # from L3,
    memory_bytes_per_cycle: float = 4.0  # and from memory
    #: Cycles of a product of tiles, 16 x 32 by 32 x 16 bfloat16; 0 where there is no unit for them.
    tile_cycles: float = dataclasses.field(default=0.0, metadata={"zero": True})
    #: Multiply-adds in whose time a dot product of two bfloat16 in each lane is added; 0 where no instruction
    #: does it, or none that is worth it.
    dot_cycles: float = dataclasses.field(default=0.0, metadata={"zero": True})
    tile_products: int = 6  # products of tiles that make one of float32 numbers, by a plan's precision
    measured: Rates | None = None  # by a calibration, for as many threads

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def to_json(self) -> str:
        """The machine as text that `from_json` reads."""
        return json.dumps(self.as_dict(), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Machine":
        """A machine written by `to_json` or by hand; a number that is left out has the default above.

        Raises EngineError naming what is wrong: no JSON object, an unknown name, a value that is no positive
        number.
        """
        try:
            data = json.loads(text)
        except ValueError as e:
            raise EngineError(f"a machine is a JSON object: {e}") from None
        return checked(cls, data, "machine")


def checked(cls: type[T], data: Any, what: str) -> T:
    """``cls(**data)``, after a check of every name and number; for the description of any machine.

    Raises EngineError naming what is wrong. Numbers are positive; a field's metadata may allow "zero".
    """
    if not isinstance(data, Mapping):
        raise EngineError(f"a {what} description is a JSON object, got {type(data).__name__}")
    fields = {f.name: f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    if unknown := sorted(set(data) - set(fields)):
        raise EngineError(
            f"{what} description: unknown {', '.join(map(repr, unknown))}; known: {', '.join(fields)}"
        )
    required = [name for name, f in fields.items() if f.default is dataclasses.MISSING]
    if missing := [name for name in required if name not in data]:
        raise EngineError(f"{what} description: {', '.join(missing)} missing")
    given: dict[str, Any] = {}
    hints = get_type_hints(cls)
    for name, value in data.items():
        kind = hints[name]
        if kind == Rates | None:
            given[name] = None if value is None else Rates.from_dict(value)
            continue
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        zero = bool(fields[name].metadata.get("zero"))  # a cost that a machine may not have
        low = number and (value < 0 or (value == 0 and not zero))
        if not number or not math.isfinite(value) or low or (kind is int and value != int(value)):
            wanted = "whole number" if kind is int else "number"
            least = "no negative" if zero else "a positive"
            raise EngineError(f"{what} description: {name} must be {least} {wanted}, got {value!r}")
        given[name] = int(value) if kind is int else float(value)
    return cls(**given)
