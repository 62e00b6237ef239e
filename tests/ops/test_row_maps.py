"""The declared map from output rows to input rows: what it leaves out must not matter to an output row."""

from typing import Any

import numpy as np
import pytest
from support.check import all_cases, arguments, runs, unlike

from bslite.ops import Case, Op


def mapped_cases() -> list[Any]:
    """Cases on images of ops that declare a row map."""
    found = []
    for param in all_cases(least_inputs=1):
        op, case = param.values
        attrs = arguments(op, case)[2]
        images = [x for x in case.inputs if len(x) == 4]
        if images and len(images) == len(case.inputs) and op.rows(case.params, attrs):
            found.append(param)
    return found


@pytest.mark.parametrize(("op", "case"), mapped_cases())
def test_an_output_row_depends_on_its_input_rows_only(op: Op, case: Case) -> None:
    inputs, function, integers = runs(op, case)
    rows = op.rows(case.params, arguments(op, case)[2])
    assert rows is not None
    want = function(*inputs)
    for p in range(want.shape[2]):
        first = p * rows.stride - rows.before
        kept = slice(max(first, 0), max(first + rows.extent, 0))
        others = []
        for x in inputs:
            other = unlike(x, integers)
            read = kept if x.shape[2] > 1 else slice(None)  # a broadcast input has one row for all
            other[:, :, read] = x[:, :, read]
            others.append(other)
        np.testing.assert_array_equal(function(*others)[:, :, p], want[:, :, p])


def test_most_windowed_and_pointwise_cases_are_covered() -> None:
    names = {param.values[0].name for param in mapped_cases()}
    assert names >= {"conv2d", "max_pool2d", "avg_pool2d", "batch_norm", "lrn"}
    assert names >= {"relu", "add", "concat", "pad", "slice"}
