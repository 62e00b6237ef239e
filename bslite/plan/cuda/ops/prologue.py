"""A convolution with the layer before it in one launch; prologues.py says which."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from bslite.plan.core.lowering import CUDA
from bslite.plan.core.views import View
from bslite.plan.cpu.ops.conv import residual_of
from bslite.plan.cuda.gemm.product import (
    NUMBERS,
    STRIDES,
    Before,
    Product,
    check_sizes,
    in_pairs,
    join,
    parts_of,
)
from bslite.plan.cuda.gemm.prologues import Prologue, element_slots, separable_of
from bslite.plan.cuda.gemm.separable_tiles import CELL, DEEP, SeparableChoice, choose_separable
from bslite.plan.cuda.launch import CudaBuilder, untyped
from bslite.plan.cuda.ops.conv import convolution, evenly, forwards, library_of
from bslite.plan.shared.activation import activation, affine


def lower_together(b: CudaBuilder, prologue: Prologue) -> None:
    """Append the launch of both layers; their own, where views do not lie as its kernel needs them."""
    b.layer = prologue.members
    if prologue.kind != "depthwise":
        _elementwise(b, prologue)
    elif not _separable(b, prologue):
        for layer in (prologue.first, prologue.then):
            b.layer = layer.members
            CUDA[layer.node.op](b, layer)


def _elementwise(b: CudaBuilder, prologue: Prologue) -> None:
    """A batch norm or a gate: the convolution reads what that reads."""
    first = prologue.first
    name, act_a, act_b = activation(first.activation)
    slots, ends = element_slots(prologue), {"function": name, "a": act_a, "b": act_b}
    form: dict[str, Any] = {"before": {"kind": prologue.kind, **ends}}
    gates: list[View] = []
    if prologue.kind == "affine":
        numbers = affine(b, first.node)
        assert numbers is not None
        before = Before("affine", name, act_a, act_b, *numbers, slots=slots)
    else:
        assert prologue.gate is not None
        gate = forwards(b, b.read(prologue.gate))
        image = gate.strides[0] if gate.shape[0] > 1 else 0
        before = Before("gate", name, act_a, act_b, (gate.buffer, gate.offset), None, image, slots)
        gates, form["gate"] = [gate], asdict(gate)
    convolution(b, prologue.then, prologue.value, before, gates, form)


def _separable(b: CudaBuilder, prologue: Prologue) -> bool:
    """A depthwise filter and a pointwise one; False, and nothing appended, if channels are not in pairs."""
    first, then = prologue.first, prologue.then
    s = separable_of(b, prologue)
    choice = choose_separable(s, b.machine)
    assert choice is not None
    x, y, residual = forwards(b, b.read(prologue.value)), b.write(then.name), residual_of(b, then)
    made = [v for v in (y, residual) if v is not None]
    scattered = choice.strip < s.width or any(evenly(v) is None for v in made)
    attrs = first.node.attrs
    numbers: dict[str, int] = {
        **NUMBERS, "rows": s.rows, "cols": s.cols, "terms": s.terms, "chunk": choice.chunk, "w_row": s.terms,
        "planes": s.width // choice.strip, "lines": s.lines, "pixels": choice.strip,
        "x_image": x.strides[0], "x_line": x.strides[2], "x_row": x.strides[3],
        "start_h": -attrs["padding"][0], "start_w": -attrs["padding"][1], "step_h": s.step[0],
        "have_h": x.shape[2], "have_w": x.shape[3], "taps_h": s.taps[0],
    }  # fmt: skip
    for name, view in zip("yr", made, strict=False):
        image, _, line, pixel = view.strides
        numbers |= {f"{name}_row": pixel if scattered else evenly(view) or 0}
        if scattered:
            numbers |= {f"{name}_image": image, f"{name}_plane": choice.strip * pixel, f"{name}_line": line}
    ours = [(v.buffer, v.offset) for v in (x, *made)]
    if not in_pairs(b, ours, [s.cols, *(numbers[name] for name in STRIDES)]):
        return False
    bias, ends = then.node.params.get("bias"), activation(then.activation)
    p = Product(
        s.rows, s.cols, s.terms, ours[0], (b.const("filters", then.node.params["weight"]), 0), ours[1],
        numbers, [x, *made[1:]], [y], scatter=int(scattered), residual=ours[2] if residual else None,
        bias=b.const("param", bias) if bias else None, library=library_of(then, x, y, residual),
    )  # fmt: skip
    check_sizes(b, p)
    _launches(b, prologue, p, choice, {"function": ends[0], "a": ends[1], "b": ends[2]})
    return True


def _launches(
    b: CudaBuilder, prologue: Prologue, p: Product, choice: SeparableChoice, ends: dict[str, Any]
) -> None:
    """Append the product, and the join where sums are in parts."""
    first, s = prologue.first, separable_of(b, prologue)
    name, act_a, act_b = activation(first.activation)
    tile, parts, at = choice.tile, choice.parts, len(b.steps)
    col_tiles = -(-p.cols // tile.cols)
    shift = first.node.params.get("bias")
    variant = {
        "tile": tile.constants, "deep": DEEP, "run": choice.run, "window": (s.taps[1], s.step[1]),
        "biased": int(shift is not None), "before_code": name, "scatter": p.scatter,
        "bias": int(p.bias is not None), "residual": int(p.residual is not None), "code": ends["function"],
    }  # fmt: skip
    numbers, y, writes = dict(p.numbers), p.y, list(p.writes)
    if parts > 1:
        memory = parts_of(b, p, parts)
        y, writes = (memory.buffer, 0), [memory]
        variant |= {"scatter": 0, "bias": 0, "residual": 0, "code": "identity"}
        numbers |= {"y_row": p.cols, "y_split": p.rows * p.cols}
    taken = (
        "rows", "cols", "terms", "chunk", "y_split", "w_row", "y_row", "r_row", "planes", "lines", "pixels",
        "x_image", "x_line", "x_row", "start_h", "start_w", "step_h", "have_h", "have_w", "taps_h",
        "y_image", "y_plane", "y_line", "r_image", "r_plane", "r_line",
    )  # fmt: skip
    taps = b.const("taps_first", first.node.params["weight"])
    untyped(
        b, "gemm_depthwise", variant, (col_tiles * -(-p.rows // tile.rows), 1, parts), (tile.threads,),
        {n: numbers[n] // CELL if n in STRIDES else numbers[n] for n in taken}
        | {"col_tiles": col_tiles, "a": ends["a"], "b": ends["b"], "before_a": act_a, "before_b": act_b},
        {"x": p.x, "taps": (taps, 0), "shifts": (b.const("param", shift) if shift else taps, 0), "w": p.w,
         "biases": (p.bias, 0) if p.bias else p.w, "r": p.residual or y, "y": y},
        p.reads, writes,
    )  # fmt: skip
    if parts > 1:
        join(b, p, memory, parts, p.numbers, ends)
    padding = first.node.attrs["padding"]
    if p.library and padding[:2] == padding[2:]:
        before = {
            "kind": "depthwise", "function": name, "a": act_a, "b": act_b, "biased": shift is not None,
            "stride": first.node.attrs["stride"], "padding": padding[:2],
        }  # fmt: skip
        b.steps[at].library = {**p.library, "before": before, "steps": len(b.steps) - at, **ends}
