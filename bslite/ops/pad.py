"""Padding: a constant, or elements of the input, around it; negative sizes crop."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bslite.errors import SpecError
from bslite.ops import attrs as a
from bslite.ops.core import Attr, Attrs, Kind, Op, ParamShapes, RowMap, Shape, case, holds
from bslite.ops.values import Applied, Gradients, Value


def _pads(value: Any) -> tuple[int, ...]:
    """Sizes, one before and one after per axis."""
    pads = a.ints()(value)
    if len(pads) % 2:
        raise ValueError("expected (before_0, ..., after_0, ...), one of each per axis")
    return pads


def _sources(mode: str, size: int, places: Iterable[int]) -> list[int]:
    """The elements of an axis of so many that stand at ``places``, some outside it."""
    if mode == "wrap":
        return [i % size for i in places]
    if mode == "reflect":
        return [min(abs(i), 2 * (size - 1) - abs(i)) for i in places]
    return [min(max(i, 0), size - 1) for i in places]


def _put_back(grad: Value, axis: int, size: int, sources: Sequence[int]) -> Value:
    """The sum of ``grad``, along an axis, at the elements that it comes from: run by run of ``sources``, each
    forwards, backwards or at one element.
    """
    total, start = None, 0
    while start < len(sources):
        stop = start + 1
        step = sources[stop] - sources[start] if stop < len(sources) else 1
        if abs(step) > 1:
            step = 1
        while stop < len(sources) and sources[stop] - sources[stop - 1] == step:
            stop += 1
        run, first = grad.sliced(axis, start, stop), min(sources[start], sources[stop - 1])
        if not step:
            run = run.sum(axis, keepdim=True)
        elif step < 0:
            run = run.op("slice", axis=axis, start=-1, step=-1)
        before = [first if a == axis else 0 for a in range(len(grad.shape))]
        after = [size - first - run.shape[axis] if a == axis else 0 for a in range(len(grad.shape))]
        run = run.padded(before, after)
        total, start = run if total is None else total + run, stop
    assert total is not None
    return total


class Pad(Op):
    """The input with more around it; ``pads`` holds the sizes before each axis, then those after (as ONNX).

    ``mode``: "constant" puts ``value`` there, "edge" the nearest element, "reflect" the elements mirrored at
    the outermost, "wrap" those of the other end. A negative size cuts that many off.
    """

    name = "pad"
    kind = Kind.MOVEMENT
    carries = True
    attrs = (
        Attr("pads", _pads, doc="(before_0, before_1, ..., after_0, after_1, ...); negative: cut off"),
        Attr("value", a.real, 0.0),
        Attr("mode", a.choice("constant", "reflect", "edge", "wrap"), "constant"),
    )
    torch_name = "pad"
    onnx_name = "Pad"

    def dtype(self, ins: Sequence[str], params: Mapping[str, str], attrs: Attrs) -> str:
        value = attrs["value"]
        if not holds(ins[0], value):
            raise SpecError(f"op 'pad': the value {value} does not fit an input of {ins[0]}")
        return ins[0]

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        x, pads = ins[0], attrs["pads"]
        rank = len(x)
        if len(pads) != 2 * rank:
            raise SpecError(
                f"op 'pad': {len(pads)} pads {list(pads)} for the input {list(x)}, expected {2 * rank}"
            )
        if attrs["mode"] == "reflect" and any(p >= d for p, d in zip(pads, x + x, strict=True) if p > 0):
            raise SpecError(
                f"op 'pad': {list(pads)} reflects beyond the input {list(x)}; expected pads below its sizes"
            )
        return tuple(before + d + after for d, before, after in zip(x, pads[:rank], pads[rank:], strict=True))

    def vjp(self, at: Applied, grad: Value) -> Gradients:
        (x,), mode, rank = at.inputs, at.attrs["mode"], len(grad.shape)
        pads = at.attrs["pads"]
        if mode == "constant":
            return {0: grad.padded([-n for n in pads[:rank]], [-n for n in pads[rank:]])}
        for axis in range(rank):
            if pads[axis] or pads[axis + rank]:
                size = x.shape[axis]
                sources = _sources(mode, size, range(-pads[axis], size + pads[axis + rank]))
                grad = _put_back(grad, axis, size, sources)
        return {0: grad}

    def rows(self, params: ParamShapes, attrs: Attrs) -> RowMap | None:
        pads = attrs["pads"]
        plain = len(pads) == 8 and attrs["mode"] == "constant" and min(pads) >= 0
        return RowMap(1, pads[2], 1) if plain else None

    def keeps_images_apart(self, ranks: Sequence[int], attrs: Attrs) -> bool:
        return not (attrs["pads"][0] or attrs["pads"][ranks[0]])

    samples = [
        case("all around", (2, 3, 4, 5), pads=(0, 0, 1, 1, 0, 0, 1, 1)),
        case("bottom right", (1, 3, 5, 4), pads=(0, 0, 0, 0, 0, 0, 2, 1)),
        case("channels", (2, 3, 4, 4), pads=(0, 1, 0, 0, 0, 2, 0, 0)),
        case("another value", (2, 3, 4, 5), pads=(0, 0, 2, 0, 0, 0, 1, 3), value=-1.5),
        case("minus infinity", (1, 2, 3, 3), pads=(0, 0, 1, 1, 0, 0, 0, 0), value=-math.inf),
        case("nothing", (3, 4), pads=(0, 0, 0, 0)),
        case("batch", (2, 3), pads=(1, 0, 2, 0)),
        case("cut off", (2, 3, 6, 7), pads=(0, 0, -2, -1, 0, 0, -1, -3)),
        case("cut here, padded there", (2, 3, 6, 7), pads=(0, 0, -2, 1, 0, -1, 3, -3)),
        case("all cut off on one side", (3, 4), pads=(-3, 0, 2, 0), value=0.5),
        case("integers", (3, 4), pads=(1, 0, 0, 2), value=-7, dtypes=["int32"]),
        *(
            case(f"{mode}, {label}", x, pads=pads, mode=mode, dtypes=[dtype])
            for mode in ("reflect", "edge", "wrap")
            for label, x, pads, dtype in (
                ("all around", (2, 19, 5, 4), (0, 0, 2, 1, 0, 0, 3, 2), "float32"),
                ("one side", (1, 3, 5, 4), (0, 0, 0, 3, 0, 0, 0, 0), "float32"),
                ("a vector", (7,), (6, 4), "float32"),
                ("batch and channels", (3, 4, 2, 2), (1, 2, 0, 0, 2, 1, 0, 0), "float32"),
                ("a volume", (1, 2, 3, 4, 5), (0, 0, 1, 2, 3, 0, 0, 2, 1, 0), "float32"),
                ("cut and padded", (2, 3, 6, 7), (0, 0, -2, 3, 0, 0, 4, -1), "float32"),
                ("cut off", (2, 3, 6, 7), (0, 0, -2, 0, 0, -1, 0, -3), "float32"),
                ("integers", (4, 5), (1, 2, 3, 4), "int64"),
            )
        ),
    ]
