"""Comparisons, conditions, logic: values that broadcast, bools out, or one of two values chosen by one."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from bslite.errors import SpecError
from bslite.ops import attrs as a
from bslite.ops.binary import Binary, Broadcast
from bslite.ops.core import BYTES, INTEGERS, REGISTRY, Attr, Attrs, Case, Kind, Op, Shape, declare
from bslite.ops.values import Applied, Gradients, Value


class Comparison(Binary):
    """Base of the comparisons of two values of one dtype. Numbers compare with NaN as IEEE 754 has it."""

    bools: ClassVar[bool] = False  # does it compare bools too?

    def dtype(self, ins: Sequence[str], params: Mapping[str, str], attrs: Attrs) -> str:
        if ins[0] != ins[1] or (ins[0] == "bool" and not self.bools):
            raise SpecError(f"op {self.name!r} takes two values of one dtype, got {' and '.join(ins)}")
        return "bool"

    def cases(self) -> Sequence[Case]:
        cases = [*super().cases(), Case("a vector of bits", [(70,), (70,)], dtypes=["int32"] * 2)]
        if self.bools:
            cases.append(Case("bools", [(3, 7), (7,)], dtypes=["bool", "bool"]))
        return cases


declare(Comparison, "equal", "Whether both are equal.", onnx="Equal", torch="eq", bools=True)
declare(Comparison, "not_equal", "Whether both differ.", torch="ne", bools=True)
declare(Comparison, "less", "Whether the first is smaller.", onnx="Less", torch="lt")
declare(Comparison, "less_equal", "Whether the first is smaller or equal.", onnx="LessOrEqual", torch="le")
declare(Comparison, "greater", "Whether the first is larger.", onnx="Greater", torch="gt")
declare(
    Comparison, "greater_equal", "Whether the first is larger or equal.", onnx="GreaterOrEqual", torch="ge"
)


class Bitwise(Binary):
    """Base of the logical ops, which work on bools, or on integers bit by bit."""

    def dtype(self, ins: Sequence[str], params: Mapping[str, str], attrs: Attrs) -> str:
        if len(set(ins)) != 1 or ins[0] == "float32" or (self.name == "not" and ins[0] in BYTES):
            raise SpecError(
                f"op {self.name!r} takes bools, or integers of one dtype, got {' and '.join(ins)}"
            )
        return ins[0]

    def cases(self) -> Sequence[Case]:
        image: Shape = (2, 5, 4, 3)
        number = self.arity[0]
        shapes: list[list[Shape]] = [[(37,), (37,)], [image, (4, 1)], [(), ()]]
        return [
            Case(f"{dtype}, rank {len(given[0])}", given[:number], dtypes=[dtype] * number)
            for dtype in ("bool", "int64", "int32")
            for given in shapes
        ]


declare(
    Bitwise,
    "and",
    "Whether both are true; of integers, bit by bit.",
    onnx="And, BitwiseAnd",
    torch="logical_and, bitwise_and",
)
declare(
    Bitwise,
    "or",
    "Whether one or both are true; of integers, bit by bit.",
    onnx="Or, BitwiseOr",
    torch="logical_or, bitwise_or",
)
declare(
    Bitwise,
    "xor",
    "Whether exactly one is true; of integers, bit by bit.",
    onnx="Xor, BitwiseXor",
    torch="logical_xor, bitwise_xor",
)
declare(
    Bitwise,
    "not",
    "Whether it is false; of integers, every bit flipped.",
    onnx="Not, BitwiseNot",
    torch="logical_not, bitwise_not",
    arity=(1, 1),
)


class Where(Broadcast):
    """Takes the second input where the first is true, the third elsewhere; all three broadcast."""

    name = "where"
    arity = (3, 3)
    torch_name = "where"
    onnx_name = "Where"

    def dtype(self, ins: Sequence[str], params: Mapping[str, str], attrs: Attrs) -> str:
        if ins[0] != "bool" or ins[1] != ins[2]:
            raise SpecError(
                f"op 'where' takes a bool and two values of one dtype, got {ins[0]}, {ins[1]} and {ins[2]}"
            )
        return ins[1]

    def vjp(self, at: Applied, grad: Value) -> Gradients:
        condition, x, y = at.inputs
        found = condition.where(grad, 0.0), condition.where(0.0, grad)
        return {1: found[0].sum_to(x.shape), 2: found[1].sum_to(y.shape)}

    def cases(self) -> Sequence[Case]:
        image: Shape = (2, 19, 4, 3)
        return [
            Case("numbers", [(), (), ()], dtypes=["bool"]),
            Case("image", [image] * 3, dtypes=["bool"]),
            Case("a mask for all channels", [(2, 1, 4, 3), image, ()], dtypes=["bool"]),
            Case("a condition per channel", [(19, 1, 1), (1,), image], dtypes=["bool"]),
            Case("all widen", [(3, 1, 1), (5, 1), (7,)], dtypes=["bool"]),
            Case("rows", [(7, 40), (7, 40), (40,)], dtypes=["bool"]),
            *(Case(f"of {t}", [(9,), (3, 9), ()], dtypes=["bool", t, t]) for t in (*INTEGERS, "bool")),
        ]


class Test(Op):
    """Base of the ops that test each number by itself."""

    kind = Kind.POINTWISE

    def dtype(self, ins: Sequence[str], params: Mapping[str, str], attrs: Attrs) -> str:
        super().dtype(ins, params, attrs)
        return "bool"

    samples = [Case("number", [()]), Case("image", [(2, 19, 4, 3)]), Case("vector", [(301,)])]


declare(Test, "isnan", "Whether the element is NaN.", onnx="IsNaN")


class IsInf(Test):
    """Whether the element is infinite; the attributes say with which sign."""

    name = "isinf"
    attrs = (Attr("negative", a.boolean, True, "-inf too"), Attr("positive", a.boolean, True, "inf too"))
    torch_name = "isinf"
    onnx_name = "IsInf"

    def cases(self) -> Sequence[Case]:
        both = [{"negative": n, "positive": p} for n in (True, False) for p in (True, False)]
        return [
            Case(", ".join([case.label, *map(str, asked.values())]), case.inputs, attrs=asked)
            for case in super().cases()
            for asked in both
        ]


COMPARISONS = tuple(op.name for op in REGISTRY.values() if isinstance(op, Comparison))
