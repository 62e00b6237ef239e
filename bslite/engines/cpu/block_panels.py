"""Weights of a few bits as panels: each block's scales, and its numbers in cells of one column."""

from collections.abc import Sequence

import numpy as np

from bslite.engines.common.recipes import Array, recipe
from bslite.kernels.contracts.cpu.blocks import CELL


@recipe("block_panels")
def _block_panels(
    params: Sequence[Array], lanes: int, width: int, bits: int, block: int, terms: int
) -> Array:
    """``weight [K, blocks, bytes]``, ``scale`` and maybe ``zero [K, blocks]`` as cells
    ``[K/nr][blocks][row][nr]``, ``nr = width * lanes``, the rows being scales, zeros and numbers; see
    `contracts.cpu.blocks`. A block of the model is one or more here. The last panel has only as many
    registers as it needs.
    """
    weight, *each = params
    k, held = len(weight), CELL // bits
    count, own = -(-terms // block), weight.shape[2] * 8 // bits
    # Bytes follow one another as in a cell: the first numbers are the lowest, and cells are of whole bytes.
    cells = np.ascontiguousarray(weight).reshape(k, -1).view("<u4").reshape(k, -1, block // held)[:, :count]
    by_block = [np.repeat(a, own // block, 1)[:, :count, None].view(np.uint32) for a in each]
    rows = np.concatenate([*by_block, cells], axis=2)
    panels = []
    for first in range(0, k, width * lanes):
        some = rows[first : first + width * lanes]
        some = np.pad(some, ((0, -len(some) % lanes), (0, 0), (0, 0)))
        panels.append(some.transpose(1, 2, 0).reshape(-1))
    return np.concatenate(panels)
