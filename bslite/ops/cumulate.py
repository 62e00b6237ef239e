"""Running sums and products along an axis."""

from collections.abc import Mapping, Sequence

from bslite.ops import attrs as a
from bslite.ops.along import AlongAxis
from bslite.ops.core import INTEGERS, Attr, Attrs, Case, Kind, declare
from bslite.ops.values import Applied, Gradients, Value


class Cumulative(AlongAxis):
    """Base of the running sums: ``exclusive`` leaves the element out, ``reverse`` begins at the end."""

    kind = Kind.REDUCTION
    may_fail = True
    attrs = (
        Attr("axis", a.integer()),
        Attr("exclusive", a.boolean, False),
        Attr("reverse", a.boolean, False),
    )

    def dtype(self, ins: Sequence[str], params: Mapping[str, str], attrs: Attrs) -> str:
        return ins[0] if ins[0] in INTEGERS else super().dtype(ins, params, attrs)

    samples = [
        Case("vector", [(37,)], attrs={"axis": 0}),
        Case("rows, exclusive", [(3, 40)], attrs={"axis": -1, "exclusive": True}),
        Case("first axis, reverse", [(7, 5, 3)], attrs={"axis": 0, "reverse": True}),
        Case("image, both", [(2, 5, 4, 3)], attrs={"axis": 1, "exclusive": True, "reverse": True}),
        Case("long", [(2, 5003)], attrs={"axis": 1}),
        Case("integers", [(3, 7)], attrs={"axis": 1}, dtypes=["int64"]),
        Case("integers, exclusive", [(3, 7)], attrs={"axis": 0, "exclusive": True}, dtypes=["int32"]),
    ]


def _sums(at: Applied, grad: Value) -> Gradients:
    return {0: grad.op("cumsum", **{**at.attrs, "reverse": not at.attrs["reverse"]})}


declare(
    Cumulative,
    "cumsum",
    "Running sums along an axis; ``exclusive``: without the element itself; ``reverse``: from the end.",
    onnx="CumSum",
    vjp=_sums,
)


def _flipped(x: Value, axis: int) -> Value:
    return x.op("slice", axis=axis, start=-1, step=-1)


def _shifted(x: Value, axis: int, by: int) -> Value:
    """Each element at the place ``by`` before its own; zeros come from behind."""
    pads = [0] * 2 * len(x.shape)
    pads[axis], pads[len(x.shape) + axis] = -by, by
    return x.op("pad", pads=tuple(pads))


def _products(at: Applied, grad: Value) -> Gradients:
    """``P_j S_j``, where P_j is the product of what is before x_j, and ``S_j = g_j + x_(j+1) S_(j+1)``: a
    recurrence, in steps of 1, 2, 4, ... elements. Nothing is divided by an x.
    """
    (x,) = at.inputs
    axis, reverse = at.attrs["axis"] % len(x.shape), at.attrs["reverse"]

    def along(value: Value) -> Value:
        return _flipped(value, axis) if reverse else value

    x, total = along(x), along(grad)
    before = x.op("cumprod", axis=axis, exclusive=True)
    if at.attrs["exclusive"]:
        total = _shifted(total, axis, 1)
    factor, by = _shifted(x, axis, 1), 1
    while by < x.shape[axis]:
        total = total + factor * _shifted(total, axis, by)
        factor, by = factor * _shifted(factor, axis, by), 2 * by
    return {0: along(before * total)}


declare(
    Cumulative,
    "cumprod",
    "Running products along an axis; ``exclusive`` and ``reverse`` as for sums.",
    onnx="CumProd",
    vjp=_products,
    sample_range=(-1.6, 1.6),  # the product of thousands of these stays within float32 for long
)


class Logcumsumexp(AlongAxis):
    """Logarithm of the running sum of exponentials along an axis, without leaving float32's range."""

    name = "logcumsumexp"
    kind = Kind.REDUCTION
    attrs = (Attr("axis", a.integer()),)
    torch_name = "logcumsumexp"

    def vjp(self, at: Applied, grad: Value) -> Gradients:
        """``exp(x)`` times the sums, from the end, of ``g exp(-y)``, by their logarithms: g by its sign."""
        (x,), y, axis = at.inputs, at.output, at.attrs["axis"]

        def sums(part: Value) -> Value:
            counted = part.op("maximum", 1e-38).op(
                "log"
            )  # finite, and of no sum that counts where it is none
            logs = _flipped(counted - y, axis).op("logcumsumexp", axis=axis)
            return (_flipped(logs, axis) + x).op("exp")

        return {0: sums(grad) - sums(-grad)}

    samples = [
        Case("vector", [(37,)], attrs={"axis": 0}),
        Case("rows", [(3, 40)], attrs={"axis": -1}),
        Case("first axis", [(7, 5, 3)], attrs={"axis": 0}),
        Case("channels of an image", [(2, 5, 4, 3)], attrs={"axis": 1}),
        Case("long", [(2, 5003)], attrs={"axis": 1}),
    ]
