"""The choice among the compiled microkernels that steps call along a line of output."""

from enum import IntEnum

from bslite.kernels.contracts.record import Variant


class Narrow(IntEnum):
    """The 16 bits that all numbers of some weights fit, and in which these may lie in memory: each is widened
    as it is read, so the products are those of float32. NO: they lie as float32.
    """

    NO = 0
    BFLOAT16 = 1
    FLOAT16 = 2

    @property
    def bytes(self) -> int:
        """Of a weight."""
        return 2 if self else 4

    @property
    def said(self) -> str:
        """The same in words; empty for float32."""
        return f"weights lie in {self.name.lower()}" if self else ""

    @property
    def parts(self) -> int:
        """Numbers of bfloat16 whose sum a weight is: of the 11 bits of float16, 8 and then the rest."""
        return {Narrow.NO: 3, Narrow.BFLOAT16: 1, Narrow.FLOAT16: 2}[self]


class GemmSweep(Variant):
    """GEMM tiles of at most ``most`` rows by ``vecs`` vector registers.

    With ``dots``, factors are cells of two bfloat16, and their dot products are added up. Results may be
    stored as cells, too.

    With ``across``, lanes run along the sum, for layers of ``vecs`` outputs alone.

    ``narrow``: how the weights lie in memory.

    With ``fetches``, a tile prefetches the panel that a later tile reads while it computes, or its own, where
    few tiles read one. Without it, the hardware prefetches, which is enough where weights lie in L2.
    """

    vecs: int
    most: int
    fetches: bool = True
    dots: bool = False
    across: bool = False
    narrow: Narrow = Narrow.NO


class Widen(Variant):
    """Writes registers of weights that lie in memory as ``narrow`` as float32."""

    narrow: Narrow


LONGEST_PIECE = 8  # taps of a filter row whose weights stay in registers at once


def pieces(taps: int) -> list[tuple[int, int]]:
    """A filter row as pieces of neighbouring taps, of two lengths at most: (pieces, taps of each)."""
    count = -(-taps // LONGEST_PIECE)
    shorter, longer = divmod(taps, count)
    return [(n, each) for n, each in ((longer, shorter + 1), (count - longer, shorter)) if n]


class DepthwiseSweep(Variant):
    """Depthwise tiles of at most ``most`` rows, for filters ``taps`` wide with ``stride``, whose rows are
    taken in `pieces`; both 0: for any filter.

    ``deep``: for filters of several planes. With ``cells``, results are stored as cells of two bfloat16.
    ``grouped``: for groups of a few channels, of which a register holds several.
    """

    taps: int
    stride: int
    most: int
    deep: bool = False
    cells: bool = False
    grouped: bool = False


class UnpackedSweep(Variant):
    """Tiles of running sums, at most ``most`` rows by ``vecs`` vector registers."""

    vecs: int
    most: int


class PlaneSweep(Variant):
    """Tiles of at most ``most`` outputs by ``vecs`` registers of neighbouring pixels. With ``lines``, of
    neighbouring lines of one output. With ``bias_first``, sums begin with the bias.
    """

    vecs: int
    most: int
    bias_first: bool
    lines: bool
