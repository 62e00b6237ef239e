"""A model as a table: one row per layer with its shape and its cost. Plain text, no dependency."""

import math
from collections.abc import Container, Sequence
from dataclasses import dataclass

from bslite.ops import Shape
from bslite.spec.graph import Graph


@dataclass(frozen=True)
class LayerRow:
    """One layer at one input shape. ``traffic`` is the compulsory bytes: every operand element once."""

    name: str
    op: str
    inputs: tuple[str, ...]
    shape: Shape
    parameters: int
    flops: int
    traffic: int


def layer_rows(spec: Graph, inputs: Sequence[Shape] | None = None) -> list[LayerRow]:
    """A row per layer in order, for ``inputs`` shapes (the model's example shapes if None)."""
    shapes = spec.infer_shapes(inputs or [i.example for i in spec.inputs])
    rows = []
    for node in spec.nodes:
        ins, params, out = [shapes[i] for i in node.inputs], spec.param_shapes(node), shapes[node.name]
        op = node.declaration
        rows.append(
            LayerRow(
                node.name,
                node.op,
                node.inputs,
                out,
                sum(map(math.prod, params.values())),
                op.flops(ins, out, params, node.attrs),
                op.traffic(ins, out, params, node.attrs),
            )
        )
    return rows


def layer_table(spec: Graph, inputs: Sequence[Shape] | None = None) -> str:
    """`layer_rows` as aligned text with totals.

    MFLOP counts a multiply-add as two. MB (10^6 bytes) is what a layer must at least move: inputs, parameters
    and output once each, in float32. Parameters include the statistics of batch norms; one that several
    layers share is counted once in the total.
    """
    rows = layer_rows(spec, inputs)
    given = inputs or [i.example for i in spec.inputs]
    takes = ", ".join(f"{i.name} {list(s)}" for i, s in zip(spec.inputs, given, strict=True))
    used = {key for node in spec.nodes for key in node.params.values()}
    cells = [("layer", "op", "output", "params", "MFLOP", "MB")]
    cells += [(r.name, r.op, str(list(r.shape)), *_costs(r.parameters, r.flops, r.traffic)) for r in rows]
    total = _costs(
        sum(spec.params[key].size for key in used), sum(r.flops for r in rows), sum(r.traffic for r in rows)
    )
    cells.append(("total", "", "", *total))
    return "\n".join([f"{spec.name}: {len(rows)} layers, input {takes}", *ruled(cells, range(3))])


def ruled(cells: Sequence[Sequence[str]], words: Container[int]) -> list[str]:
    """Lines of equal columns, those of ``words`` to the left, the others, of numbers, to the right.

    A rule follows the first line, which names the columns, and stands before the last, of totals.
    """
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if i in words else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]
    rule = "-" * max(map(len, lines))
    return [lines[0], rule, *lines[1:-1], rule, lines[-1]]


def _costs(parameters: int, flops: int, traffic: int) -> tuple[str, str, str]:
    return f"{parameters:,}", f"{flops / 1e6:,.2f}", f"{traffic / 1e6:,.2f}"
