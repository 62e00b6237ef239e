"""Weights that are values, split into parts of bfloat16 and packed into tiles by a step of their own."""

from bslite.kernels.contracts.cpu.tiles import TERMS, TILE, SplitPanels
from bslite.kernels.contracts.record import Operand
from bslite.passes import Layer
from bslite.plan.core.views import View
from bslite.plan.cpu.flags import inexact_flag
from bslite.plan.cpu.outside import once
from bslite.plan.cpu.packing import Matrices
from bslite.plan.cpu.sharing import item_count
from bslite.plan.cpu.split import PANEL, Packed, Weights
from bslite.plan.cpu.step import CpuBuilder, step


def computed(b: CpuBuilder, layer: Layer, m: Matrices, image: int = 0, first: int = 0) -> Weights:
    """Weights that a step packs, the first time they are asked for; what all images of a stack share, before
    them. Those of an image begin ``image`` matrices after those of the one before, ``first`` matrices on.
    """
    made: dict[int, View] = {}

    def weights(parts: int) -> Packed:
        def packed(b: CpuBuilder, memory: View) -> View:
            at = memory.offset + m.at - m.memory.offset
            return _pack(b, layer, m._replace(memory=memory, at=at), parts)

        if parts not in made:
            made[parts] = once(b, m.memory, packed)
        view = made[parts]
        size = view.shape[-1]
        return Operand(view.buffer, view.offset + first * size), image * size, [view]

    return Weights(weights)


def _pack(b: CpuBuilder, layer: Layer, m: Matrices, parts: int) -> View:
    n0, n1, n2 = m.sizes
    count, panels = n0 * n1 * n2, -(-m.cols // PANEL)
    size = panels * len(m.taps) * -(-m.rows // TERMS) * parts * 2 * TILE // 4
    packed = b.dense((count, size))
    blocks = min(panels, -(-item_count(b.machine, count * m.rows * len(m.taps) * m.cols) // count))
    block_panels = -(-panels // blocks)
    blocks = -(-panels // block_panels)
    x0, x1, x2 = m.runs
    places = b.const("offsets", values=[4 * t for t in m.taps])
    record = SplitPanels(
        Operand(m.memory.buffer, m.at), packed.start, Operand(places, 0),
        inexact_flag(b, layer), (4 * x0, 4 * x1, 4 * x2), n1=n1, n2=n2, x_row=4 * m.row, x_col=4 * m.col,
        taps=len(m.taps), rows=m.rows, cols=m.cols, matrix_bytes=4 * size, parts=parts, panels=panels,
        block_panels=block_panels, blocks=blocks,
    )  # fmt: skip
    step(b, record, count * blocks, [m.memory], [packed])
    return packed
