"""Views as few loops: axes sorted by their strides, and merged where the strides of all operands allow it."""

from collections.abc import Sequence

from bslite.ops import Shape


def merged_axes(
    shape: Shape, strides: Sequence[Shape], by: int, keep_last: int | None = None
) -> tuple[list[int], list[list[int]]]:
    """Sizes and per-operand strides after dropping axes of size 1, sorting by operand ``by`` and merging.

    Axes come outermost first. An axis given as ``keep_last`` goes innermost and is merged with none.
    """
    axes = [a for a, n in enumerate(shape) if n != 1 and a != keep_last]
    axes.sort(key=lambda a: (-strides[by][a], a))
    if keep_last is not None:
        axes.append(keep_last)
    sizes: list[int] = []
    runs: list[list[int]] = [[] for _ in strides]
    for a in axes:
        even = (
            bool(sizes)
            and a != keep_last
            and all(run[-1] == s[a] * shape[a] for run, s in zip(runs, strides, strict=True))
        )
        if even:
            sizes[-1] *= shape[a]
        else:
            sizes.append(shape[a])
        for run, s in zip(runs, strides, strict=True):
            if even:
                run[-1] = s[a]
            else:
                run.append(s[a])
    return sizes, runs


def padded(sizes: list[int], runs: list[list[int]], count: int) -> tuple[list[int], list[list[int]]]:
    """``sizes`` and ``runs`` with leading axes of size 1 up to ``count`` axes."""
    missing = count - len(sizes)
    return [1] * missing + sizes, [[0] * missing + run for run in runs]


def split_for_items(
    sizes: list[int], runs: list[list[int]], want: int, largest: int
) -> tuple[list[int], list[list[int]]]:
    """Cut a single long innermost axis in two where it divides, so that there are items for the threads.

    ``want`` items are enough; a piece longer than ``largest`` elements is cut further.
    """
    if len(sizes) != 1 or sizes[0] < 4096:
        return sizes, runs
    total = sizes[0]
    for pieces in range(max(want, -(-total // largest)), total // 256):
        if total % pieces == 0:
            piece = total // pieces
            return [pieces, piece], [[run[0] * piece, run[0]] for run in runs]
    return sizes, runs


def into_items(
    sizes: list[int], runs: list[list[int]], want: int, axes: int
) -> tuple[list[int], list[list[int]]]:
    """The loops of a kernel with ``axes`` axes, the first two of which are its items: about ``want`` of them.

    The outermost axis is cut where it divides; if it is too short to give enough items, so is the next one.
    """
    outer, inner = sizes[:-1], sizes[-1:]
    outs, inns = [r[:-1] for r in runs], [r[-1:] for r in runs]
    if not outer:
        outer, outs = [1], [[0] for _ in runs]
    enough = outer[0] >= want and len(outer) <= axes - 2
    head = 1 if enough or len(outer) == 1 else 2
    cut = head - 1
    need = -(-want // outer[0]) if head == 2 else want
    parts = next((d for d in range(min(need, outer[cut]), outer[cut] + 1) if outer[cut] % d == 0), 1)
    if len(outer) + 1 + (head == 1) <= axes - 1 and parts < outer[cut]:
        piece = outer[cut] // parts
        outer = [*outer[:cut], parts, piece, *outer[cut + 1 :]]
        outs = [[*r[:cut], r[cut] * piece, r[cut], *r[cut + 1 :]] for r in outs]
    lead, leads = padded(outer[:head], [r[:head] for r in outs], 2)
    rest, rests = padded(outer[head:], [r[head:] for r in outs], axes - 3)
    return lead + rest + inner, [a + b + c for a, b, c in zip(leads, rests, inns, strict=True)]
