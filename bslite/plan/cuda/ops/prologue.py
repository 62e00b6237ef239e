"""The launch of a convolution together with the layer before it; `gemm.prologues` chooses the pairs."""

from bslite.kernels.contracts.cuda.gemm import AFFINE, GATE
from bslite.plan.cuda.gemm.product import Before
from bslite.plan.cuda.gemm.prologues import Prologue, element_slots
from bslite.plan.cuda.launch import CudaBuilder
from bslite.plan.cuda.ops.conv import convolution, forwards
from bslite.plan.shared.activation import activation, affine


def lower_together(b: CudaBuilder, prologue: Prologue) -> None:
    """Append the convolution with a batch norm or a gate as its prologue, reading the prologue's input."""
    b.layer = prologue.members
    first = prologue.first
    act, slots = activation(first.activation), element_slots(prologue)
    if prologue.kind == AFFINE:
        numbers = affine(b, first.node)
        assert numbers is not None
        convolution(b, prologue.then, prologue.value, Before(AFFINE, act, *numbers, slots=slots))
    else:
        assert prologue.gate is not None
        gate = forwards(b, b.read(prologue.gate))
        image = gate.strides[0] if gate.shape[0] > 1 else 0
        before = Before(GATE, act, gate.start, gate.start, image, slots)
        convolution(b, prologue.then, prologue.value, before, [gate])
