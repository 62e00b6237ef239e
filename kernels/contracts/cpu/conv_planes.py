"""The record of convolutions over planes. Strides are in bytes."""

from bslite.kernels.contracts.cpu.epilogue import Epilogue
from bslite.kernels.contracts.cpu.gemm import Cut
from bslite.kernels.contracts.cpu.shares import PlaneShares
from bslite.kernels.contracts.cpu.sweep import PlaneSweep
from bslite.kernels.contracts.record import Operand, Record, StepRecord, Three


class Gathered(Record):
    """What an item copies of the input, with zeros where windows leave it: for each input channel and each of
    ``filter_planes`` of the window, ``phases`` times ``rows`` lines of ``pitch`` elements.

    The windows of output 0 begin at element ``first`` of planes, lines and columns, of which the input has
    ``size``; those of neighbouring outputs are ``stride`` apart; planes of a window ``apart``. A phase is an
    entry of two cells in ``table``: its lines and columns begin so many after those of the windows, and are
    ``stride`` apart, so that what neighbouring outputs multiply by one tap lies side by side. A filter
    reaches over ``more`` lines beside the first. ``ahead``: bytes from which on it prefetches, or 0.
    """

    table: Operand
    phases: int
    filter_planes: int
    rows: int
    more: int
    pitch: int
    first: Three
    size: Three
    stride: Three
    apart: int
    ahead: int


class ConvPlanes(StepRecord, kernel="conv_planes"):
    """Convolution whose planes are contiguous in x and y, with pixels in the lanes of registers; an item is
    some strips of some planes: of images times groups times ``depths``.

    A strip is ``strip_lines`` by ``strip_pixels`` of the ``lines`` by ``pixels`` of a plane; there are
    ``strips`` of them, ``across`` beside one another. What its windows read is gathered in scratch memory;
    ``offsets`` has the bytes between its beginning and what each term of a sum is multiplied with. The
    outputs of a group are ``cut`` into tiles; weights are ``[groups][tiles][terms][outputs of a tile]``. A
    sum has at most ``part`` terms; further ones are added to it.

    Sums lie in scratch memory from element ``sums_at`` on until they are finished, those of a line
    ``sums_pitch`` elements after those of the one before, those of an output ``sums_size``. With
    ``lines_at_once``, a tile has so many neighbouring lines of the only output, and terms are those of one of
    ``filter_rows``, which is 1 otherwise: then the lines of a strip are one run of pixels.
    """

    x: Operand
    y: Operand
    weights: Operand
    bias: Operand
    residual: Operand
    offsets: Operand
    has_residual: int
    gathered: Gathered
    x_image: int
    x_step: Three
    x_channel: int
    y_image: int
    y_step: Three
    y_channel: int
    r_image: int
    r_step: Three
    r_channel: int
    groups: int
    inputs: int
    outputs: int
    depths: int
    lines: int
    pixels: int
    strip_lines: int
    strip_pixels: int
    strips: int
    across: int
    terms: int
    part: int
    cut: Cut
    lines_at_once: int
    filter_rows: int
    sums_at: int
    sums_pitch: int
    sums_size: int
    vecs: int
    sweep: PlaneSweep
    end: Epilogue
    shares: PlaneShares
