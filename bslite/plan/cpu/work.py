"""The price of a layer's arithmetic, by the rate of the unit that computes it."""

import dataclasses
from collections.abc import Mapping

from bslite.arithmetic import Precision
from bslite.kernels.contracts.cpu.tiles import PARTS
from bslite.machine import TILE_FLOPS, Machine
from bslite.ops import Kind, Shape
from bslite.spec import Node

#: What the lowerings put on tiles, where both sides of a matrix are at least ``LEAST``.
ON_TILES = {f"conv{way}{n}d" for way in ("", "_transpose") for n in (1, 2, 3)} | {
    "linear", "matmul", "attention",
}  # fmt: skip
LEAST = 16
#: Share of the unit's rate that a layer reaches while its operands stay in L2, by a probe outside the engine.
REACHED = 0.8


def at_precision(machine: Machine, precision: Precision) -> Machine:
    """The machine as a plan of this precision sees it: with instructions for bfloat16 only where they may be
    used. A unit for tiles goes before dot products, of which only a single one for each product is faster.
    """
    products = precision.products
    return dataclasses.replace(
        machine,
        tile_cycles=machine.tile_cycles if products else 0.0,
        tile_products=products or machine.tile_products,
        dot_cycles=machine.dot_cycles if products == 1 and not machine.tile_cycles else 0.0,
    )


def rounds(machine: Machine, precision: Precision) -> bool:
    """Whether a plan of this precision may round numbers, or split them into parts."""
    seen = at_precision(machine, precision)
    return bool(seen.tile_cycles or seen.dot_cycles)


def arithmetic_cycles(flops: float, node: Node, params: Mapping[str, Shape], machine: Machine) -> float:
    """Cycles of one core for the ``flops`` of a node: by vector multiply-adds, or by products of bfloat16 if
    those are faster. What sums no products takes a cycle for an operation: its element has to be loaded.
    """
    if node.declaration.kind is not Kind.CONTRACTION:
        return flops / machine.lanes
    cycles = flops / (2.0 * machine.lanes * machine.fma_ports)
    if machine.dot_cycles and "weight" in params and _on_tiles(node, params):
        return cycles * machine.dot_cycles / 2
    if not parts_of(node, params, machine):
        return cycles
    products = flops / TILE_FLOPS * machine.tile_products
    return min(cycles, products * machine.tile_cycles / REACHED)


def parts_of(node: Node, params: Mapping[str, Shape], machine: Machine) -> int:
    """The parts of bfloat16 that tiles take of a node's numbers; 0 of one that is not on tiles."""
    return PARTS[machine.tile_products] if machine.tile_cycles and _on_tiles(node, params) else 0


def _on_tiles(node: Node, params: Mapping[str, Shape]) -> bool:
    narrow = min(params["weight"][:2]) < LEAST if "weight" in params else False
    return node.declaration.plain in ON_TILES and not narrow
