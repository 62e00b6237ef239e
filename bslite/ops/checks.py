"""Small checks the shape rules share. Each raises SpecError with what came and what was expected."""

from collections.abc import Sequence

from bslite.errors import SpecError
from bslite.ops.core import Shape


def rank(op: str, shape: Shape, want: int, layout: str) -> None:
    """Raise unless ``shape`` has ``want`` dimensions, described to the user as ``layout``."""
    if len(shape) != want:
        raise SpecError(f"op {op!r} takes {layout}, got a tensor of rank {len(shape)}: {list(shape)}")


def rank_at_least(op: str, shape: Shape, least: int, layout: str) -> None:
    """Raise unless ``shape`` has ``least`` dimensions or more, described to the user as ``layout``."""
    if len(shape) < least:
        raise SpecError(
            f"op {op!r} takes {layout} of rank {least} or more, got rank {len(shape)}: {list(shape)}"
        )


def param_shape(op: str, role: str, got: Shape, want: Shape, why: str) -> None:
    """Raise unless a parameter has the shape its input implies."""
    if got != want:
        raise SpecError(f"op {op!r}: {role} has shape {list(got)}, expected {list(want)} {why}")


def axis(op: str, value: int, rank: int) -> int:
    """``value`` as a non-negative axis of a tensor of ``rank`` dimensions."""
    if not -rank <= value < rank:
        raise SpecError(f"op {op!r}: axis {value} is out of range for rank {rank}")
    return value % rank


def broadcast(op: str, shapes: Sequence[Shape]) -> Shape:
    """The shape that ``shapes`` broadcast to: sizes aligned at the last axis, equal or 1."""
    rank = max(map(len, shapes))
    out = []
    for sizes in zip(*((1,) * (rank - len(s)) + s for s in shapes), strict=True):
        wide = {d for d in sizes if d != 1}
        if len(wide) > 1:
            raise SpecError(
                f"op {op!r}: shapes {' and '.join(str(list(s)) for s in shapes)} do not broadcast; "
                f"sizes {' and '.join(map(str, sorted(wide)))} meet, expected equal sizes or 1"
            )
        out.append(wide.pop() if wide else 1)
    return tuple(out)


def window_output(size: int, kernel: int, stride: int, pad: int, dilation: int) -> int:
    """Floor-mode output size of a sliding window; ``pad`` is both sides together. May be < 1."""
    return (size + pad - dilation * (kernel - 1) - 1) // stride + 1
