"""Results that a step stores as cells of two bfloat16: part of the records of several steps."""

from bslite.kernels.contracts.record import Operand, Record


class Cells(Record):
    """Where a step also stores its results rounded to bfloat16, two channels to a cell, if ``has_cells``.

    Strides are in bytes. With ``cells_only`` nobody reads the float32 results: they have a place in scratch
    memory, as long as it takes to round them. With ``cells_by_tile``, register tiles are rounded before they
    are stored, else a line after that. ``flag`` is raised by results without a finite bfloat16: NaN,
    infinities, magnitudes from 3.396e38 on.
    """

    cells: Operand
    flag: Operand
    has_cells: int = 0
    cells_only: int = 0
    cells_by_tile: int = 0
    cells_image: int = 0
    cells_plane: int = 0
    cells_line: int = 0
    cells_col: int = 0

    @classmethod
    def none(cls, anywhere: Operand) -> "Cells":
        """Float32 results alone; ``anywhere``: any operand of the step."""
        return cls(anywhere, anywhere)

    @property
    def said(self) -> str:
        """The same in words; empty for float32 results alone."""
        if not self.has_cells:
            return ""
        return f"stores its results rounded to bfloat16{'' if self.cells_only else ', too'}"
