"""Every op, every case, on the CPU engine: against float64, as near as torch's float32 is; the same bits
every time, at any number of threads, and layer by layer.
"""

import numpy as np
import pytest
from support.check import all_cases, assert_three_way, single_op_spec
from support.graphs import one_op
from support.plans import gpu_plan_of
from support.torch_oracle import torch_output

import bslite
from bslite import ops, reference
from bslite.ops import Case, Op
from bslite.ops.pointwise import IDENTITIES
from bslite.ops.reduce import REDUCED
from bslite.plan.core.lowering import CPU


def test_every_op_has_a_kernel() -> None:
    from bslite.plan.cpu import build  # noqa: F401  (registers them)

    dropped, rewritten = set(IDENTITIES), {"batch_norm_given", "binary_cross_entropy"}
    assert set(ops.REGISTRY) - set(CPU) == dropped | rewritten


@pytest.mark.parametrize(("op", "case"), all_cases())
def test_three_way(op: Op, case: Case) -> None:
    spec, inputs = single_op_spec(op, case)
    exact = reference.run(spec, inputs, np.float64)[0]
    got = bslite.run(spec, inputs, threads=1)
    if op.arity[0] == 0:
        peer = reference.run(spec, inputs, np.float32)[0]
    else:
        node = spec.nodes[0]
        peer = torch_output(op, inputs, spec.node_params(node), node.attrs, np.float32)
    assert_three_way(got, peer, exact)
    for how in ({"threads": 2}, {"threads": 1}, {"threads": 2}, {"layerwise": True}):
        assert bslite.run(spec, inputs, **how).tobytes() == got.tobytes(), how


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("k", [1, 9, 24, 25, 500, 999, 1000])
def test_topk_of_equals_takes_the_first(k: int, largest: bool) -> None:
    """Rows of few different values, NaN and infinities among them, against a stable sort."""
    values = np.array([0, 1, -1, np.inf, -np.inf, np.nan, 0.5], np.float32)
    x = np.random.default_rng(k).choice(values, (5, 1000))
    spec = one_op("topk", x, k=k, axis=-1, largest=largest)
    rank = np.where(np.isnan(x), np.inf, x) + np.isnan(x)  # inf + 1 is inf: NaN by the second key
    order = np.lexsort([np.where(largest, -rank, rank), np.isnan(x) != largest], -1)
    for threads in (1, 2):
        np.testing.assert_array_equal(bslite.run(spec, x, threads=threads), order[:, :k])


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("name", REDUCED)
def test_a_number_may_be_reduced(name: str, keepdim: bool) -> None:
    """As a loss may be, which is one already."""
    x = np.array(1.5, np.float32)
    spec = one_op(name, x, keepdim=keepdim)
    (want,) = reference.run(spec, [x], np.float32)
    for how in ({"threads": 1}, {"threads": 2}, {"layerwise": True}):
        np.testing.assert_allclose(bslite.run(spec, x, **how), want, rtol=1e-6)
    assert gpu_plan_of(spec, ()).outputs[0].shape == ()
