"""Records of launches that resize. A table lists the input lines of each output line."""

from bslite.kernels.contracts.launch import F4, I4, I8, LaunchRecord, Threads


class ResampleVariant(Threads):
    """``moves``: a single tap of weight 1, which is a copy."""

    moves: int


class Resample(LaunchRecord, kernel="resample"):
    """Dense, along one axis: ``y[o, i, c] = sum over taps t of weights[i, t] * x[o, lines[i, t], c]``.

    ``total`` elements; x ``[o, size, inner]``, y ``[o, out, inner]``.
    """

    x: F4
    y: F4
    lines: I4
    weights: F4
    total: I8
    size: I8
    out: I8
    inner: I8
    taps: int


class ResizeImageVariant(Threads):
    """``linear``: interpolation between four pixels, else the nearest pixel."""

    linear: int


class ResizeImage(LaunchRecord, kernel="resize_image"):
    """A resize of images of ``total`` elements, channels innermost, along rows and columns at once.

    ``rows``, ``cols``: two indices for each output row and column; ``row_parts``, ``col_parts``: as many
    weights where the variant is linear. Strides are in elements.
    """

    x: F4
    y: F4
    rows: I4
    cols: I4
    row_parts: F4
    col_parts: F4
    total: I8
    channels: int
    lines: int
    pixels: int
    x_image: I8
    x_line: I8
    x_pixel: I8
    y_image: I8
    y_line: I8
    y_pixel: I8
