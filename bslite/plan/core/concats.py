"""Concatenation without copying: producers write straight into their slice of one wide buffer."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bslite.ops import Shape
from bslite.passes import Layer

#: Ops whose result is another view of their input's memory; they write nothing that could be redirected.
VIEW_OPS = ("reshape", "flatten", "permute", "slice")


class Place(NamedTuple):
    """The place of a value in the buffer of concat ``root``, from ``start`` along ``axis``."""

    root: str
    axis: int
    start: int


def place_concats(layers: Sequence[Layer], shapes: Mapping[str, Shape]) -> dict[str, Place]:
    """Where layers should write the values that are concatenated: name -> place.

    Later concats come first, so that a chain in which each takes all inputs of the previous one and more
    (DenseNet) shares one buffer: the earlier ones are then slices of the last.
    """
    makers = {layer.name: layer for layer in layers}
    places: dict[str, Place] = {}
    for layer in reversed(layers):
        if layer.node.op != "concat":
            continue
        axis = layer.node.attrs["axis"] % len(shapes[layer.name])
        placed = _as_slice_of_one(layer, axis, shapes, places)
        if placed is not None and layer.name not in places:
            places[layer.name] = placed
            continue
        home = places.get(layer.name)
        if home is not None and home.axis != axis:
            continue  # a slice along another axis: inputs are copied
        root, start = (home.root, home.start) if home is not None else (layer.name, 0)
        seen: set[str] = set()
        for name in layer.node.inputs:
            size = shapes[name][axis]
            maker = makers.get(name)
            if (
                maker is not None
                and maker.node.op not in VIEW_OPS
                and name not in places
                and name not in seen
            ):
                places[name] = Place(root, axis, start)
            seen.add(name)
            start += size
    return places


def _as_slice_of_one(
    layer: Layer, axis: int, shapes: Mapping[str, Shape], places: Mapping[str, Place]
) -> Place | None:
    """The concat's place as a slice of one buffer that already holds all inputs side by side, or None."""
    found = [places.get(name) for name in layer.node.inputs]
    first = found[0]
    if first is None or first.axis != axis:
        return None
    start = first.start
    for name, place in zip(layer.node.inputs, found, strict=True):
        if place != Place(first.root, axis, start):
            return None
        start += shapes[name][axis]
    return first
