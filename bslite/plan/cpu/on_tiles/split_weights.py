"""Weights that are values, split into parts of bfloat16 and packed into tiles by a step of their own."""

from bslite.kernels.contracts.cpu.tiles import TERMS, TILE, SplitPanels
from bslite.passes import Layer
from bslite.plan.core.views import View
from bslite.plan.cpu.on_tiles.split import PANEL, SPLIT, Packed, Weights
from bslite.plan.cpu.outside import inexact_flag, once
from bslite.plan.cpu.packing import Matrices, packed_matrices
from bslite.plan.cpu.step import CpuBuilder, step


def computed(b: CpuBuilder, layer: Layer, m: Matrices) -> Weights:
    """Weights that a step packs, the first time they are asked for; what all images of a stack share, before
    them.
    """
    made: dict[int, View] = {}

    def weights(parts: int, _: int) -> Packed:
        def packed(b: CpuBuilder, memory: View) -> View:
            at = memory.offset + m.at - m.memory.offset
            return _pack(b, layer, m._replace(memory=memory, at=at), parts)

        if parts not in made:
            made[parts] = once(b, m.memory, packed)
        return made[parts].start, 0, [made[parts]]

    return Weights(weights)


def _pack(b: CpuBuilder, layer: Layer, m: Matrices, parts: int) -> View:
    panels = -(-m.cols // PANEL)
    size = panels * len(m.taps) * -(-m.rows // TERMS) * parts * 2 * TILE // 4
    matrices, packed, items = packed_matrices(b, m, size, panels, SPLIT[b.machine.tile_products])
    step(b, SplitPanels(matrices, inexact_flag(b, layer), parts), items, [m.memory], [packed])
    return packed
