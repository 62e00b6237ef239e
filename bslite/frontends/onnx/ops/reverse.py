"""The builder of sequences in reverse order, of lengths that are known."""

import numpy as np

from bslite.errors import SpecError
from bslite.frontends.common.unsupported import Unsupported
from bslite.frontends.onnx.builders import onnx_op
from bslite.frontends.onnx.ops.moves import axis_of, permuted, reshaped
from bslite.frontends.onnx.ops.slices import sliced
from bslite.frontends.onnx.site import Site
from bslite.frontends.onnx.values import Operand, Sizes, Value, at, fixed


@onnx_op("ReverseSequence")
def reverse_sequence(s: Site, x: Operand, lengths: Operand, *, batch_axis: int, time_axis: int) -> Operand:
    """Each sequence's first elements, as many as its length, in reverse order: a slice where all are whole,
    else a gather of steps.
    """
    batch, time = axis_of(batch_axis, x.rank), axis_of(time_axis, x.rank)
    if isinstance(lengths, Value):
        raise Unsupported("with lengths that are computed")
    each = lengths.arrays if isinstance(lengths, Sizes) else (lengths.data,)
    if all((count == at(x.shape[time], probe)).all() for probe, count in enumerate(each)):
        return sliced(s, x, time, -1, None, -1, last=True)
    counts = s.array(lengths, "its lengths").reshape(-1, 1)
    many, steps = (fixed(x.shape[axis], "the axes of its sequences") for axis in (batch, time))
    if counts.shape != (many, 1) or (counts < 0).any() or (counts > steps).any():
        raise SpecError(f"lengths {counts.reshape(-1).tolist()} for {many} sequences of {steps}")
    step = np.arange(steps)
    places = np.where(step < counts, counts - 1 - step, step) + steps * np.arange(many)[:, None]
    order = [batch, time, *(axis for axis in range(x.rank) if axis not in (batch, time))]
    moved = permuted(s, x, order, last=False)
    rows = reshaped(s, moved, (many * steps, *moved.shape[2:]), last=False)
    index = s.const(places.reshape(-1).astype(np.int64), "places")
    made = s.inner("gather", rows, index, axis=0)
    return permuted(s, reshaped(s, made, moved.shape, last=False), np.argsort(order).tolist())
