"""The price of a layer's arithmetic, by the rate of the unit that computes it."""

import dataclasses
from collections.abc import Mapping

from bslite.arithmetic import Precision
from bslite.machine import TILE_FLOPS, Machine
from bslite.ops import Shape
from bslite.spec import Node

#: What the lowerings put on tiles, where both sides of a matrix are at least ``LEAST``.
ON_TILES = {f"conv{way}{n}d" for way in ("", "_transpose") for n in (1, 2, 3)} | {
    "linear", "matmul", "attention",
}  # fmt: skip
LEAST = 16
#: Share of the unit's rate that a layer reaches while its operands stay in L2, by a probe outside the engine.
REACHED = 0.8


def at_precision(machine: Machine, precision: Precision) -> Machine:
    """The machine as a plan of this precision sees it: with a unit for tiles only where it may be used."""
    if not precision.products:
        return dataclasses.replace(machine, tile_cycles=0.0)
    return dataclasses.replace(machine, tile_products=precision.products)


def arithmetic_cycles(flops: float, node: Node, params: Mapping[str, Shape], machine: Machine) -> float:
    """Cycles of one core for the ``flops`` of a node: by vector multiply-adds, or on tiles if that is
    faster.
    """
    cycles = flops / (2.0 * machine.lanes * machine.fma_ports)
    narrow = min(params["weight"][:2]) < LEAST if "weight" in params else False
    if not machine.tile_cycles or node.declaration.plain not in ON_TILES or narrow:
        return cycles
    products = flops / TILE_FLOPS * machine.tile_products
    return min(cycles, products * machine.tile_cycles / REACHED)
