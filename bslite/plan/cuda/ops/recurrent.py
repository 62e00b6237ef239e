"""Recurrent layers: one product covers the inputs of all time steps; then the steps run. They run in one
resident launch, in a launch each or, with many sequences, in a matrix product and a gate launch each.
"""

from typing import Any, NamedTuple

from bslite.errors import EngineError
from bslite.explore.problem import GATES, Recurrent
from bslite.kernels.contracts.cuda.gemm import Outputs
from bslite.kernels.contracts.cuda.recurrent import Gates, GatesVariant, RecurrentVariant, Start, StartVariant
from bslite.kernels.contracts.record import Operand
from bslite.kernels.contracts.recurrent import Cell, cell_of
from bslite.passes import Layer
from bslite.plan.core.lowering import CUDA
from bslite.plan.core.views import NO_HALO, View
from bslite.plan.cuda.gemm.product import Product, append
from bslite.plan.cuda.gemm.tiles import FEW
from bslite.plan.cuda.launch import CudaBuilder, launch
from bslite.plan.cuda.ops.linear import rows_of
from bslite.plan.cuda.ops.move import fill_step
from bslite.plan.cuda.recurrent.tiles import Loops, by_products, choose, launched


class Pass(NamedTuple):
    """A pass over weights ``[cell.sums * units, depth]``, launched for one time step or for all; ``gate`` is
    the index of its first gate in the products with x.
    """

    cell: Cell
    units: int
    depth: int
    weights: Operand
    bias: Operand | None
    gate: int = 0


def _passes(b: CudaBuilder, layer: Layer, hidden: int, width: int) -> list[Pass]:
    node = layer.node
    key, bias_key = b.const("param", node.params["weight_hh"]), node.params.get("bias_hh")
    bias = Operand(b.const("param", bias_key), 0) if bias_key else None
    attrs = node.attrs
    first = cell_of(
        node.op, attrs.get("activation", ""), "weight_hr" in node.params, attrs.get("reset_after", True)
    )
    passes = [Pass(first, hidden, width, Operand(key, 0), bias)]
    if first is Cell.PROJECTED:
        down = Operand(b.const("param", node.params["weight_hr"]), 0)
        passes.append(Pass(Cell.PROJECTION, width, hidden, down, None))
    elif first is Cell.BEFORE:
        rest = Operand(bias.buffer, 2 * hidden) if bias else None
        passes.append(Pass(Cell.NEW, hidden, hidden, Operand(key, 2 * hidden * width), rest, gate=2))
    return passes


@CUDA.register("lstm", "gru", "rnn")
def lower_recurrent(b: CudaBuilder, layer: Layer) -> None:
    """Append the products with x for all steps, then the steps in the cheapest way."""
    node = layer.node
    op, attrs = node.op, node.attrs
    steps, batch, features = b.shapes[node.inputs[0]]
    hidden = b.shapes[layer.name][2]
    width = b.spec.params[node.params["weight_hh"]].shape[1]
    passes = _passes(b, layer, hidden, width)
    inputs = _input_products(b, layer, steps * batch, features, GATES[op] * hidden)
    home = b.write(layer.name, inner=-1)
    y = home if hidden == 1 or home.strides[2] == 1 else b.fresh(home.shape, 2, NO_HALO)
    if width < hidden:
        fill_step(b, y, 0.0)

    given = list(node.inputs[1:])
    lengths = b.flat(b.values[given.pop()]) if attrs["lengths"] else None
    started = [b.values[name] for name in given]
    cell = y
    if op == "lstm":
        cell = b.dense((batch, hidden))
        if len(started) > 1:
            b.copy(started[1], cell)
        else:
            fill_step(b, cell, 0.0)
    flag = inputs.start  # not read without lengths
    if lengths is not None:
        text = f"sequence length {{value}} is not between 1 and {steps}"
        flag = Operand(*b.flag(layer.name, text, beyond=True))
    peephole = node.params.get("peephole")
    run = _Run(
        Recurrent(op, hidden, features, steps, batch),
        {"reverse": int(attrs["reverse"]), "ragged": int(lengths is not None),
         "peephole": int(bool(peephole))},
        {
            "inputs": inputs.start, "cell": cell.start, "y": y.start, "flag": flag,
            "peepholes": Operand(b.const("param", peephole), 0) if peephole else inputs.start,
            "lengths": lengths.start if lengths is not None else inputs.start,
            "steps": steps, "sequences": batch, "hidden": hidden, "inputs_row": inputs.strides[0],
            "y_time": y.strides[0], "y_row": y.strides[1],
        },
        [inputs, *([lengths] if lengths is not None else [])],
        [y, *([cell] if cell is not y else [])],
    )  # fmt: skip
    whole = choose(run.problem, b.machine) if len(passes) == 1 else None
    many = b.tuning.recurrent_by_products
    if many is None:
        many = batch > FEW and (
            whole is None or by_products(run.problem, b.machine, b.tuning) < whole.seconds
        )
    if len(passes) == 1 and (whole is None or many):
        _by_products(b, layer, run, passes[0], started)
    else:
        loops = [whole or _launched(b, layer, p, batch) for p in passes]
        _by_loops(b, run, passes, loops, started, width)
    if y is not home:
        b.copy(y, home)


class _Run(NamedTuple):
    """The common state of both ways: options of the kernels, fields of their records (`Sequences`), views
    that they read, and views that they read and write.
    """

    problem: Recurrent
    options: dict[str, int]
    fields: dict[str, Any]
    reads: list[View]
    touched: list[View]


def _by_loops(
    b: CudaBuilder, run: _Run, passes: list[Pass], loops: list[Loops], started: list[View], width: int
) -> None:
    """Append the kernel that loops over units and sums: one launch, or one per step."""
    steps, batch, hidden = run.problem.steps, run.problem.batch, run.problem.hidden
    state = b.dense((2, batch, width, 2))
    count, threads = batch * width, min(256, b.machine.block_threads)
    first = started[0] if started else run.touched[0]
    record = Start(first.start, state.start, count, width, first.strides[-2], first.strides[-1])
    variant = StartVariant(threads, zeros=int(not started))
    launch(b, record, variant, [-(-count // threads)], [threads], started[:1], [state])
    touched = [state, *run.touched]
    update = between = state
    if len(passes) > 1:
        between = b.dense((2, batch, hidden, 2))
        touched.append(between)
    if passes[0].cell is Cell.BEFORE:
        update = b.dense((batch, hidden))
        touched.append(update)
    stays = len(passes) == 1 and loops[0].stays
    for s in range(1 if stays else steps):
        for p, cut in zip(passes, loops, strict=True):
            record = cut.tile.kernel(b.machine)(
                **run.fields, state=state.start, between=between.start, update=update.start,
                weights=p.weights, bias=p.bias or p.weights, first=s, stop=steps if stays else s + 1,
                depth=p.depth, width=width, units=cut.units, gate=p.gate,
            )  # fmt: skip
            variant = RecurrentVariant(
                int(p.cell), int(p.bias is not None), **run.options, tile=cut.tile, together=int(stays)
            )
            grid = [-(-p.units // cut.units), -(-batch // cut.tile.batch)]
            launch(b, record, variant, grid, [cut.tile.threads], [*run.reads, *touched], touched)


def _by_products(b: CudaBuilder, layer: Layer, run: _Run, p: Pass, started: list[View]) -> None:
    """Append, for each step, a product of all sequences' h with the weights, and a launch for the gates."""
    batch, hidden = run.problem.batch, run.problem.hidden
    cols, threads = p.cell.sums * hidden, min(256, b.machine.block_threads)
    h = b.dense((batch, hidden))
    if started:
        b.copy(started[0], h)
    else:
        fill_step(b, h, 0.0)
    touched = [h, *run.touched]
    for s in range(run.problem.steps):
        made = b.dense((batch, cols))
        apart = append(b, layer, Product(
            batch, cols, hidden, h.start, p.weights, made.start, hidden if batch > 1 else 0,
            hidden, Outputs(y_row=cols), [h], [made], apart=True,
        ))  # fmt: skip
        products = apart or made
        record = Gates(
            **run.fields, products=products.start, bias=p.bias or p.weights, h=h.start, step=s,
            parts=apart.shape[0] if apart else 1,
        )  # fmt: skip
        variant = GatesVariant(int(p.cell), int(p.bias is not None), **run.options, threads=threads)
        grid = [-(-batch * hidden // threads)]
        launch(b, record, variant, grid, [threads], [products, *run.reads, *touched], touched)


def _launched(b: CudaBuilder, layer: Layer, p: Pass, batch: int) -> Loops:
    """Return the cut of a pass launched for each step; raise EngineError where its sums are too long."""
    found = launched(b.machine, p.cell.sums, p.units, p.depth, batch)
    if found is None:
        raise EngineError(
            f"layer {layer.name!r}: a state of {p.depth} features; the GPU engine's recurrent kernel has no "
            "room for so many"
        )
    return found


def _input_products(b: CudaBuilder, layer: Layer, rows: int, features: int, sums: int) -> View:
    """Append ``weight_ih x + bias_ih`` of all steps and sequences; return it as ``[T*N, gates * H]``."""
    node = layer.node
    x = rows_of(b, b.read(node.inputs[0], inner=-1))
    out = b.dense((rows, sums))
    bias = node.params.get("bias_ih")
    append(b, layer, Product(
        rows, sums, features,
        x.start, Operand(b.const("param", node.params["weight_ih"]), 0), out.start,
        x.strides[0] if rows > 1 else 0, features, Outputs(y_row=sums), [x], [out],
        bias=b.const("param", bias) if bias else None,
    ))  # fmt: skip
    return out
