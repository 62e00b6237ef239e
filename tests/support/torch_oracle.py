"""Each op as torch computes it: op name -> a call on tensors. The tests' only use of torch as a judge."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from bslite.ops import Case, Op
from bslite.reference import call
from bslite.reference.executor import in_precision
from support import torch_judges_places, torch_judges_recurrent
from support.check import FLOAT64, Array, arguments, assert_three_way, rel_l2
from support.torch_judges import ORACLE, Tensor, oracle

assert torch_judges_places
assert torch_judges_recurrent  # imported, they register theirs


def torch_output(
    op: Op,
    inputs: Sequence[Array],
    params: Mapping[str, Array],
    attrs: Mapping[str, Any],
    dtype: npt.DTypeLike = np.float64,
) -> Array:
    """The op's output by torch in ``dtype``; ``attrs`` parsed."""

    def tensor(x: Array) -> Tensor:
        return torch.from_numpy(np.array(in_precision(x, dtype)))

    with torch.no_grad():
        y = ORACLE[op.name](*map(tensor, inputs), **{r: tensor(p) for r, p in params.items()}, **attrs)
    return in_precision(y.numpy(), dtype)


def check_reference(op: Op, case: Case, seed: int = 0) -> None:
    """The reference's function agrees with torch on ``case``: in float64, and three-way in float32."""
    inputs, params, attrs = arguments(op, case, seed)
    exact = call(op.name, inputs, params, attrs, np.float64)
    declared = op.dtype([x.dtype.name for x in inputs], {r: p.dtype.name for r, p in params.items()}, attrs)
    assert exact.dtype == (np.float64 if declared == "float32" else declared), f"{op.name} made {exact.dtype}"
    wide = torch_output(op, inputs, params, attrs)
    error = rel_l2(exact, wide) if declared == "float32" else float(not np.array_equal(exact, wide))
    assert error <= FLOAT64, f"relative error {error:.3g} against torch in float64"
    peer = torch_output(op, inputs, params, attrs, np.float32)
    assert_three_way(call(op.name, inputs, params, attrs, np.float32), peer, exact)


@oracle
def attention(q, k, v, mask=None, *, scale, is_causal, grouped, no_key):  # type: ignore[no-untyped-def]
    if no_key == "zero" and not (is_causal and mask is not None):
        with sdpa_kernel(SDPBackend.MATH):  # others leave keys out, with what NaN among them does
            return F.scaled_dot_product_attention(
                q, k, v, mask, is_causal=is_causal, scale=scale, enable_gqa=grouped
            )
    assert not grouped
    scores = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        scores = scores + torch.full_like(scores, -np.inf).triu(1)
    weights = (scores if mask is None else scores + mask).softmax(-1)
    return weights @ v
