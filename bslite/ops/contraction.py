"""Sums of products over a last axis: the fully connected layer, the same with weights of few bits, the matrix
product of two values, and a layer with weights for each group of rows: experts, each of which computes the
rows sent to it.
"""

import math
from collections.abc import Mapping, Sequence

from bslite.errors import SpecError
from bslite.ops import attrs as a
from bslite.ops import checks
from bslite.ops.core import INTEGERS, Attr, Attrs, Case, Kind, Op, ParamShapes, Shape
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


class BlockLinear(Op):
    """``x [..., C]`` times the transpose of a matrix of numbers of 4 or 8 bits, plus ``bias [K]``.

    A row of ``weight [K, blocks, bytes]`` has its C numbers block by block, the lower half of a byte first,
    and anything behind them. A number q stands for ``(q - zero) * scale``, with ``scale [K, blocks]`` and
    ``zero [K, blocks]``; without one, zero is half the range.
    """

    name = "block_linear"
    kind = Kind.CONTRACTION
    params = {"weight": True, "scale": True, "zero": False, "bias": False}
    attrs = (Attr("bits", a.integer(1), 4, "of a number: 4 or 8"),)

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        x, w = ins[0], params["weight"]
        checks.rank_at_least(self.name, x, 1, "[..., C]")
        checks.rank(self.name, w, 3, "a weight [K, blocks, bytes]")
        if attrs["bits"] not in (4, 8):
            raise SpecError(f"op 'block_linear': numbers of {attrs['bits']} bits, expected 4 or 8")
        block = self.block(w, attrs)
        if not 0 <= w[1] * block - x[-1] < block:
            raise SpecError(
                f"op 'block_linear': input {list(x)} has {x[-1]} features in its last axis, weight {list(w)} "
                f"has {w[1]} blocks of {block}"
            )
        for role in ("scale", "zero"):
            if role in params:
                checks.param_shape(self.name, role, params[role], w[:2], "(one per block)")
        if "bias" in params:
            checks.param_shape(self.name, "bias", params["bias"], (w[0],), "(one per output feature)")
        return (*x[:-1], w[0])

    def dtype(self, ins: Sequence[str], params: Mapping[str, str], attrs: Attrs) -> str:
        if params["weight"] != "uint8":
            raise SpecError(f"op 'block_linear': parameter 'weight' is {params['weight']}, expected uint8")
        return super().dtype(ins, {role: of for role, of in params.items() if role != "weight"}, attrs)

    @staticmethod
    def block(weight: Shape, attrs: Attrs) -> int:
        """The numbers of a block."""
        return weight[2] * 8 // int(attrs["bits"])

    def flops(self, ins: Sequence[Shape], out: Shape, params: ParamShapes, attrs: Attrs) -> int:
        return 2 * math.prod(out) * ins[0][-1]

    def traffic(self, ins: Sequence[Shape], out: Shape, params: ParamShapes, attrs: Attrs) -> int:
        return super().traffic(ins, out, params, attrs) - 3 * math.prod(params["weight"])

    def keeps_images_apart(self, ranks: Sequence[int], attrs: Attrs) -> bool:
        return ranks[0] >= 2

    def cases(self) -> Sequence[Case]:
        def case(label: str, x: Shape, k: int, block: int, *roles: str, bits: int = 4) -> Case:
            blocks = -(-x[-1] // block)
            each = {"scale": (k, blocks), "zero": (k, blocks), "bias": (k,)}
            params = {role: each[role] for role in ("scale", *roles)}
            params["weight"] = k, blocks, block * bits // 8
            return Case(label, [x], params, {"bits": bits}, param_dtypes={"weight": "uint8"})

        return [
            case("one by one", (1, 1), 1, 2),
            case("a vector", (32,), 40, 32),
            case("one row", (1, 256), 100, 32, "bias"),
            case("rows", (3, 200), 130, 16, "zero"),
            case("many rows", (37, 640), 65, 128, "zero", "bias"),
            case("tokens", (2, 9, 96), 24, 32),
            case("a block that is not full", (5, 75), 33, 32, "bias"),
            case("one block a row", (2, 1040), 20, 1040, bits=8),
            case("blocks of odd sizes", (4, 60), 17, 12, "zero"),
            case("bytes", (1, 512), 70, 64, bits=8),
            case("bytes, zeros", (6, 1100), 35, 16, "zero", "bias", bits=8),
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
