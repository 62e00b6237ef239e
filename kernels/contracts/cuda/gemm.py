"""Records of the launches that multiply and add: products, joins of partial sums.

Numbers of the type `Cells` count floats, or pairs of floats in a kernel that moves pairs (`in_cells`).
"""

import typing
from dataclasses import fields, replace
from typing import Annotated, TypeVar

from bslite.kernels.contracts.launch import F4, LaunchRecord, LaunchVariant
from bslite.kernels.contracts.record import Record

R = TypeVar("R", bound=Record)
Cells = Annotated[int, "i4", "cells"]
TileSizes = tuple[int, int, int, int]  # rows and columns of a block's tile, and of a thread's

# The prologue of A's elements.
NONE, AFFINE, GATE = "none", "affine", "gate"


def in_cells(record: R, cell: int) -> R:
    """Return the record with every count of floats as a count of cells of ``cell`` floats."""
    hints = typing.get_type_hints(type(record), include_extras=True)
    changed = {}
    for field in fields(record):
        value = getattr(record, field.name)
        if isinstance(value, Record):
            changed[field.name] = in_cells(value, cell)
        elif hints[field.name] == Cells:
            changed[field.name] = value // cell
    return replace(record, **changed)


def even(record: Record) -> bool:
    """Return whether every count of floats is even, so that a kernel may move pairs."""
    hints = typing.get_type_hints(type(record), include_extras=True)
    values = [(getattr(record, field.name), hints[field.name]) for field in fields(record)]
    return all(even(v) if isinstance(v, Record) else hint != Cells or v % 2 == 0 for v, hint in values)


class Matrices(Record):
    """The strides of a batch's products: outer ones, and ``inner`` ones within each of these."""

    inner: int = 1
    x_outer: Cells = 0
    x_inner: Cells = 0
    w_outer: Cells = 0
    w_inner: Cells = 0
    bias_inner: int = 0


class Outputs(Record):
    """The strides of y's and the residual's rows: ``row``, or one for each of image, plane, line and pixel
    (``row``) where rows are not evenly spaced; and the strides of a batch's matrices of y.
    """

    y_outer: Cells = 0
    y_inner: Cells = 0
    y_row: Cells = 0
    r_row: Cells = 0
    planes: int = 1
    lines: int = 1
    pixels: int = 1
    y_image: Cells = 0
    y_plane: Cells = 0
    y_line: Cells = 0
    r_image: Cells = 0
    r_plane: Cells = 0
    r_line: Cells = 0


class Windows(Record):
    """The places of windows in x: its strides and its ``depth`` channels; along each axis (d, h, w) the start
    of the first window, the step between windows, the input's size (``have``), the step to the ``next`` tap.
    """

    x_image: Cells = 0
    x_plane: Cells = 0
    x_line: Cells = 0
    start_d: int = 0
    start_h: int = 0
    start_w: int = 0
    step_d: int = 1
    step_h: int = 1
    step_w: int = 1
    have_d: int = 1
    have_h: int = 1
    have_w: int = 1
    taps_h: int = 1
    taps_w: int = 1
    next_d: int = 1
    next_h: int = 1
    next_w: int = 1
    depth: Cells = 0


class GemmVariant(LaunchVariant):
    """``window``: 0 where A's rows are evenly spaced runs of terms, else the number of axes (2 or 3) that
    windows move along. ``across``: w's columns are contiguous, not its terms. ``scatter``: y and residual
    have a stride per axis. ``bias``, ``residual``: whether there is one. ``code``: the activation.
    ``before``: `NONE`, `AFFINE` or `GATE`, and ``before_code`` its activation. ``tensor``: products are three
    of TF32 on tensor cores.
    """

    tile: TileSizes
    window: int = 0
    across: int = 0
    scatter: int = 0
    bias: int = 0
    residual: int = 0
    code: str = "identity"
    before: str = NONE
    before_code: str = "identity"
    tensor: int = 0


class Gemm(LaunchRecord, kernel="gemm"):
    """``batch`` products of A ``[rows, terms]`` and w ``[cols, terms]`` transposed.

    A part of a sum has ``chunk`` terms; parts of y are ``y_split`` apart. ``col_tiles``: blocks side by side.
    ``a``, ``b``, ``before_a`` and ``before_b``: parameters of the activations; ``gate_image``: the stride
    between the gates of images.
    """

    x: F4
    w: F4
    biases: F4
    r: F4
    y: F4
    scale: F4
    shift: F4
    rows: int
    cols: int
    terms: Cells
    chunk: Cells
    col_tiles: int
    matrices: Matrices
    y_split: Cells
    x_row: Cells
    w_row: Cells
    windows: Windows
    outputs: Outputs
    a: float
    b: float
    gate_image: Cells
    before_a: float
    before_b: float


class GemmPairs(Gemm, kernel="gemm_pairs", pairs=("x", "w", "r", "y", "scale", "shift")):
    """The fields of `Gemm`, counted in cells of two floats."""


class JoinVariant(LaunchVariant):
    """The store's options, as in `GemmVariant`."""

    scatter: int
    bias: int
    residual: int
    code: str


class Join(LaunchRecord, kernel="gemm_join"):
    """The sum of ``splits`` parts of ``count`` elements, and a product's store; all in floats."""

    parts: F4
    biases: F4
    r: F4
    y: F4
    count: int
    splits: int
    rows: int
    cols: int
    inner: int
    bias_inner: int
    outputs: Outputs
    a: float
    b: float


class GemvVariant(LaunchVariant):
    """``across`` threads share the sum of ``outputs`` columns for up to ``rows`` rows."""

    rows: int
    outputs: int
    across: int
    threads: int
    bias: int
    code: str


class Gemv(LaunchRecord, kernel="gemv"):
    """A product of ``rows_in`` rows; strides of y are in floats."""

    x: F4
    w: F4
    biases: F4
    y: F4
    rows_in: int
    cols: int
    terms: Cells
    chunk: Cells
    x_row: Cells
    w_row: Cells
    y_row: int
    y_split: int
    a: float
    b: float


class GemvPairs(Gemv, kernel="gemv_pairs", pairs=("x", "w")):
    """The fields of `Gemv`, with x and w in cells of two floats."""
