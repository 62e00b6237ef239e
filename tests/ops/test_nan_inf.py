"""NaN and Inf come out where torch has them come out: per op, for every runner of models.

A runner takes a one-op model and its inputs to the output. An engine joins the tests by an entry in RUNNERS.
"""

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from support.check import Array, all_cases, same_specials, single_op_spec
from support.torch_oracle import torch_output

import bslite
from bslite import InputError, reference
from bslite.ops import INTEGERS, Case, Kind, Op
from bslite.spec import ModelSpec, Node

pytestmark = pytest.mark.specials

Runner = Callable[[ModelSpec, Sequence[Array]], Array]
RUNNERS: dict[str, Runner] = {
    "cpu engine": lambda spec, inputs: bslite.run(spec, list(inputs)),
    "reference": lambda spec, inputs: reference.run(spec, inputs, np.float32)[0],
    "reference in float64": lambda spec, inputs: reference.run(spec, inputs, np.float64)[0],
}
POISONS = {
    "nan": [np.nan],
    "inf": [np.inf],
    "minus inf": [-np.inf],
    "one of each": [np.nan, np.inf, -np.inf],
    "nothing but nan": [np.nan] * 100_000,
}


def poisoned(inputs: Sequence[Array], index: int, values: Sequence[float]) -> list[Array]:
    """Copies of ``inputs``, with ``values`` at random places of input ``index``."""
    copies = [x.copy() for x in inputs]
    flat = copies[index].reshape(-1)
    places = np.random.default_rng(index).choice(flat.size, min(len(values), flat.size), replace=False)
    flat[places] = values[: len(places)]
    return copies


def signals(y: Array, node: Node) -> Array:
    """Where the complex numbers of a transform are finite; of real ones, which signals are. Which part is
    NaN, and whether a sum with infinities is infinite, depends on the order of its sums. So does whether the
    real part of a complex signal is finite where infinite imaginary parts are times zero.
    """
    finite = np.isfinite(y)
    if not node.attrs["real"]:
        return finite.all(-1)
    return np.array(0) if node.attrs["source"] == "complex" else finite.all(node.attrs["axis"])


@pytest.mark.parametrize(("op", "case"), all_cases(least_inputs=1))
def test_propagates_as_in_torch(op: Op, case: Case) -> None:
    spec, clean = single_op_spec(op, case)
    node = spec.nodes[0]
    # An infinite weight times the zeros around an image is NaN in torch; engines leave out what lies outside.
    filters = node.given.get("weight") if "conv" in op.name else None
    if op.name.endswith("_grad_weight"):
        filters = "x1"  # so is an infinite gradient of a window that reaches beyond it
    floats = [i for i, x in enumerate(clean) if x.dtype == np.float32 and f"x{i}" != filters]
    for (poison, values), index in itertools.product(POISONS.items(), floats):
        inputs = poisoned(clean, index, values)
        if op.name == "cast" and spec.dtypes[node.name] in INTEGERS:
            for runner in RUNNERS.values():
                with pytest.raises(InputError, match=r"op_under_test.*cannot be made"):
                    runner(spec, inputs)
            continue
        # in float64, where torch's kernels follow the definition (its float32 gelu makes NaN of Inf)
        want = torch_output(op, inputs, spec.node_params(node), node.attrs)
        for name, runner in RUNNERS.items():
            got = runner(spec, inputs)
            if op.name == "fourier":
                same = np.array_equal(signals(got, node), signals(want, node))
            else:
                same = same_specials(got, want) if want.dtype.kind == "f" else np.array_equal(got, want)
            assert same, f"{name}: {poison} in input {index}"


@pytest.mark.parametrize("runner", RUNNERS.values(), ids=RUNNERS)
def test_clean_input_makes_no_nan(runner: Runner) -> None:
    for param in all_cases():
        op, case = param.values
        if op.kind is not Kind.MOVEMENT:
            spec, inputs = single_op_spec(op, case)
            assert np.isfinite(runner(spec, inputs)).all(), f"{op.name}: {case.label}"
