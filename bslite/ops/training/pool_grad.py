"""What the gradients of pools take: which element of a window is the largest, and what windows hand back."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bslite.errors import SpecError
from bslite.ops import attrs as a
from bslite.ops import checks
from bslite.ops.core import Attr, Attrs, Case, Kind, Op, ParamShapes, Shape, case

WINDOW = (
    Attr("kernel", a.ints(1), ..., "sizes of the window"),
    Attr("stride", a.ints(1)),
    Attr("before", a.ints(), ..., "what lies before the image, along each axis"),
    Attr("dilation", a.ints(1)),
)

#: Geometries of the cases: label, size of the image, of the windows, and the attributes.
GEOMETRIES: Sequence[tuple[str, Shape, Shape, dict[str, Any]]] = (
    ("overlapping", (13, 9), (7, 5), {"kernel": (3, 3), "stride": (2, 2), "before": (1, 1)}),
    ("side by side", (8, 6), (4, 3), {"kernel": (2, 2), "stride": (2, 2), "before": (0, 0)}),
    ("elements that no window meets", (9, 8), (2, 2), {"kernel": (2, 1), "stride": (4, 3), "before": (0, 0)}),
    ("uneven", (7, 11), (3, 4), {"kernel": (2, 3), "stride": (2, 1), "before": (1, 0), "dilation": (3, 2)}),
    ("beyond the end", (5, 5), (3, 3), {"kernel": (3, 3), "stride": (2, 2), "before": (0, 0)}),
    ("wide", (1, 20), (1, 20), {"kernel": (1, 5), "stride": (1, 1), "before": (0, 2)}),
    ("signal", (19,), (9,), {"kernel": (4,), "stride": (2,), "before": (1,)}),
    ("volume", (4, 5, 3), (2, 3, 2), {"kernel": (3, 2, 2), "stride": (2, 2, 2), "before": (1, 1, 1)}),
)  # fmt: skip


class OfWindows(Op):
    """Base of ops on windows of ``[N, C, ...]``: taps count from 0, the last axis fastest.

    Along each axis, tap t of window w meets element ``w * stride - before + t * dilation``.
    """

    kind = Kind.WINDOW

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        (n, c, *sizes), asked = ins[0], attrs[self._asked()]
        lengths = {key: len(attrs[key]) for key in ("kernel", "stride", "before", "dilation", self._asked())}
        if set(lengths.values()) != {len(sizes)} or not 1 <= len(sizes) <= 3:
            raise SpecError(
                f"op {self.name!r} takes [N, C] and one to three axes, with as many numbers in "
                f"{', '.join(lengths)}; got {list(ins[0])} and {list(lengths.values())}"
            )
        for other in ins[1:]:
            checks.param_shape(self.name, "places", other, ins[0], "(that of the gradient)")
        return (n, c, *asked)

    def flops(self, ins: Sequence[Shape], out: Shape, params: ParamShapes, attrs: Attrs) -> int:
        return math.prod(min(ins[0], out, key=math.prod)) * math.prod(attrs["kernel"])

    def _asked(self) -> str:
        """The attribute that says how large the result is."""
        return self.attrs[-1].name

    def _geometries(self) -> Iterator[tuple[str, Shape, Shape, dict[str, Any]]]:
        for label, size, windows, attrs in GEOMETRIES:
            yield label, size, windows, {"dilation": (1,) * len(size), **attrs}


class MaxPoolPlaces(OfWindows):
    """The tap under which each window has its largest element; of equals the first, and NaN is the largest.

    Elements outside the image are no candidates. Of uint8, or int64 where windows have more than 256 taps.
    """

    name = "max_pool_places"
    attrs = (*WINDOW, Attr("windows", a.ints(1), ..., "how many there are along each axis"))

    def dtype(self, ins: Sequence[str], params: Mapping[str, str], attrs: Attrs) -> str:
        super().dtype(ins, params, attrs)
        return "uint8" if math.prod(attrs["kernel"]) <= 256 else "int64"

    def cases(self) -> Sequence[Case]:
        return [
            case(label, (2, 19, *size), windows=windows, **attrs)
            for label, size, windows, attrs in self._geometries()
        ]


class PoolGrad(OfWindows):
    """What windows hand back to elements: the sum of ``g`` of all windows that meet an element.

    Inputs: g, and, if each goes to one element only, the taps of these (`MaxPoolPlaces`).
    """

    name = "pool_grad"
    arity = (1, 2)
    attrs = (*WINDOW, Attr("size", a.ints(1), ..., "that of the image"))

    def dtype(self, ins: Sequence[str], params: Mapping[str, str], attrs: Attrs) -> str:
        if any(dtype not in ("uint8", "int64") for dtype in ins[1:]):
            raise SpecError(f"op {self.name!r} takes places of uint8 or int64, got {ins[1]}")
        return super().dtype(ins[:1], params, attrs)

    def cases(self) -> Sequence[Case]:
        made = []
        for label, size, windows, attrs in self._geometries():
            shape = (2, 19, *windows)
            made.append(case(f"{label}, to all", shape, size=size, **attrs))
            dtypes, most = ("float32", "uint8"), math.prod(attrs["kernel"])
            given = {**attrs, "size": size}
            made.append(Case(label, [shape, shape], attrs=given, dtypes=dtypes, integers=(0, most)))
        return made
