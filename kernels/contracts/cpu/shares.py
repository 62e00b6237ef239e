"""How the work on images is cut into items."""

from bslite.kernels.contracts.record import Record


class Shares(Record):
    """Images x ``bands`` of ``band_lines`` lines x ``blocks`` of ``block_registers`` channel registers."""

    band_lines: int
    bands: int
    blocks: int
    block_registers: int


class PlaneShares(Record):
    """``bands`` of lines x groups of ``item_planes`` of the ``planes``, which are images times channels."""

    planes: int
    item_planes: int
    band_lines: int
    bands: int
