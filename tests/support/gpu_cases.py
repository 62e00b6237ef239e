"""A case of an op through ``backend="cuda"``, whatever that is: the simulator, PTX on the CPU, a GPU."""

import numpy as np

import bslite
from bslite import reference
from bslite.engines.cuda import engine
from bslite.ops import Case, Op
from bslite.plan.cuda.tuning import DEFAULT, Tuning
from bslite.spec import ModelSpec
from support.check import Array, assert_three_way, single_op_spec
from support.torch_oracle import torch_output

#: What rounding alone may do to a value of float32, relative to it: no answer can be expected to be nearer.
#: CUDA's functions are good to an ulp or two; the simulator's are rounded once, from float64.
HALF_ULP = 2.0**-25


def check_spec_on_cuda(spec: ModelSpec, *inputs: Array, tuning: Tuning = DEFAULT) -> Array:
    """As near to float64 as the reference in float32 is, and the same bits layer by layer."""
    (got,) = engine.run(spec, list(inputs), tuning=tuning)
    exact, peer = (reference.run(spec, list(inputs), kind)[0] for kind in (np.float64, np.float32))
    assert_three_way(got, peer, exact)
    (alone,) = engine.run(spec, list(inputs), layerwise=True, tuning=tuning)
    assert alone.tobytes() == got.tobytes()
    return got


def check_on_cuda(op: Op, case: Case, least: float = 0.0) -> None:
    """As near to float64 as torch on the CPU is; ``least``: as torch could be, where an answer is so short
    that torch's may be exact by chance.
    """
    spec, inputs = single_op_spec(op, case)
    exact = reference.run(spec, inputs, np.float64)[0]
    got = bslite.run(spec, inputs, backend="cuda")
    if op.arity[0] == 0:
        peer = reference.run(spec, inputs, np.float32)[0]
    else:
        node = spec.nodes[0]
        peer = torch_output(op, inputs, spec.node_params(node), node.attrs, np.float32)
    assert_three_way(got, peer, exact, least=least)
