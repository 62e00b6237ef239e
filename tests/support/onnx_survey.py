"""What of ONNX's own node tests runs through the backend: ``python tests/support/onnx_survey.py [op ...]``.

Lists for each operator the tests passed and failed, with the reasons: where to go on.
"""

import collections
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from bslite.errors import BsliteError
from bslite.onnx import backend

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.onnx_conformance import Tested, node_tests, within_dtypes


def flat(values: Any) -> list[Any]:
    """Arrays, those in sequences too; a sequence of nothing is [], and what is left out an empty array."""
    made: list[Any] = []
    for v in values:
        made += flat(v) if isinstance(v, (list, tuple)) else [np.zeros(0) if v is None else v]
    return made


def outcome(test: Any) -> str:
    """ "" if it passes, else why not."""
    try:
        rep = backend.prepare(test.model)
        for inputs, want in test.data_sets:
            for got, expected in zip(*map(flat, (rep.run(list(inputs)), want)), strict=True):
                if got.dtype != expected.dtype or got.shape != expected.shape:
                    return f"got {got.dtype}{got.shape}, expected {expected.dtype}{expected.shape}"
                np.testing.assert_allclose(got, expected, rtol=test.rtol, atol=test.atol)
    except BsliteError as e:
        return f"{type(e).__name__}: {' '.join(str(e).split())[:230]}"
    except Exception as e:
        return f"!! {type(e).__name__}: {' '.join(str(e).split())[:300]}"
    return ""


def main() -> None:
    wanted = set(sys.argv[1:])
    by_op: dict[str, list[tuple[Tested, str]]] = collections.defaultdict(list)
    for tested in node_tests():
        if within_dtypes(tested.case) and (not wanted or tested.op in wanted):
            by_op[tested.op].append((tested, outcome(tested.case)))
    total = complete = 0
    for op, results in sorted(by_op.items(), key=lambda item: -len(item[1])):
        passed = sum(not why for _, why in results)
        total += passed
        complete += passed * (passed == len(results))
        print(f"{op}: {passed} of {len(results)}")
        for tested, why in results:
            if why:
                print(f"    {tested.case.name}: {why}")
    print(f"{total} passed, {complete} of them of operators that pass all")


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        main()
