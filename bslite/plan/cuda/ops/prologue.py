"""Launches of a convolution together with the layer before it; `gemm.prologues` chooses the pairs."""

from dataclasses import replace

from bslite.kernels.contracts.activation import Activation
from bslite.kernels.contracts.cuda.gemm import (
    AFFINE,
    DEPTHWISE,
    GATE,
    Outputs,
    Separable,
    SeparableVariant,
    even,
    in_cells,
)
from bslite.kernels.contracts.record import Operand
from bslite.passes import Layer
from bslite.plan.core.lowering import CUDA
from bslite.plan.core.views import View
from bslite.plan.cuda.gemm.product import Before, Product, check_sizes, in_pairs, join
from bslite.plan.cuda.gemm.prologues import Prologue, element_slots, separable_of
from bslite.plan.cuda.gemm.separable_tiles import CELL, DEEP, SeparableChoice, choose_separable
from bslite.plan.cuda.gemm.separable_tiles import Separable as Problem
from bslite.plan.cuda.launch import CudaBuilder, launch
from bslite.plan.cuda.ops.conv import convolution, evenly, forwards
from bslite.plan.shared.activation import activation, affine
from bslite.plan.shared.conv import residual_of


def lower_together(b: CudaBuilder, prologue: Prologue) -> None:
    """Append one launch for both layers, or one for each where a view's layout rules out their kernel."""
    b.layer = prologue.members
    if prologue.kind != DEPTHWISE:
        _elementwise(b, prologue)
    elif not _separable(b, prologue):
        for layer in (prologue.first, prologue.then):
            b.layer = layer.members
            CUDA[layer.node.op](b, layer)


def _elementwise(b: CudaBuilder, prologue: Prologue) -> None:
    """Append the convolution with a batch norm or a gate as its prologue, reading the prologue's input."""
    first = prologue.first
    act, slots = activation(first.activation), element_slots(prologue)
    if prologue.kind == AFFINE:
        numbers = affine(b, first.node)
        assert numbers is not None
        before = Before(AFFINE, act, *numbers, slots=slots)
        convolution(b, prologue.then, prologue.value, before)
    else:
        assert prologue.gate is not None
        gate = forwards(b, b.read(prologue.gate))
        image = gate.strides[0] if gate.shape[0] > 1 else 0
        before = Before(GATE, act, gate.start, gate.start, image, slots)
        convolution(b, prologue.then, prologue.value, before, [gate])


def _separable(b: CudaBuilder, prologue: Prologue) -> bool:
    """Append a depthwise filter and a pointwise one; return False, and append none, if channels are odd."""
    first, then = prologue.first, prologue.then
    s = separable_of(b, prologue)
    choice = choose_separable(s, b.machine, b.tuning)
    assert choice is not None
    x, y, residual = forwards(b, b.read(prologue.value)), b.write(then.name), residual_of(b, then)
    made = [v for v in (y, residual) if v is not None]
    scattered = choice.strip < s.width or any(evenly(v) is None for v in made)
    outputs = Outputs(planes=s.width // choice.strip, lines=s.lines, pixels=choice.strip)
    for name, view in zip("yr", made, strict=False):
        image, _, line, pixel = view.strides
        strides = {f"{name}_row": pixel if scattered else evenly(view) or 0}
        if scattered:
            strides |= {f"{name}_image": image, f"{name}_plane": choice.strip * pixel, f"{name}_line": line}
        outputs = replace(outputs, **strides)
    strides_x = x.strides[0], x.strides[2], x.strides[3]
    if not (in_pairs([v.start for v in (x, *made)], [s.cols, s.terms, *strides_x]) and even(outputs)):
        return False
    bias, act = then.node.params.get("bias"), activation(then.activation)
    weights = Operand(b.const("filters", then.node.params["weight"]), 0)
    p = Product(
        s.rows, s.cols, s.terms, x.start, weights, y.start, x.strides[3], s.terms, outputs, [x, *made[1:]],
        [y], scatter=int(scattered), residual=None if residual is None else residual.start,
        bias=b.const("param", bias) if bias else None,
    )  # fmt: skip
    record = _record(b, first, p, x, s, choice)
    check_sizes(b, p)
    _launches(b, first, p, record, choice, s, act)
    return True


def _record(
    b: CudaBuilder, first: Layer, p: Product, x: View, s: Problem, choice: SeparableChoice
) -> Separable:
    """Return the record for whole sums, in floats, without the parameters of activations."""
    attrs, shift = first.node.attrs, first.node.params.get("bias")
    taps = Operand(b.const("taps_first", first.node.params["weight"]), 0)
    return Separable(
        p.x, taps, Operand(b.const("param", shift), 0) if shift else taps, p.w, p.biases, p.residual or p.y,
        p.y, p.rows, p.cols, p.terms, choice.chunk, col_tiles=-(-p.cols // choice.tile.cols), y_split=0,
        w_row=p.w_row, x_image=x.strides[0], x_line=x.strides[2], x_row=p.x_row,
        start_h=-attrs["padding"][0], start_w=-attrs["padding"][1], step_h=s.step[0], have_h=x.shape[2],
        have_w=x.shape[3], taps_h=s.taps[0], outputs=p.outputs, a=0.0, b=0.0, before_a=0.0, before_b=0.0,
    )  # fmt: skip


def _launches(
    b: CudaBuilder, first: Layer, p: Product, record: Separable, choice: SeparableChoice, s: Problem,
    act: Activation,
) -> None:  # fmt: skip
    """Append the product and, where sums are in parts, the join."""
    before = activation(first.activation)
    tile, parts = choice.tile, choice.parts
    biased = first.node.params.get("bias") is not None
    variant = SeparableVariant(
        tile.constants, DEEP, choice.run, (s.taps[1], s.step[1]), int(biased), before.function, p.scatter,
        int(p.bias is not None), int(p.residual is not None), act.function, tile.tensor,
    )  # fmt: skip
    record = replace(record, a=act.a, b=act.b, before_a=before.a, before_b=before.b)
    writes = list(p.writes)
    if parts > 1:
        memory = b.dense((parts, p.count))
        writes = [memory]
        variant = replace(variant, scatter=0, bias=0, residual=0, code="identity")
        record = replace(
            record, y=memory.start, r=p.residual or memory.start, y_split=p.count,
            outputs=replace(p.outputs, y_row=p.cols),
        )  # fmt: skip
    grid = (record.col_tiles * -(-p.rows // tile.rows), 1, parts)
    launch(b, in_cells(record, CELL), variant, grid, (tile.threads,), p.reads, writes)
    if parts > 1:
        join(b, p, memory, parts, act)
