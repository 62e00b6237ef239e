"""Lowerings of padding and of other copies with a known source for every index of an axis."""

from bslite.passes import Layer
from bslite.plan.core.builder import AnyBuilder
from bslite.plan.core.lowering import lowers
from bslite.plan.shared.cuts import mapped_copy


def padded_sources(size: int, before: int, after: int, mode: str) -> list[int]:
    """The input's index for every index of a padded axis; -1 for the constant."""
    indices = range(-before, size + after)
    if mode == "edge":
        return [min(max(i, 0), size - 1) for i in indices]
    if mode == "wrap":
        return [i % size for i in indices]
    if mode == "reflect":
        return [min(abs(i), 2 * (size - 1) - abs(i)) for i in indices]
    return [i if 0 <= i < size else -1 for i in indices]


@lowers("pad")
def lower_pad(b: AnyBuilder, layer: Layer) -> None:
    """Lower a pad: a constant everywhere, then a copy of the input over it; or pieces of the input."""
    x = b.values[layer.node.inputs[0]]
    y = b.write(layer.name)
    rank, attrs = len(x.shape), layer.node.attrs
    pads = list(zip(x.shape, attrs["pads"][:rank], attrs["pads"][rank:], strict=True))
    if attrs["mode"] != "constant":
        mapped_copy(b, x, y, [padded_sources(*p, attrs["mode"]) if p[1] or p[2] else None for p in pads])
        return
    if any(before > 0 or after > 0 for _, before, after in pads):
        number = float if b.dtypes[layer.name] == "float32" else int
        b.target.fill(b, y, number(attrs["value"]))
    for axis, (size, before, after) in enumerate(pads):
        first, last = max(0, -before), size - max(0, -after)
        if first >= last:
            return
        x = x.slice(axis, first, last)
        y = y.slice(axis, first + before, last + before)
    b.copy(x, y)


@lowers("roll")
def lower_roll(b: AnyBuilder, layer: Layer) -> None:
    """Lower a roll: two pieces along each rolled axis."""
    x = b.values[layer.node.inputs[0]]
    turns = [0] * len(x.shape)
    for shift, axis in zip(layer.node.attrs["shifts"], layer.node.attrs["axes"], strict=True):
        turns[axis] += shift
    if all(turn % n == 0 for turn, n in zip(turns, x.shape, strict=True)):
        b.alias(layer.name, x)
        return
    sources = [
        [(i - turn) % n for i in range(n)] if turn % n else None
        for turn, n in zip(turns, x.shape, strict=True)
    ]
    mapped_copy(b, x, b.write(layer.name), sources)
