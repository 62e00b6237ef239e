"""A run of layers as one launch of the stack kernel."""

from collections.abc import Sequence

from bslite.errors import EngineError
from bslite.kernels.contracts.cuda.stack import Stack, StackVariant
from bslite.kernels.contracts.record import Operand
from bslite.passes import Layer
from bslite.plan.core.views import View, size_of
from bslite.plan.cuda.launch import MOST_ELEMENTS, CudaBuilder, launch
from bslite.plan.cuda.stack.price import Cut, knows_steps, price
from bslite.plan.cuda.stack.stages import Piece, piece_of

THREADS = 64
OUTSIDE = 2  # tensors from outside that the kernel takes


def sizes_of(b: CudaBuilder, pieces: Sequence[Piece]) -> list[tuple[int, int]]:
    """Return the rows and columns after each piece."""
    return [(b.shapes[p.layer.name][2], b.shapes[p.layer.name][3]) for p in pieces]


def cut_of(b: CudaBuilder, pieces: Sequence[Piece], value: str) -> Cut | None:
    """Return the cut of a stack that begins with ``value``; None if it cannot be one launch."""
    if sum(len(p.outside) for p in pieces) > OUTSIDE:
        return None
    n, c, h, w = b.shapes[value]
    return price(pieces, (n, c, h, w), sizes_of(b, pieces), b.machine)


def stack_step(b: CudaBuilder, pieces: Sequence[Piece], value: str, cut: Cut) -> None:
    """Append the launch, from the value named ``value`` to that of the last layer."""
    last = pieces[-1].layer.name
    x = b.read(value)
    n, c, h, w = x.shape
    outside = [b.values[name].broadcast(b.shapes[p.layer.name]) for p in pieces for name in p.outside]
    y = b.write(last)
    sizes = [(h, w), *(b.shapes[p.layer.name][2:] for p in pieces if p.window is not None)]
    parts = tuple(part for p in pieces for part in p.parts)
    numbers = b.const("channel_rows", *(k for p in pieces for k in p.keys), parts=parts) if parts else None
    table = b.const("cells", values=[n for size in sizes for n in size])
    height, width = sizes[-1]
    threads = min(THREADS, b.machine.block_threads)
    strips = -(-width // cut.columns)
    groups = -(-strips * c // threads)
    rows = -(-height // cut.bands)
    bands = -(-height // rows)
    z, v, *_ = [*outside, x, x]
    record = Stack(
        x.start, y.start, z.start, v.start, Operand(numbers, 0) if numbers else x.start, Operand(table, 0),
        channels=c, strips=strips, groups=groups, bands=bands, band_rows=rows,
        **strides("x", x), **strides("y", y), **strides("z", z), **strides("v", v),
    )  # fmt: skip
    words = " ".join(word for p in pieces for word in p.words)
    known = knows_steps(pieces)
    steps = (x.strides[3], y.strides[3]) if known else (0, 0)
    variant = StackVariant(words, cut.columns, cut.turn, threads, steps, int(known and b.machine.maxima > 2))
    grid = [groups * bands * n]
    launch(b, record, variant, grid, [threads], [x, *outside], [y], seconds=cut.seconds)


def strides(name: str, view: View) -> dict[str, int]:
    """Return the fields of the record that hold an image's strides."""
    image, channel, row, col = view.strides
    return {f"{name}_image": image, f"{name}_row": row, f"{name}_col": col, f"{name}_channel": channel}


def as_stack(b: CudaBuilder, layer: Layer) -> bool:
    """Append the layer as a stack of its own; return whether it can be one."""
    value = layer.node.inputs[0]
    piece = piece_of(layer, value, b.spec, b.shapes)
    cut = cut_of(b, [piece], value) if piece is not None else None
    if piece is None or cut is None:
        return False
    stack_step(b, [piece], value, cut)
    return True


def small(b: CudaBuilder, *views: View) -> None:
    """Raise EngineError where the kernels' 32 bits do not count all elements."""
    for view in views:
        if size_of(view.shape) > MOST_ELEMENTS:
            raise EngineError(
                f"layer {b.layer[-1]!r}: {list(view.shape)} are more than {MOST_ELEMENTS} elements"
            )
