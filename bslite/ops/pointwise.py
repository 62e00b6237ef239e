"""Arithmetic of whole values, and the two ops that compute nothing: dropout at inference and constants."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from bslite.ops import attrs as a
from bslite.ops import checks
from bslite.ops.core import Attr, Attrs, Case, Kind, Op, ParamShapes, RowMap, Shape


class Dropout(Op):
    """The identity: dropout does nothing at inference."""

    name = "dropout"
    kind = Kind.POINTWISE
    attrs = (Attr("p", a.real_between(0, 1), 0.5, "probability in training; unused here"),)
    torch_name = "dropout"
    onnx_name = "Dropout"

    @classmethod
    def rows(cls, params: ParamShapes, attrs: Attrs) -> RowMap:
        return RowMap()

    @classmethod
    def cases(cls) -> Sequence[Case]:
        return [
            Case("image", [(2, 3, 5, 4)]),
            Case("features", [(3, 17)], attrs={"p": 0.2}),
            Case("always", [(4,)], attrs={"p": 1}),
        ]


class Binary(Op):
    """Base of the ops on two values, which broadcast: aligned at the last axis, sizes equal or 1."""

    kind = Kind.POINTWISE
    arity = (2, 2)

    @classmethod
    def shape(cls, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        return checks.broadcast(cls.name, ins)

    @classmethod
    def flops(cls, ins: Sequence[Shape], out: Shape, params: ParamShapes, attrs: Attrs) -> int:
        return math.prod(out)

    @classmethod
    def rows(cls, params: ParamShapes, attrs: Attrs) -> RowMap:
        """The same row of each input; an input of one row, or with no such axis, is read whole."""
        return RowMap()

    @classmethod
    def keeps_images_apart(cls, ranks: Sequence[int], attrs: Attrs) -> bool:
        return len(set(ranks)) == 1

    @classmethod
    def cases(cls) -> Sequence[Case]:
        return [
            Case("two numbers", [(), ()]),
            Case("image", [(2, 19, 7, 6), (2, 19, 7, 6)]),
            Case("a number per channel", [(2, 5, 4, 3), (5, 1, 1)]),
            Case("squeeze and excite", [(2, 8, 5, 5), (2, 8, 1, 1)]),
            Case("the other way round", [(2, 8, 1, 1), (2, 8, 5, 5)]),
            Case("one map for all channels", [(2, 8, 3, 5), (2, 1, 3, 5)]),
            Case("one row", [(2, 3, 6, 4), (1, 3, 1, 4)]),
            Case("a number", [(3, 4), ()]),
            Case("both widen", [(3, 1, 5), (4, 1)]),
            Case("features", [(7, 33), (33,)]),
        ]


class Add(Binary):
    """Sum of two values."""

    name = "add"
    torch_name = "add"
    onnx_name = "Add"


class Mul(Binary):
    """Product of two values, element by element."""

    name = "mul"
    torch_name = "mul"
    onnx_name = "Mul"


class Constant(Op):
    """A stored value of any shape, ``()`` included; the one op without inputs."""

    name = "constant"
    kind = Kind.SOURCE
    arity = (0, 0)
    params = {"value": True}
    torch_name = "tensor"
    onnx_name = "Constant"

    @classmethod
    def dtype(cls, ins: Sequence[str], params: Mapping[str, str], attrs: Attrs) -> str:
        return params["value"]

    @classmethod
    def shape(cls, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        return params["value"]

    @classmethod
    def cases(cls) -> Sequence[Case]:
        return [
            Case("a number", [], {"value": ()}),
            Case("per channel", [], {"value": (1, 5, 1, 1)}),
            Case("class token", [], {"value": (1, 1, 24)}),
            Case("image", [], {"value": (2, 3, 4, 5)}),
        ]
