"""The oracle against torch, op by op and case by case; and that no op is left out of the comparison."""

import inspect

import numpy as np
import pytest
import torch
from support.check import Array, all_cases, same_specials
from support.torch_oracle import ORACLE, check_reference, torch_output

from bslite import ops, reference
from bslite.ops import Case, Op
from bslite.ops.activation import Activation


@pytest.mark.parametrize(("op", "case"), all_cases())
def test_op(op: Op, case: Case) -> None:
    check_reference(op, case)


def test_every_op_has_reference_cases_and_oracle() -> None:
    assert set(reference.FUNCTIONS) == set(ops.REGISTRY) == set(ORACLE)
    for op in ops.REGISTRY.values():
        labels = [case.label for case in op.cases()]
        assert labels, f"{op.name} has no cases"
        assert len(labels) == len(set(labels)), f"{op.name} repeats a label"
        assert op.__doc__, f"{op.name} has no docstring"


@pytest.mark.parametrize("op", ops.REGISTRY.values(), ids=lambda op: op.name)
def test_reference_takes_what_the_op_declares(op: Op) -> None:
    keywords = {
        name: p
        for name, p in inspect.signature(reference.FUNCTIONS[op.name]).parameters.items()
        if p.kind is inspect.Parameter.KEYWORD_ONLY
    }
    assert set(keywords) == {attr.name for attr in op.attrs} | set(op.params)
    optional = {name for name, p in keywords.items() if p.default is not inspect.Parameter.empty}
    assert optional == {role for role, required in op.params.items() if not required}


@pytest.mark.parametrize("role", ["weight", "bias"])
@pytest.mark.parametrize("name", ["batch_norm", "layer_norm", "group_norm"])
def test_scale_and_shift_are_each_optional(name: str, role: str) -> None:
    op = ops.get(name)
    case = op.cases()[1]
    params = {r: s for r, s in case.params.items() if r != role}
    check_reference(op, Case("without one", case.inputs, params, case.attrs))


ACTIVATIONS = [op for op in ops.REGISTRY.values() if isinstance(op, ops.activation.Activation)]
BENDS = [0.0, 1e-30, 1e-6, 0.5, 3.0, 6.0, 9.0, 40.0, 1e3, 1e30, np.inf]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("op", ACTIVATIONS, ids=lambda op: op.name)
def test_activation_where_it_bends_and_far_out(op: type[Activation], dtype: type) -> None:
    x: Array = np.array([*BENDS, *(-b for b in BENDS), np.nan], dtype)
    ulp = float(np.finfo(dtype).eps)
    for given in op.variants:
        attrs = ops.parse_attrs(op, given)
        with np.errstate(all="ignore"):
            got = reference.FUNCTIONS[op.name](x, **attrs)
            # in float64: torch's float32 gelu makes NaN of Inf; 2**1000 is one in float32
            want = torch_output(op, [x], {}, attrs).astype(dtype)
        assert same_specials(got, want)
        finite = np.isfinite(want)
        # absolute, too: below -5 torch computes gelu's 1 + erf(x) with cancellation
        np.testing.assert_allclose(got[finite], want[finite], rtol=4 * ulp, atol=8 * ulp)


def test_channel_shuffle_is_reshape_permute_reshape() -> None:
    x = np.random.default_rng(0).standard_normal((2, 12, 3, 4))
    groups = 3

    def step(y: Array, name: str, **attrs: object) -> Array:
        return reference.FUNCTIONS[name](y, **ops.parse_attrs(ops.get(name), attrs))

    y = step(x, "reshape", shape=(0, groups, 12 // groups, 3, 4))
    y = step(y, "permute", order=(0, 2, 1, 3, 4))
    y = step(y, "reshape", shape=(0, -1, 3, 4))
    want = torch.nn.functional.channel_shuffle(torch.from_numpy(x), groups)
    np.testing.assert_array_equal(y, want.numpy())
