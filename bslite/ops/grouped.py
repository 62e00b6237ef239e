"""A linear layer with weights for each group of rows: experts, each of which computes the rows sent to it."""

import math
from collections.abc import Mapping, Sequence

from bslite.errors import SpecError
from bslite.ops import checks
from bslite.ops.core import INTEGERS, Attrs, Case, Kind, Op, ParamShapes, Shape


class GroupedLinear(Op):
    """``x [T, C]`` times ``weight [E, K, C]`` transposed, to ``[T, K]``: rows from ``ends[e - 1]`` (0 for the
    first) up to ``ends[e]`` by matrix e. Rows behind all ``ends [E]`` are zero.

    No row is taken twice: where an end lies before an earlier one, its group is empty.
    """

    name = "grouped_linear"
    kind = Kind.CONTRACTION
    arity = (2, 2)
    params = {"weight": True}

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        (x, ends), w = ins, params["weight"]
        checks.rank(self.name, x, 2, "rows [T, C]")
        checks.rank(self.name, w, 3, "a weight [E, K, C]")
        checks.rank(self.name, ends, 1, "ends [E]")
        if x[1] != w[2]:
            raise SpecError(
                f"op 'grouped_linear': rows {list(x)} have {x[1]} features, weight {list(w)} expects {w[2]}"
            )
        if ends[0] != w[0]:
            raise SpecError(
                f"op 'grouped_linear': ends {list(ends)} of {ends[0]} groups, weight {list(w)} has {w[0]}"
            )
        return x[0], w[1]

    def dtype(self, ins: Sequence[str], params: Mapping[str, str], attrs: Attrs) -> str:
        if ins[1] not in INTEGERS:
            raise SpecError(f"op 'grouped_linear': ends are {ins[1]}, expected {' or '.join(INTEGERS)}")
        return super().dtype(ins[:1], params, attrs)

    def flops(self, ins: Sequence[Shape], out: Shape, params: ParamShapes, attrs: Attrs) -> int:
        return 2 * math.prod(out) * ins[0][1]

    def keeps_images_apart(self, ranks: Sequence[int], attrs: Attrs) -> bool:
        return False

    def cases(self) -> Sequence[Case]:
        def case(label: str, rows: int, groups: int, c: int, k: int, least: int = 0, most: int = 0) -> Case:
            ends = (least, most or rows + 1)
            return Case(
                label, [(rows, c), (groups,)], {"weight": (groups, k, c)}, dtypes=("float32", "int64"),
                integers=ends,
            )  # fmt: skip

        return [
            case("few rows, few groups", 9, 3, 12, 20),
            case("many groups", 60, 17, 33, 35),
            case("one group", 40, 1, 16, 64),
            case("long rows", 30, 4, 1100, 17),
            case("few outputs", 30, 4, 130, 5),
            case("ends outside", 12, 5, 24, 48, -3, 20),
            case("rows without a group", 50, 4, 40, 70, 0, 20),
        ]
