"""Sums of products of integers, exact: the layers of quantised models.

The numbers are of 16 bits. Two neighbouring channels share a cell of int32 (`pairs`): the lower half holds
the even one. Or they are 0 to 255, and four channels share a cell (`quads`), the first in the lowest byte. An
instruction of a CPU multiplies the numbers of a cell and adds the products. The sum is of 32 bits, and wraps
around as int32 does. What follows it in a quantised model, scales, rounding to 8 bits, the sum with
another such value, is part of the op (`FINISH`).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from bslite.errors import SpecError
from bslite.ops import attrs as a
from bslite.ops import checks
from bslite.ops.conv import LAYOUTS, TAPS, AnyConv, conv_attrs, conv_case
from bslite.ops.core import Attr, Attrs, Case, Kind, Op, ParamShapes, Shape, declare

Numbers = tuple[float, float, float, float]
#: Forms of cells -> the channels that share one.
EACH = {"pairs": 2, "quads": 4}
#: Bounds that do nothing, and no rounding.
AS_IT_IS: Numbers = (-math.inf, math.inf, 0.0, 0.0)


def rounding(value: Any) -> Numbers:
    """``(low, high, step, least)``: clamp to [low, high], then round t / step to [least, least + 255]."""
    low, high, step, least = map(a.real, value)
    if low > high or not 0 <= step < math.inf:
        raise ValueError("expected (low, high, step, least), low not above high, a finite step not below 0")
    if least != round(least) or not -(2**15) <= least < 2**15 - 255:
        raise ValueError("least must be a whole number, and [least, least + 255] numbers of 16 bits")
    return low, high, step, least


#: What happens to a sum ``t``, in this order; ``to`` says what the result is.
FINISH = (
    Attr(
        "to", a.choice("int32", "float32", "pairs", "quads"), "int32",
        "the sum, a real number, pairs, or quads: rounded numbers less the least one",
    ),
    Attr(
        "first", rounding, AS_IT_IS,
        "(low, high, step, least): t * scale + shift is cut to [low, high]; if step is not 0, t / step is "
        "rounded to even and cut to [least, least + 255]",
    ),
    Attr("own", a.real, 0.0, "if it is not 0, t * own, and with a second input plus input * other"),
    Attr("other", a.real, 0.0),
    Attr("second", rounding, AS_IT_IS, "the same as first, after the second input"),
    Attr("reads", a.choice(*EACH), "pairs", "what the cells of the first input hold"),
    Attr("adds", a.choice(*EACH), "pairs", "what the cells of the second input hold"),
    Attr("under", a.integer(), 0, "the numbers of the second input are so much less than their cells hold"),
)  # fmt: skip
PARAMS = {"weight": True, "offset": False, "scale": False, "shift": False}
WHOLE = ("int8", "int32")  # dtypes of weights


def cells(channels: int, form: str = "pairs", groups: int = 1) -> int:
    """The number of cells that hold so many channels: each group begins with a cell of its own."""
    return -(-(channels // groups) // EACH[form]) * groups


def check_finish(op: str, channels: int, params: ParamShapes, attrs: Attrs) -> int:
    """The size of the output's channels; SpecError for parameters that do not fit them."""
    for role in ("offset", "scale", "shift"):
        if role in params:
            checks.param_shape(op, role, params[role], (channels,), "(one per output channel)")
    if attrs["to"] == "int32" and ("scale" in params or "shift" in params):
        raise SpecError(f"op {op!r}: scale and shift make a float32, with to='int32' it has none")
    if attrs["to"] in EACH and not attrs["second"][2] and not attrs["first"][2]:
        raise SpecError(f"op {op!r}: {attrs['to']} are made of rounded numbers, step is 0")
    if attrs["under"] and attrs["adds"] != "quads":
        raise SpecError(f"op {op!r}: under is {attrs['under']}, but only quads hold more than their number")
    return cells(channels, attrs["to"]) if attrs["to"] in EACH else channels


def finish_dtype(
    op: str, ins: Sequence[str], want: Sequence[str], params: Mapping[str, str], attrs: Attrs
) -> str:
    """dtype of the output, or SpecError."""
    for i, (got, expected) in enumerate(zip(ins, want, strict=False)):
        if got != expected:
            raise SpecError(f"op {op!r}: input {i} is {got}, expected {expected}")
    allowed = {"weight": WHOLE if attrs["reads"] == "pairs" else WHOLE[:1], "offset": ("int32",)}
    for role, got in params.items():
        if got not in allowed.get(role, ("float32",)):
            wanted = " or ".join(allowed.get(role, ("float32",)))
            raise SpecError(f"op {op!r}: parameter {role!r} is {got}, expected {wanted}")
    return "float32" if attrs["to"] == "float32" else "int32"


class Pairs(Op):
    """Numbers rounded to int16, two by two along ``axis`` in cells of int32, a zero where a group is odd.

    With ``scale`` and ``zero``, both numbers: ``x / scale`` rounded to even, cut to ``[-zero, 255 - zero]``.
    """

    name = "pairs"
    kind = Kind.CHANNEL
    arity = (1, 3)
    cost = 1
    attrs: ClassVar[tuple[Attr, ...]] = (
        Attr("axis", a.integer(), 1),
        Attr("groups", a.integer(1), 1, "equal parts of the axis, each of which begins a cell"),
    )
    samples = [
        Case("image", [(2, 18, 5, 7)]),
        Case("odd", [(1, 3, 9, 4)]),
        Case("many", [(1, 67, 3, 2)]),
        Case("signal", [(2, 6, 11)]),
        Case("volume", [(1, 5, 3, 2, 4)]),
        Case("vector", [(37,)], attrs={"axis": -1}),
        Case("tokens", [(2, 9, 40)], attrs={"axis": -1}),
        Case("tokens, odd", [(3, 4, 5, 19)], attrs={"axis": -1}),
        Case("matrices along rows", [(2, 9, 5)], attrs={"axis": -2}),
        Case("groups", [(1, 12, 3, 4)], attrs={"groups": 4}),
        Case("scaled by a number", [(5, 33), (), ()], attrs={"axis": -1}),
    ]  # fmt: skip

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        x, groups = ins[0], attrs["groups"]
        axis = checks.axis(self.name, attrs["axis"], len(x))
        if x[axis] % groups:
            raise SpecError(f"op {self.name!r}: {x[axis]} channels do not divide into groups={groups}")
        if len(ins) == 2 or any(s != () for s in ins[1:]):
            raise SpecError(
                f"op 'pairs': scale and zero are {[list(s) for s in ins[1:]]}, expected two numbers"
            )
        return (*x[:axis], cells(x[axis], self.name, groups), *x[axis + 1 :])

    def dtype(self, ins: Sequence[str], params: Mapping[str, str], attrs: Attrs) -> str:
        super().dtype(ins, params, attrs)
        return "int32"

    def keeps_images_apart(self, ranks: Sequence[int], attrs: Attrs) -> bool:
        return attrs["axis"] % ranks[0] != 0


class IntConv(AnyConv):
    """Base of the convolutions of integers."""

    arity = (1, 2)
    params = PARAMS

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        x, w, groups = ins[0], params["weight"], attrs["groups"]
        form, to = attrs["reads"], attrs["to"]
        checks.rank(self.name, x, 2 + self.axes, f"{LAYOUTS[self.axes]} of {form}")
        checks.rank(self.name, w, 2 + self.axes, f"a weight [K, C/groups, {TAPS[self.axes]}]")
        n, c, *sizes = x
        k, cg, *kernel = w
        if c != cells(cg * groups, form, groups):
            raise SpecError(
                f"op {self.name!r}: input has {c} {form} of channels, weight {list(w)} with "
                f"groups={groups} expects {cells(cg * groups, form, groups)}"
            )
        if k % groups:
            raise SpecError(f"op {self.name!r}: {k} output channels do not divide into groups={groups}")
        if to in EACH and groups > 1 and (k // groups) % EACH[to]:
            raise SpecError(f"op {self.name!r}: groups of {k // groups} channels do not make {to}")
        channels = check_finish(self.name, k, params, attrs)
        before, after = attrs["padding"][: self.axes], attrs["padding"][self.axes :]
        windows = zip(sizes, kernel, attrs["stride"], before, after, attrs["dilation"], strict=True)
        out = n, channels, *(checks.window_output(h, r, s, p + q, d) for h, r, s, p, q, d in windows)
        if len(ins) > 1:
            if not (attrs["own"] and attrs["to"] != "int32"):
                raise SpecError(
                    f"op {self.name!r}: a second input is added with own != 0, to float32, pairs or quads"
                )
            want = (n, cells(k, attrs["adds"]), *out[2:])
            if ins[1] != want:
                raise SpecError(
                    f"op {self.name!r}: input 1 is {list(ins[1])}, expected {attrs['adds']} {list(want)}"
                )
        elif attrs["own"] and not attrs["second"][2]:
            raise SpecError(
                f"op {self.name!r}: own is {attrs['own']}, with no second input and no second rounding"
            )
        return out

    def dtype(self, ins: Sequence[str], params: Mapping[str, str], attrs: Attrs) -> str:
        return finish_dtype(self.name, ins, ("int32", "int32"), params, attrs)

    def flops(self, ins: Sequence[Shape], out: Shape, params: ParamShapes, attrs: Attrs) -> int:
        k, *terms = params["weight"]
        return 2 * out[0] * math.prod(out[2:]) * k * math.prod(terms)


def int_case(label: str, x: Shape, k: int, *kernel: int, roles: Sequence[str] = (), **attrs: Any) -> Case:
    """A sample case: ``x`` counts channels, not pairs of them."""
    plain = conv_case(label, x, k, *kernel, bias=False, **attrs)
    params = {**plain.params, **dict.fromkeys(roles, (k,))}
    inputs = [(x[0], cells(x[1], attrs.get("reads", "pairs"), attrs.get("groups", 1)), *x[2:])]
    if attrs.get("other"):
        inputs.append((x[0], cells(k, attrs.get("adds", "pairs")), *x[2:]))
    return Case(label, inputs, params, attrs, ("int32", "int32")[: len(inputs)], (-(2**23), 2**23), WHOLES)


#: dtypes of the parameters of the cases.
WHOLES = {"weight": "int8", "offset": "int32"}
SCALED: dict[str, Any] = {"to": "float32"}
POSITIVE = {**SCALED, "first": (0.0, math.inf, 0.0, 0.0)}
ROUNDED = {"to": "pairs", "first": (-math.inf, math.inf, 2.0**17, -100.0)}
ADDED = {**ROUNDED, "own": 2.0, "other": 0.0625, "second": (0.0, math.inf, 4.0, -128.0)}
QUADS: dict[str, Any] = {"reads": "quads"}
TO_QUADS: dict[str, Any] = {**QUADS, **ROUNDED, "to": "quads"}
ADDED_TO_QUADS: dict[str, Any] = {**ADDED, **QUADS, "to": "quads"}
ADDED_QUADS: dict[str, Any] = {**ADDED, **QUADS, "to": "quads", "adds": "quads", "under": 7, "other": 4.0}
declare(
    IntConv,
    "int_conv2d",
    "`conv2d` of cells ``[N, C/2, H, W]`` (quads C/4), ``weight [K, C/groups, R, S]``, plus ``offset``.",
    axes=2,
    attrs=(*conv_attrs(2), *FINISH),
    samples=[
        int_case("1x1", (2, 16, 9, 7), 32, 1, 1),
        int_case("1x1 one pixel", (1, 5, 1, 1), 3, 1, 1),
        int_case("1x1 strided", (2, 24, 9, 8), 40, 1, 1, stride=2, roles=("offset",)),
        int_case("3x3", (2, 8, 10, 11), 16, 3, 3, padding=1, roles=("scale",), **SCALED),
        int_case("3x3 odd", (1, 7, 9, 8), 21, 3, 3, padding=1, roles=("scale", "shift"), **POSITIVE),
        int_case("7x7 stem", (2, 3, 32, 30), 24, 7, 7, stride=2, padding=3, roles=("offset",), **ROUNDED),
        int_case("rounded", (1, 40, 7, 9), 70, 3, 3, padding=1, roles=("scale",), **ROUNDED),
        int_case(
            "rounded twice", (2, 20, 6, 7), 33, 1, 1, roles=("scale", "shift"), **{**ADDED, "other": 0.0}
        ),
        int_case("added", (2, 20, 6, 7), 33, 1, 1, roles=("scale", "shift"), **ADDED),
        int_case("added, 3x3", (1, 9, 8, 7), 18, 3, 3, padding=1, roles=("offset", "scale"), **ADDED),
        int_case("many channels", (1, 1200, 5, 5), 40, 1, 1, roles=("scale",), **SCALED),
        int_case("dilated", (1, 16, 17, 18), 24, 3, 3, dilation=2, padding=2),
        int_case("asymmetric padding", (2, 6, 9, 10), 10, 3, 3, padding=(0, 1, 2, 3)),
        int_case("grouped", (2, 32, 9, 9), 64, 3, 3, groups=4, padding=1, roles=("scale",), **ROUNDED),
        int_case("grouped, odd", (1, 9, 8, 7), 12, 3, 3, groups=3, padding=1, roles=("scale",), **SCALED),
        int_case("depthwise", (1, 12, 8, 7), 12, 3, 3, groups=12, padding=1),
        int_case("quads, 1x1", (2, 18, 9, 7), 35, 1, 1, **QUADS),
        int_case("quads, 3x3", (1, 20, 10, 11), 70, 3, 3, padding=1, roles=("offset", "scale"), **TO_QUADS),
        int_case("quads, odd", (1, 7, 9, 8), 21, 3, 3, stride=2, padding=1, roles=("scale",), **TO_QUADS),
        int_case("quads, added", (2, 20, 6, 7), 33, 1, 1, roles=("scale", "shift"), **ADDED_QUADS),
        int_case("quads and pairs", (2, 20, 6, 7), 36, 3, 3, padding=1, **ADDED_TO_QUADS),
        int_case("quads to pairs", (1, 40, 7, 9), 70, 3, 3, padding=1, **{**TO_QUADS, "to": "pairs"}),
        int_case("quads, many channels", (1, 1200, 5, 5), 40, 1, 1, roles=("scale",), **QUADS, **SCALED),
        int_case("quads, grouped", (2, 36, 9, 9), 64, 3, 3, groups=4, padding=1, **TO_QUADS),
    ],
)
declare(
    IntConv,
    "int_conv1d",
    "`conv1d` of cells ``[N, C/2, L]`` (quads C/4), ``weight [K, C/groups, S]``, plus ``offset``.",
    axes=1,
    attrs=(*conv_attrs(1), *FINISH),
    samples=[
        int_case("one element", (1, 3, 1), 5, 1),
        int_case("3", (2, 17, 21), 20, 3, padding=1, roles=("scale",), **SCALED),
        int_case("strided", (3, 8, 30), 16, 5, stride=2, padding=2, roles=("offset", "scale"), **ROUNDED),
        int_case("dilated, grouped", (1, 16, 33), 24, 2, dilation=8, padding=(8, 0), groups=2),
        int_case("quads", (2, 17, 21), 20, 3, padding=1, roles=("scale",), **TO_QUADS),
    ],
)
declare(
    IntConv,
    "int_conv3d",
    "`conv3d` of cells ``[N, C/2, D, H, W]`` (quads C/4), ``weight [K, C/groups, T, R, S]`` + ``offset``.",
    axes=3,
    attrs=(*conv_attrs(3), *FINISH),
    samples=[
        int_case("one voxel", (1, 5, 1, 1, 1), 3, 1, 1, 1),
        int_case("3x3x3", (2, 17, 4, 6, 5), 20, 3, 3, 3, padding=1, roles=("scale",), **SCALED),
        int_case("strided", (1, 8, 5, 9, 7), 16, 3, 3, 3, padding=1, stride=2, roles=("offset",), **ROUNDED),
        int_case("quads", (1, 17, 4, 6, 5), 20, 3, 3, 3, padding=1, roles=("scale",), **TO_QUADS),
    ],
)  # fmt: skip


class IntLinear(Op):
    """Cells ``[..., C/2]`` (quads C/4) times ``weight [K, C]`` transposed, plus ``offset``: ``[..., K]``.

    A second input is one number that multiplies ``scale``.
    """

    name = "int_linear"
    kind = Kind.CONTRACTION
    arity = (1, 2)
    params = PARAMS
    attrs = FINISH

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        x, w, form = ins[0], params["weight"], attrs["reads"]
        checks.rank_at_least(self.name, x, 1, f"{form} [..., C/{EACH[form]}]")
        checks.rank(self.name, w, 2, "a weight [K, C]")
        if x[-1] != cells(w[1], form):
            raise SpecError(
                f"op 'int_linear': input {list(x)} has {x[-1]} {form} in its last axis, weight {list(w)} "
                f"expects {cells(w[1], form)}"
            )
        if attrs["own"]:
            raise SpecError(f"op 'int_linear': own is {attrs['own']}, but it adds no second input")
        if len(ins) > 1 and (ins[1] != () or attrs["to"] == "int32"):
            raise SpecError(
                f"op 'int_linear': input 1 is {list(ins[1])}, expected a factor of float32 results"
            )
        return (*x[:-1], check_finish(self.name, w[0], params, attrs))

    def dtype(self, ins: Sequence[str], params: Mapping[str, str], attrs: Attrs) -> str:
        return finish_dtype(self.name, ins, ("int32", "float32"), params, attrs)

    def flops(self, ins: Sequence[Shape], out: Shape, params: ParamShapes, attrs: Attrs) -> int:
        return 2 * math.prod(out[:-1]) * math.prod(params["weight"])

    def keeps_images_apart(self, ranks: Sequence[int], attrs: Attrs) -> bool:
        return ranks[0] >= 2

    def cases(self) -> Sequence[Case]:
        def case(label: str, x: Shape, k: int, *roles: str, **attrs: Any) -> Case:
            factor = attrs.pop("factor", False)
            params: dict[str, Shape] = {"weight": (k, x[-1]), **dict.fromkeys(roles, (k,))}
            first = (*x[:-1], cells(x[-1], attrs.get("reads", "pairs")))
            inputs: list[Shape] = [first, *([()] if factor else [])]
            dtypes = ("int32", "float32")[: len(inputs)]
            return Case(label, inputs, params, attrs, dtypes, (-(2**23), 2**23), WHOLES)

        return [
            case("one by one", (1, 1), 1),
            case("a vector", (7,), 3),
            case("many rows", (37, 48), 65, "offset"),
            case("wide in, narrow out", (2, 2050), 5, "scale", **SCALED),
            case("tokens", (2, 9, 40), 24, "scale", "shift", factor=True, **SCALED),
            case("a factor alone", (3, 33), 17, factor=True, **POSITIVE),
            case("rounded", (5, 64), 19, "scale", **ROUNDED),
            case("quads", (37, 50), 65, "offset", "scale", **TO_QUADS),
            case("quads, tokens", (2, 9, 40), 24, "scale", "shift", factor=True, **QUADS, **SCALED),
        ]


class Quads(Pairs):
    """``x - least`` rounded to 0 to 255, four by four along ``axis`` in cells of int32, zeros at the end."""

    name = "quads"
    arity = (1, 1)
    attrs = (*Pairs.attrs, Attr("least", a.integer(), 0, "the number that becomes 0"))
    samples = [
        Case("image", [(2, 18, 5, 7)]),
        Case("odd", [(1, 3, 9, 4)]),
        Case("many", [(1, 67, 3, 2)], attrs={"least": -2}),
        Case("volume", [(1, 5, 3, 2, 4)]),
        Case("vector", [(37,)], attrs={"axis": -1}),
        Case("tokens, odd", [(3, 4, 5, 19)], attrs={"axis": -1, "least": -128}),
        Case("groups", [(1, 20, 3, 4)], attrs={"groups": 4}),
    ]  # fmt: skip

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        if abs(attrs["least"]) > 2**14:
            raise SpecError(f"op 'quads': least is {attrs['least']}, expected a number of 15 bits")
        return super().shape(ins, params, attrs)
