"""The price of a stack on a GPU by its cut: columns of a thread and bands of rows.

The time is that of HBM or of issued instructions, whichever is longer, plus a launch. A slot is one warp
instruction of an SM's issue, counted in machine code for sm_90 (one for most instructions, two for maxima and
comparisons, whose units are half as wide).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bslite.explore.gpu import GpuMachine
from bslite.kernels.contracts.cuda.stack import Window, by_bits, levels_of
from bslite.plan.cuda.stack.stages import Piece

COLUMNS = (1, 2, 4, 8, 14)  # few, because each is compiled separately
BANDS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128)
REGISTERS = 224  # predicted per thread, at most: the prediction is good to some 30, the limit is 255
SM_REGISTERS = 64 << 10
STREAMED = 0.85  # share of HBM's bandwidth that a launch reaches
MAXIMUM, MOVED = 2.0, 0.3
FUNCTION = {"relu": 2.0, "clamp": 4.0, "affine": 1.0, "leaky_relu": 3.0, "neg": 1.0, "abs": 1.0}
OTHER_FUNCTION = 20.0
COUNTED = 12.0  # slots of a divisor that depends on the place


class Fit(NamedTuple):
    """What was fitted to measured cuts of max pool, batch norm and ReLU."""

    issued: float  # share of the slots that is used: registers allow two to four warps to a scheduler
    streamed: float  # share of HBM's bandwidth that is reached
    latency: float  # seconds of a load from HBM under load
    overlapped: float  # share of the shorter of the two times that the longer does not hide
    access: float  # slots of a load or store with its address
    sides: float  # what a byte costs that two strips of columns read, for one that comes from L2
    base: int  # registers besides those of state, parameters and rows
    state: tuple[float, float]  # registers for a row and column kept: some, and more for each row of a turn


#: At most one window: 240 cuts on an H100, of kernels that know no steps (14 % off in the mean).
ONE = Fit(0.59, STREAMED, 0.37e-6, 0.26, 4.5, 0.0, 34, (0.65, 0.9))
#: Several, with steps and maxima of integers compiled in: 40 cuts on an H200 (8 % off).
SEVERAL = Fit(0.43, 0.9, 0.65e-6, 0.08, 1.5, 2.3, 24, (0.75, 0.92))


@dataclass(frozen=True)
class Cut:
    """The cut of a stack, and its cost."""

    columns: int
    turn: int  # least rows of the result in one turn of a thread's loop
    bands: int
    registers: int  # predicted
    seconds: float
    slots: float  # per element of the result
    bytes: float  # HBM traffic


def _shared(size: int, step: int, by_bits: bool = False) -> float:
    """Return the combinations per window along one axis; windows one step apart share theirs. Of integers,
    one takes three.
    """
    if by_bits:
        return float(size // 2)
    return min(size - 1.0, 1.0 + (size - 1.0) / 4.0) if step == 1 else size - 1.0


def _window_slots(w: Window, by_bits: bool) -> tuple[float, float]:
    """Return the slots per element of a row reduced along itself, and per element of the result."""
    (rows, cols), (down, across) = w.kernel, w.stride
    if w.kind == "max":
        moved = 0.0 if by_bits else MOVED
        return MAXIMUM * _shared(cols, across, by_bits) + moved, MAXIMUM * _shared(rows, down, by_bits)
    if w.kind == "avg":
        return cols - 1.0 + MOVED, rows + (0.0 if w.last else COUNTED)
    return MOVED, float(rows * cols)


def _chain_slots(words: Sequence[str]) -> float:
    total = 0.0
    for word in words:
        name = word.partition(":")[0]
        if name in ("with", "by"):
            total += ONE.access + 1.0
        elif name not in ("max", "avg", "depthwise"):
            total += FUNCTION.get(name, OTHER_FUNCTION)
    return total


def knows_steps(pieces: Sequence[Piece]) -> bool:
    """Return whether steps from column to column are compiled in: of several windows, which are bound by
    instructions. Other stacks share their code among all numbers of channels.
    """
    return sum(p.window is not None for p in pieces) > 1


def price(
    pieces: Sequence[Piece], image: tuple[int, int, int, int], sizes: Sequence[tuple[int, int]],
    machine: GpuMachine,
) -> Cut | None:  # fmt: skip
    """Return the cheapest cut; None if registers do not hold the stack's state.

    ``image``: ``[N, C, H, W]`` of the input; ``sizes``: rows and columns after each piece.
    """
    best: Cut | None = None
    height, width = sizes[-1]
    for columns in COLUMNS:
        if columns > width:
            break
        for turn in (1, 2):
            if turn > height:
                continue
            cut = _price(pieces, image, sizes, machine, columns, turn)
            if cut is not None and (best is None or cut.seconds < best.seconds):
                best = cut
    return best


def _price(
    pieces: Sequence[Piece], image: tuple[int, int, int, int], sizes: Sequence[tuple[int, int]],
    machine: GpuMachine, columns: int, turn: int,
) -> Cut | None:  # fmt: skip
    n, c, h, w = image
    height, width = sizes[-1]
    # Backwards from the result: the columns of a thread and the rows of a band that each piece needs.
    count, state, taps, affine, outside, down = columns, 0.0, 0, 0, 0, 1
    several = knows_steps(pieces)
    fit = SEVERAL if several else ONE
    levels = levels_of(" ".join(word for p in pieces for word in p.words))
    k = len(levels) - 1
    per_row = [fit.access * columns]  # slots of one row of the result
    reach, rows_per = 0, 1  # rows computed above a band; rows here per row of the result
    for piece in reversed(pieces):
        affine += 2 * piece.words.count("affine")
        outside += len(piece.outside)
        per_row.append(rows_per * count * _chain_slots(piece.words))
        win = piece.window
        if win is None:
            continue
        needed = (count - 1) * win.stride[1] + win.kernel[1]
        held = needed if win.kind == "depthwise" else count
        # A maximum's rows are taken ``turn`` at a time; what other windows keep is the same for any turn.
        kept = fit.state[0] + fit.state[1] * turn if win.kind == "max" else 2.3
        state += kept * (win.kernel[0] - 1) * held
        taps += win.kernel[0] * win.kernel[1] + 1 if win.kind == "depthwise" else 0
        bits = several and machine.maxima > 2 and by_bits(levels[k - 1], win, k == 1)
        k -= 1
        along, made = _window_slots(win, bits)
        per_row.append(rows_per * count * made)
        reach = reach * win.stride[0] + win.kernel[0] - win.stride[0]
        rows_per *= win.stride[0]
        per_row.append(rows_per * held * along)
        down *= win.stride[0]
        count = needed
        per_row.append(-FUNCTION["relu"] * rows_per * count * bits)
    per_row.append(rows_per * count * fit.access)
    row = 0.0 if several else count * (0.5 + 0.5 * down * turn)  # on its way, with the places of its columns
    registers = int(fit.base + state + taps + affine + row + 14 * outside)
    if registers > REGISTERS or (turn > 1 and down > 1):
        return None
    strips = -(-width // columns)
    lanes = n * c * strips
    # Registers are handed out by eights.
    taken = 8 * -(-registers // 8) if several else registers + 7
    resident = min(2048, SM_REGISTERS // taken) * machine.sms
    moved = 4.0 * n * c * (h * w + height * width)
    moved += sum(4.0 * n * c * sizes[i][0] * sizes[i][1] * len(p.outside) for i, p in enumerate(pieces))
    best: Cut | None = None
    for bands in BANDS:
        if bands > height:
            break
        rows = -(-height // bands) + reach / down  # a band's rows and the rows computed above it
        slots = lanes * bands * rows * sum(per_row)
        threads = min(lanes * bands, resident)
        waves = -(-lanes * bands // resident)
        uneven = waves * resident / (lanes * bands) if waves > 1 else 1.0
        # An SM issues from four schedulers: fewer than four warps to each of them leave slots unused.
        busy = min(1.0, threads / (machine.sms * 256.0))
        issuing = uneven * slots / (machine.sms * machine.lanes * machine.clock * fit.issued * busy)
        flying = 4.0 * threads * count * down * (1 if several else turn)
        full = machine.memory_bandwidth * fit.streamed
        speed = min(full, flying / fit.latency)
        # Columns that two strips read, and rows that two bands read, come from L2.
        again = (
            4.0 * n * c * (fit.sides * h * (strips * count - w) + w * rows_per * (bands - 1) * reach / down)
        )
        moving = moved / speed + again / machine.l2_bandwidth
        seconds = max(issuing, moving) + fit.overlapped * min(issuing, moving) + machine.launch
        if best is None or seconds < best.seconds:
            each = slots / (n * c * height * width)
            best = Cut(columns, turn, bands, registers, seconds, each, moved)
    return best
