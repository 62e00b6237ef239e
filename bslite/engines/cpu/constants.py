"""The CPU's recipes for constants: weights as panels and padded to registers. Plans of a model share them."""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from bslite.engines.common.recipes import data_of, phase, recipe
from bslite.errors import SpecError
from bslite.kernels.contracts.cpu.rows import PICTURE
from bslite.kernels.contracts.cpu.sweep import Narrow
from bslite.kernels.contracts.cpu.tiles import COLS, HALF, LEAST, MOST, PAIR, TERMS
from bslite.kernels.cpu.vector.quads import SATURATES
from bslite.passes.quads import exact_parts
from bslite.plan import Const
from bslite.spec import Array

SLACK = 64  # elements after the data: kernels may over-read by a vector
LARGE = 1 << 20  # bytes from which on a parameter is not copied without need
SAMPLE = 64  # rows and columns of a parameter that are looked at first
PAGE = 4096  # bytes, at least
#: Recipes of panels, of so many registers, that other plans take again.
IN_PANELS = ("panels", "pair_panels", "quad_panels", "rounded_panels", "narrow_panels", "group_panels")
#: Recipes that write into `room` themselves.
PLACED = (
    *("panels", "pair_panels", "quad_panels", "rounded_panels", "narrow_panels", "gate_panels"),
    *("gate_rows", "matrices", "gate_pair_panels", "gate_byte_panels"),
    *("transposed_panels", "transposed_rounded_panels", "row_rounded_panels", "phase_panels", "group_panels"),
)


def make(const: Const, params: Mapping[str, Array]) -> Array:
    """The data of one constant, contiguous, 64-byte aligned and padded."""
    data = data_of(const, params)
    if const.recipe in PLACED or (const.recipe == "param" and _as_it_lies(data)):
        return data.reshape(-1)
    return aligned(data)


def _as_it_lies(data: Array) -> bool:
    """Whether kernels can read a large array where it is: no copy of an embedding's table is made.

    What they over-read is memory if it lies in the page of the last byte.
    """
    end = data.ctypes.data + data.nbytes
    same_page = (end - 1) // PAGE == (end + SLACK * data.itemsize - 1) // PAGE
    lies = data.nbytes >= LARGE and data.ctypes.data % 64 == 0
    return lies and same_page and bool(data.flags.c_contiguous)


def room(size: int, dtype: npt.DTypeLike = np.float32) -> Array:
    """Memory for ``size`` elements, not written yet, that starts on a cache line and is followed by zeros."""
    itemsize = np.dtype(dtype).itemsize
    made = np.empty(size + SLACK + 64 // itemsize, dtype)
    made = made[-made.ctypes.data % 64 // itemsize :]
    made[size:] = 0
    return made


def aligned(data: Array) -> Array:
    """A 1-D copy that starts on a cache line and is followed by zeros."""
    made = room(data.size, data.dtype)
    made[: data.size].reshape(data.shape)[...] = data
    return made


def _channels_padded(per_channel: Array, lanes: int, groups: int) -> Array:
    """``[groups, K/groups]`` padded with zeros to whole registers of ``lanes`` per group."""
    grouped = per_channel.reshape(groups, -1)
    pad = -grouped.shape[1] % lanes
    return np.pad(grouped, ((0, 0), (0, pad)))


@recipe("offsets")
def _offsets(params: Sequence[Array], values: Sequence[int]) -> Array:
    return aligned(np.asarray(values, np.int64))


@recipe("panels")
def _panels(params: Sequence[Array], lanes: int, width: int, groups: int) -> Array:
    """``[K, C/groups, R, S]`` (or with more or fewer axes of taps) as panels ``[groups][K/nr][R, S, C][nr]``,
    ``nr = width * lanes``.

    The last panel of a group has only as many registers as it needs, zeros in the lanes beyond K.
    """
    w = params[0]
    k, c = w.shape[:2]
    return _in_groups(w.reshape(groups, k // groups, c, math.prod(w.shape[2:])), lanes, width)


@recipe("matrices")
def _matrices(
    params: Sequence[Array], at: int, rows: int, cols: int, row: int, col: int, taps: Sequence[int],
    sizes: Sequence[int], runs: Sequence[int], lanes: int, width: int,
) -> Array:  # fmt: skip
    """`panels` of matrices that lie in one parameter; see `plan.cpu.packing.Matrices`."""
    numbers = np.ascontiguousarray(params[0], np.float32).reshape(-1)
    shape, strides = (*sizes, cols, rows), [4 * stride for stride in (*runs, col, row)]
    each = [np.lib.stride_tricks.as_strided(numbers[at + tap :], shape, strides) for tap in taps]
    return _in_groups(np.stack(each, axis=-1).reshape(-1, cols, rows, len(taps)), lanes, width)


def _in_groups(w: Array, lanes: int, width: int) -> Array:
    """`panels` of a filter ``[groups, K, C, taps]``, K and C of a group."""
    groups, mine, c, taps = w.shape
    nr = width * lanes
    whole = mine // nr * nr
    tail = -(-(mine - whole) // lanes) * lanes
    placed = room(groups * taps * c * (whole + tail), w.dtype)
    made = placed[: groups * taps * c * (whole + tail)].reshape(groups, -1)
    panels = made[:, : taps * c * whole].reshape(groups, whole // nr, taps, c, nr)
    panels[...] = w[:, :whole].reshape(groups, whole // nr, nr, c, taps).transpose(0, 1, 4, 3, 2)
    if tail:
        last = made[:, taps * c * whole :].reshape(groups, taps, c, tail)
        last[..., : mine - whole] = w[:, whole:].transpose(0, 3, 2, 1)
        last[..., mine - whole :] = 0
    return placed


@recipe("split_panels")
def _split_panels(params: Sequence[Array], parts: int, b_parts: int, groups: int) -> Array:
    """``[K, C/groups, ...]`` as tiles of bfloat16 ``[groups][K/32][C/32][taps][b_parts][2][16 cells][16
    columns][2 terms]``, zeros beyond the channels of a group; see `contracts.cpu.tiles`. The terms of a cell
    are 16 apart; where x has one of the ``parts`` they are neighbours.
    """
    w = params[0]
    mine, c = w.shape[0] // groups, w.shape[1]
    w = np.pad(w.reshape(groups, mine, c, -1), ((0, 0), (0, -mine % (2 * COLS)), (0, -c % TERMS), (0, 0)))
    if parts == 1:
        tiles = _nearest(w).reshape(1, groups, -1, 2, COLS, w.shape[2] // TERMS, TERMS // 2, 2, w.shape[3])
        return tiles.transpose(1, 2, 5, 8, 0, 3, 6, 4, 7)
    made = np.stack(list(itertools.islice(split(w), b_parts)))
    tiles = made.reshape(b_parts, groups, -1, 2, COLS, w.shape[2] // TERMS, TERMS // PAIR, PAIR, w.shape[3])
    return tiles.transpose(1, 2, 5, 8, 0, 3, 7, 4, 6)


def _nearest(w: Array) -> Array:
    """The bits of the nearest bfloat16, of two the even one."""
    bits = w.view(np.uint32)
    return (bits + (np.uint32(0x7FFF) + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def split(x: Array) -> Iterator[Array]:
    """The three parts of float32 numbers, as the bits of bfloat16; their sum is exact."""
    for _ in range(3):
        bits = (x.view(np.uint32) + np.uint32(HALF)) & np.uint32(0xFFFF0000)
        yield (bits >> 16).astype(np.uint16)
        x = x - bits.view(np.float32)


def has_parts(x: Array) -> bool:
    """Whether all numbers have exact parts in the unit's range."""
    size = np.abs(x).view(np.uint32)
    return bool(((size == 0) | ((size >= LEAST) & (size < MOST))).all())


@recipe("pair_panels")
def _pair_panels(params: Sequence[Array], lanes: int, width: int, groups: int) -> Array:
    """Whole numbers ``[K, C/groups, ...]`` as `panels` of pairs: cells of two channels, as `ops.integer`."""
    w = params[0].astype(np.int64)
    if w.size and not -(2**15) <= int(w.min()) <= int(w.max()) < 2**15:
        raise SpecError(f"weights are {int(w.min())} to {int(w.max())}, expected numbers of 16 bits")
    w = np.pad(w, ((0, 0), (0, w.shape[1] % 2), *((0, 0) for _ in w.shape[2:])))
    both = (w[:, ::2] & 0xFFFF) | (w[:, 1::2] << 16)
    return _panels([both.astype(np.int32)], lanes, width, groups)


@recipe("rounded_panels")
def _rounded_panels(params: Sequence[Array], lanes: int, width: int, groups: int) -> Array:
    """``[K, C/groups, ...]`` as `panels` of cells: two channels as bfloat16, of two nearest the even one."""
    w = params[0]
    w = np.pad(w, ((0, 0), (0, w.shape[1] % 2), *((0, 0) for _ in w.shape[2:])))
    bits = _nearest(w).astype(np.uint32)
    return _panels([(bits[:, ::2] | bits[:, 1::2] << 16).view(np.int32)], lanes, width, groups)


def narrow_of(x: Array) -> Array:
    """How float32 numbers fit 16 bits: a number of `Narrow`. A few are looked at first."""
    found = Narrow.NO
    for part in (x[(slice(SAMPLE),) * x.ndim], x):
        if not int(np.bitwise_or.reduce(part.view(np.uint32), axis=None)) & 0xFFFF:
            found = Narrow.BFLOAT16
        elif all(_fits_float16(part[i : i + SAMPLE]) for i in range(0, len(part), SAMPLE)):
            found = Narrow.FLOAT16
        else:
            return np.array(Narrow.NO, np.int8)
    return np.array(found, np.int8)


def _fits_float16(x: Array) -> bool:
    with np.errstate(over="ignore"):
        return bool((x.astype(np.float16) == x).all())


@recipe("narrow_panels")
def _narrow_panels(params: Sequence[Array], lanes: int, width: int, groups: int, narrow: int) -> Array:
    """`panels` of numbers of 16 bits."""
    return _panels([_narrowed(params[0], Narrow(narrow))], lanes, width, groups)


def _narrowed(w: Array, narrow: Narrow) -> Array:
    """Numbers that fit 16 bits, in these."""
    if narrow is Narrow.NO:
        return w
    return w.astype(np.float16) if narrow is Narrow.FLOAT16 else (w.view(np.uint32) >> 16).astype(np.uint16)


def _as_quads(w: Array) -> Array:
    """Whole numbers ``[K, C/groups, ...]`` of 8 bits as cells of four channels, as `ops.integer`."""
    w = np.pad(w, ((0, 0), (0, -w.shape[1] % 4), *((0, 0) for _ in w.shape[2:])))
    last = np.ascontiguousarray(np.moveaxis(w, 1, -1))
    return np.moveaxis(last.view(np.int32), -1, 1)


@recipe("quad_panels")
def _quad_panels(params: Sequence[Array], lanes: int, width: int, groups: int) -> Array:
    """Weights of int8 as `panels` of quads; where instructions saturate, the first of their `exact_parts`."""
    w = exact_parts(params[0])[0] if SATURATES else params[0]
    return _panels([_as_quads(w)], lanes, width, groups)


@recipe("quad_extras")
def _quad_extras(params: Sequence[Array], lanes: int, width: int, groups: int, rows: int) -> Array:
    """The other part of these weights, where it is not zero, as `IntConv` says."""
    quads = _as_quads(exact_parts(params[0])[1] if SATURATES else np.zeros_like(params[0]))
    k, c = quads.shape[:2]
    nr, mine, inner = width * lanes, k // groups, math.prod(quads.shape[1:])
    by_cell = quads.reshape(groups, mine, c, -1).transpose(0, 3, 2, 1).reshape(groups, inner, mine)
    index: list[list[int]] = []
    cells: list[int] = []
    weights: list[Array] = []
    place = 0
    starts = np.arange(rows + 1) * (inner // rows)
    for group in by_cell:
        for first in range(0, mine, nr):
            panel = group[:, first : first + nr]
            used = np.flatnonzero(panel.any(1))
            index.append([*(len(cells) + np.searchsorted(used, starts)), place])
            cells += used.tolist()
            data = np.pad(panel[used], ((0, 0), (0, -panel.shape[1] % lanes)))
            weights.append(data.reshape(-1))
            place += data.nbytes
    head = np.asarray(index, np.int64)
    head[:, -1] += 8 * (head.size + len(cells))
    every = [head.reshape(-1).view(np.int32), np.asarray(cells, np.int64).view(np.int32), *weights]
    return np.concatenate(every)


@recipe("channels")
def _channels(
    params: Sequence[Array], channels: int, lanes: int, groups: int, value: float, over: float
) -> Array:
    """A number for each channel, padded to whole registers per group; ``value`` where none are given.

    Numbers that are not whole are divided by ``over`` and rounded once.
    """
    numbers = params[0] if params else np.full(channels, value)
    made = numbers if isinstance(value, int) else numbers.astype(np.float64) / over
    return _channels_padded(made.astype(np.int32 if isinstance(value, int) else np.float32), lanes, groups)


@recipe("bias_panels")
def _bias_panels(params: Sequence[Array], channels: int, lanes: int, groups: int) -> Array:
    bias = params[0] if params else np.zeros(channels, np.float32)
    return _channels_padded(bias, lanes, groups)


def _by_block(rows: Array, gates: int, lanes: int, pick: Sequence[int]) -> Array:
    """``[gates * H, ...]`` as ``[blocks of units, gates of pick, lanes, ...]``, zeros for units beyond H."""
    each = rows.reshape(gates, -1, *rows.shape[1:])[list(pick)]
    each = np.pad(each, ((0, 0), (0, -each.shape[1] % lanes), *((0, 0) for _ in rows.shape[1:])))
    return each.reshape(len(pick), -1, lanes, *rows.shape[1:]).swapaxes(0, 1)


@recipe("gate_panels")
def _gate_panels(params: Sequence[Array], gates: int, lanes: int, pick: Sequence[int], tile: int) -> Array:
    """Weights ``[gates * H, K]`` as panels ``[H/lanes/tile][K][tile][gates of pick][lanes]``."""
    w = _by_block(params[0], gates, lanes, pick)
    return _panels([w.reshape(-1, w.shape[-1])], lanes, len(pick) * tile, 1)


@recipe("gate_pair_panels")
def _gate_pair_panels(
    params: Sequence[Array], gates: int, lanes: int, pick: Sequence[int], tile: int
) -> Array:
    """Whole numbers ``[gates * H, K]`` as `gate_panels` of pairs along K."""
    w = _by_block(params[0], gates, lanes, pick)
    w = w.reshape(-1, w.shape[-1])
    if 255 * np.abs(w.astype(np.int64)).sum(1).max(initial=0) >= 2**31:
        raise SpecError("weight_hh of an LSTM that rounds: sums of its products with h are beyond 32 bits")
    return _pair_panels([w], lanes, len(pick) * tile, 1)


@recipe("gate_byte_panels")
def _gate_byte_panels(
    params: Sequence[Array], gates: int, lanes: int, pick: Sequence[int], tile: int
) -> Array:
    """Weights of int8 as these panels, in which a number has one byte."""
    w = _by_block(params[0], gates, lanes, pick)
    w = w.reshape(-1, w.shape[-1])
    both = np.ascontiguousarray(np.pad(w, ((0, 0), (0, w.shape[1] % 2)))).view(np.int16)
    return _panels([both], lanes, len(pick) * tile, 1)


@recipe("gate_rows")
def _gate_rows(params: Sequence[Array], gates: int, lanes: int, width: int) -> Array:
    """Weights ``[gates * H, I]`` as panels with channels in the order (block, gate, unit)."""
    w = _by_block(params[0], gates, lanes, range(gates))
    return _panels([w.reshape(-1, w.shape[-1])], lanes, width, 1)


@recipe("gate_bias")
def _gate_bias(params: Sequence[Array], gates: int, lanes: int, pick: Sequence[int], given: bool) -> Array:
    """``[gates * H]`` in the order (block, gate, unit); zeros of the same length if not ``given``."""
    rows = params[0] if given else np.zeros(len(params[0]), np.float32)
    return np.ascontiguousarray(_by_block(rows, gates, lanes, pick))


@recipe("depthwise")
def _depthwise(params: Sequence[Array], lanes: int) -> Array:
    """Depthwise filters ``[C, 1, R, S]`` as ``[C/lanes][R*S][lanes]``."""
    w = params[0]
    taps = w.reshape(w.shape[0], -1)
    padded = np.pad(taps, ((0, -w.shape[0] % lanes), (0, 0)))
    return padded.reshape(-1, lanes, taps.shape[1]).transpose(0, 2, 1)


@recipe("across")
def _across(params: Sequence[Array], lanes: int) -> Array:
    """Weights ``[K, C, ...]`` with lanes along C: ``[...][C/lanes][K][lanes]``."""
    k, c, *_ = params[0].shape
    padded = np.pad(params[0].reshape(k, c, -1), ((0, 0), (0, -c % lanes), (0, 0)))
    return padded.reshape(k, -1, lanes, padded.shape[2]).transpose(3, 1, 0, 2)


@recipe("small_groups")
def _small_groups(params: Sequence[Array], lanes: int, cols: int) -> Array:
    """Filters ``[K, C/groups, ..., R, cols]`` as ``[K/lanes][...*R][C/groups][cols][lanes]``."""
    w = params[0]
    k, c, *_ = w.shape
    padded = np.pad(w.reshape(k, c, -1, cols), ((0, -k % lanes), (0, 0), (0, 0), (0, 0)))
    return padded.reshape(-1, lanes, c, *padded.shape[2:]).transpose(0, 3, 2, 4, 1)


def _of_phase(make: Callable[..., Array]) -> Callable[..., Array]:
    """The recipe ``make`` for the filters of one phase of a transposed convolution."""

    def made(
        params: Sequence[Array], all_groups: int, first: Sequence[int], step: Sequence[int],
        taps: Sequence[int], **how: int,
    ) -> Array:  # fmt: skip
        return make([phase(params[0], all_groups, first, step, taps)], **how)

    return made


def _of_rows(make: Callable[..., Array], least: int = 0) -> Callable[..., Array]:
    """The recipe ``make`` for ``[K, C, R, S]`` with rows as pixels of S * max(C, ``least``) channels."""

    def made(params: Sequence[Array], **how: int) -> Array:
        w = np.pad(params[0], ((0, 0), (0, max(0, least - params[0].shape[1])), (0, 0), (0, 0)))
        return make([w.transpose(0, 3, 1, 2).reshape(len(w), -1, w.shape[2])], **how)

    return made


recipe("row_panels")(_of_rows(_panels))
recipe("row_rounded_panels")(_of_rows(_rounded_panels))
recipe("row_split_panels")(_of_rows(_split_panels))
recipe("picture_split_panels")(_of_rows(_split_panels, PICTURE))
recipe("transposed_panels")(_of_phase(_panels))
recipe("transposed_rounded_panels")(_of_phase(_rounded_panels))
recipe("transposed_across")(_of_phase(_across))
recipe("transposed_depthwise")(_of_phase(_depthwise))
recipe("transposed_split_panels")(_of_phase(_split_panels))


@recipe("group_panels")
def _group_panels(params: Sequence[Array], lanes: int, width: int, narrow: int) -> Array:
    """``[E, K, C]`` as `panels` of E groups, as numbers of 16 bits where all are."""
    return _in_groups(_narrowed(params[0], Narrow(narrow))[..., None], lanes, width)


@recipe("phase_panels")
def _phase_panels(params: Sequence[Array], lanes: int, width: int, groups: int) -> Array:
    """``[C, K, R, S]`` as the panels of a pointwise convolution to ``R * S * K`` channels."""
    w = params[0]
    return _panels([np.moveaxis(w, (0, 1), (-1, -2)).reshape(-1, w.shape[0])], lanes, width, groups)


@recipe("phase_bias")
def _phase_bias(params: Sequence[Array], channels: int, phases: int, lanes: int) -> Array:
    """The bias of every one of the ``phases``."""
    bias = params[0] if params else np.zeros(channels, np.float32)
    return _channels_padded(np.tile(bias, phases), lanes, 1)
