"""How the work on images is cut into items."""

from bslite.kernels.contracts.record import Record


class Shares(Record):
    """Images x ``bands`` of ``band_lines`` lines x ``blocks`` of ``block_registers`` channel registers."""

    band_lines: int
    bands: int
    blocks: int
    block_registers: int
