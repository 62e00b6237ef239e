"""A case of an op through ``backend="cuda"``, whatever that is: the simulator, PTX on the CPU, a GPU."""

from collections.abc import Mapping
from typing import Any

import numpy as np

import bslite
from bslite import reference
from bslite.engines.cuda import engine
from bslite.ops import Case, Op
from bslite.plan.cuda.tuning import DEFAULT, Tuning
from bslite.spec import GraphBuilder, ModelSpec
from support.check import Array, assert_three_way, single_op_spec
from support.torch_oracle import torch_output

#: What rounding alone may do to a value of float32, relative to it: no answer can be expected to be nearer.
#: CUDA's functions are good to an ulp or two; the simulator's are rounded once, from float64.
HALF_ULP = 2.0**-25


def spec_of(op: str, *inputs: Array, params: Mapping[str, Array] | None = None, **attrs: Any) -> ModelSpec:
    """A model of one op, named "y", for inputs as these."""
    graph = GraphBuilder(op)
    graph.params.update(params or {})
    given = [graph.input(f"x{i}", x.shape, dtype=x.dtype.name) for i, x in enumerate(inputs)]
    return graph.build(graph.add(op, "y", *given, params={role: role for role in params or {}}, **attrs))


@np.errstate(all="ignore")
def answers(op: str, *inputs: Array, **attrs: Any) -> tuple[Array, Array]:
    """The engine's, and the reference's in float64."""
    spec = spec_of(op, *inputs, **attrs)
    return bslite.run(spec, list(inputs), backend="cuda"), reference.run(spec, list(inputs), np.float64)[0]


@np.errstate(all="ignore")
def check_near(got: Array, spec: ModelSpec, *inputs: Array) -> None:
    """As near to float64 as the reference in float32 is."""
    exact, peer = (reference.run(spec, list(inputs), kind)[0] for kind in (np.float64, np.float32))
    assert_three_way(got, peer, exact)


def check_spec_on_cuda(spec: ModelSpec, *inputs: Array, tuning: Tuning = DEFAULT) -> Array:
    """As near to float64 as the reference in float32 is, and the same bits layer by layer."""
    (got,) = engine.run(spec, list(inputs), tuning=tuning)
    check_near(got, spec, *inputs)
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
