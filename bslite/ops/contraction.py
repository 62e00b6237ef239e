"""Sums of products over a last axis: the fully connected layer, the matrix product of two values, and a layer
with weights for each group of rows: experts, each of which computes the rows sent to it.
"""

import math
from collections.abc import Mapping, Sequence

from bslite.errors import SpecError
from bslite.ops import checks
from bslite.ops.core import INTEGERS, Attrs, Case, Kind, Op, ParamShapes, Shape
from bslite.ops.values import Applied, Gradients, Value


class Linear(Op):
    """``x [..., C]`` times ``weight [K, C]`` transposed, plus ``bias [K]``, to ``[..., K]``."""

    name = "linear"
    kind = Kind.CONTRACTION
    params = {"weight": True, "bias": False}
    torch_name = "linear"
    onnx_name = "Gemm"

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        x, w = ins[0], params["weight"]
        checks.rank_at_least(self.name, x, 1, "[..., C]")
        checks.rank(self.name, w, 2, "a weight [K, C]")
        if x[-1] != w[1]:
            raise SpecError(
                f"op 'linear': input {list(x)} has {x[-1]} features in its last axis, "
                f"weight {list(w)} expects {w[1]}"
            )
        if "bias" in params:
            checks.param_shape(self.name, "bias", params["bias"], (w[0],), "(one per output feature)")
        return (*x[:-1], w[0])

    def flops(self, ins: Sequence[Shape], out: Shape, params: ParamShapes, attrs: Attrs) -> int:
        return 2 * math.prod(out) * params["weight"][1]

    def vjp(self, at: Applied, grad: Value) -> Gradients:
        (x,), weight = at.inputs, at.param("weight")
        k, c = weight.shape
        rows, grads = x.reshape(x.size // c, c), grad.reshape(grad.size // k, k)
        made: dict[int | str, Value] = {0: grads.matmul(weight).reshape(*x.shape)}
        return made | {"weight": grads.permute(1, 0).matmul(rows), "bias": grads.sum(0)}

    def keeps_images_apart(self, ranks: Sequence[int], attrs: Attrs) -> bool:
        return ranks[0] >= 2

    def cases(self) -> Sequence[Case]:
        def case(label: str, x: Shape, k: int, *, bias: bool = True) -> Case:
            params: dict[str, Shape] = {"weight": (k, x[-1])}
            if bias:
                params["bias"] = (k,)
            return Case(label, [x], params)

        return [
            case("one by one", (1, 1), 1),
            case("a vector", (7,), 3),
            case("one row", (1, 64), 10),
            case("few rows, no bias", (3, 33), 17, bias=False),
            case("many rows", (37, 48), 65),
            case("wide in, narrow out", (2, 1030), 5),
            case("narrow in, wide out", (4, 3), 259),
            case("one output", (5, 129), 1),
            case("tokens", (2, 9, 40), 24),
            case("rank 4", (2, 3, 5, 16), 11),
        ]


class MatMul(Op):
    """Batched matrix product ``[..., M, K] @ [..., K, N]`` to ``[..., M, N]``; the leading axes broadcast."""

    name = "matmul"
    kind = Kind.CONTRACTION
    arity = (2, 2)
    torch_name = "matmul"
    onnx_name = "MatMul"

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        x, y = ins
        checks.rank_at_least(self.name, x, 2, "a first input [..., M, K]")
        checks.rank_at_least(self.name, y, 2, "a second input [..., K, N]")
        if x[-1] != y[-2]:
            raise SpecError(
                f"op 'matmul': {list(x)} @ {list(y)}: {x[-1]} columns meet {y[-2]} rows, expected as many"
            )
        return (*checks.broadcast(self.name, [x[:-2], y[:-2]]), x[-2], y[-1])

    def flops(self, ins: Sequence[Shape], out: Shape, params: ParamShapes, attrs: Attrs) -> int:
        return 2 * math.prod(out) * ins[0][-1]

    def vjp(self, at: Applied, grad: Value) -> Gradients:
        x, y = at.inputs
        left, right = grad.matmul(y.transposed()), x.transposed().matmul(grad)
        return {0: left.sum_to(x.shape), 1: right.sum_to(y.shape)}

    def keeps_images_apart(self, ranks: Sequence[int], attrs: Attrs) -> bool:
        return len(set(ranks)) == 1 and ranks[0] >= 3

    samples = [
        Case("one by one", [(1, 1), (1, 1)]),
        Case("two matrices", [(5, 7), (7, 3)]),
        Case("outer product", [(6, 1), (1, 9)]),
        Case("inner product", [(1, 33), (33, 1)]),
        Case("attention scores", [(2, 3, 10, 8), (2, 3, 8, 10)]),
        Case("one matrix for a batch", [(4, 6, 5), (5, 7)]),
        Case("a batch for one matrix", [(6, 5), (4, 5, 7)]),
        Case("both broadcast", [(2, 1, 4, 3), (5, 3, 6)]),
    ]


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
