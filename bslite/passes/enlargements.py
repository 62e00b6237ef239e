"""Ways to enlarge an image after which a convolution may as well read the small one."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bslite.ops.resized.resampling import places, taps
from bslite.ops.resized.upsample import tables
from bslite.passes.draft import Draft
from bslite.passes.families import CONVS, TRANSPOSED
from bslite.spec import Array, Node

#: Ops that may make an image larger, those that repeat whole images or signals among them.
RESIZES = ("upsample", "resize", "expand", "tile")


@dataclass(frozen=True)
class Repeated:
    """Each pixel is repeated so many ``times``, axis by axis.

    Several taps of a filter of ``k`` read copies of one pixel: ``V·x + W·x = (V + W)·x``. What is left are
    ``k + s - 1`` taps, of which an output meets every ``s``-th: a transposed convolution of stride ``s``.
    """

    times: tuple[int, ...]

    @staticmethod
    def by(draft: Draft, node: Node) -> "Repeated | None":
        """What ``node``, one of `RESIZES`, does, if it does that at any size."""
        if node.attrs.get("mode") != "nearest":
            return None
        found = set()
        for shapes in draft.shapes:
            x, y = shapes[node.inputs[0]], shapes[node.name]
            if node.op == "upsample":
                lines = dict(enumerate(tables(x, y, node.attrs), 2))
            else:
                lines = {axis: taps(at, node.attrs) for axis, at in places(x, y, node.attrs).items()}
            times = [max(1, b // a) for a, b in zip(x, y, strict=True)]
            if any(a * n != b for a, n, b in list(zip(x, times, y, strict=True))[2:]):
                return None  # an axis that shrinks may repeat its first pixels once
            for axis, table in lines.items():
                if axis < 2 or [t.line for (t,) in table] != [i // times[axis] for i in range(y[axis])]:
                    return None
            found.add(tuple(times[2:]))
        return Repeated(found.pop()) if len(found) == 1 else None

    def saved(self, kernel: Sequence[int]) -> float:
        """Products of one channel that each number of the result takes less, in the mean."""
        few = math.prod((k + s - 1) / s for k, s in zip(kernel, self.times, strict=True))
        return math.prod(kernel) - few

    def weight(self, weight: Array, groups: int) -> Array:
        """Of ``[K, C/groups, *taps]`` those of the layer, ``[C, K/groups, *taps]``: added in float64."""
        total = weight.astype(np.float64)
        for axis, s in enumerate(self.times, 2):
            k, lines = total.shape[axis], np.moveaxis(total, axis, 0)
            ends = range(k - 1 + s, 0, -1)  # of the taps that meet one pixel
            total = np.moveaxis(np.stack([lines[max(0, end - s) : end].sum(0) for end in ends]), 0, axis)
        outputs, inputs, *sizes = total.shape
        total = total.reshape(groups, outputs // groups, inputs, *sizes).swapaxes(1, 2)
        with np.errstate(over="ignore"):
            return np.asarray(total.reshape(groups * inputs, outputs // groups, *sizes), np.float32)

    def layers(self, conv: Node, kernel: Sequence[int]) -> list[Node]:
        """``conv``, of the small image."""
        pads = zip(conv.attrs["padding"], (*kernel, *kernel), strict=True)
        padding = tuple(k - 1 - p for p, k in pads)
        attrs = {"stride": self.times, "padding": padding, "groups": conv.attrs["groups"]}
        return [Node(conv.name, TRANSPOSED[CONVS.index(conv.op)], conv.inputs, conv.params, attrs)]


@dataclass(frozen=True)
class Resized:
    """Each pixel is a mean of those of a smaller image, or one of them, the same for all channels: sums over
    channels may be taken first.

    ``op``, ``attrs``: the resizing. ``sizes``: those of the small images, but for the channels. ``area``: how
    many pixels there are of one, at least.
    """

    op: str
    attrs: tuple[tuple[str, object], ...]
    sizes: tuple[int, ...]
    area: float

    @staticmethod
    def by(draft: Draft, node: Node, axis: int) -> "Resized | None":
        """What ``node``, one of `RESIZES`, does, if that is it and for one reader. ``axis``: of channels."""
        attrs, small, large = dict(node.attrs), draft.shape(node.inputs[0]), draft.shape(node.name)
        if draft.alone(node.name) is None or attrs.get("mode") == "cubic" or len(small) != len(large):
            return None
        if node.op == "resize" and (
            axis in [a % len(small) for a in attrs["axes"]] or attrs["coordinates"] == "tf_crop_and_resize"
        ):
            return None
        if small[axis] != large[axis]:
            return None
        if node.op == "expand":
            attrs["shape"] = tuple(-1 if i == axis else n for i, n in enumerate(attrs["shape"]))
        area = min(math.prod(s[node.name]) / math.prod(s[node.inputs[0]]) for s in draft.shapes)
        return Resized(node.op, tuple(attrs.items()), (*small[:axis], *small[axis + 1 :]), area)

    def saved(self, kernel: Sequence[int]) -> float:
        """Products of one channel that each number of the result takes less; none but for pointwise
        convolutions.
        """
        return 1 - 1 / self.area if math.prod(kernel) == 1 else 0

    def weight(self, weight: Array, groups: int) -> Array:
        """The weights of the layer."""
        return weight

    def layers(self, conv: Node, kernel: Sequence[int]) -> list[Node]:
        """``conv``, of the small image, and its value enlarged."""
        first = Node(f"{conv.name}/small", conv.op, conv.inputs, conv.params, conv.attrs)
        return [first, Node(conv.name, self.op, (first.name,), {}, dict(self.attrs))]


Enlargement = Repeated | Resized
