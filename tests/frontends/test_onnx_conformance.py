"""ONNX's own node tests of every claimed operator, run by ONNX's own runner through the backend."""

import unittest

import pytest
from support.onnx_conformance import claimed_tests, node_cases, node_tests

from bslite.frontends.onnx.claims import CLAIMED, NOT_COMPARABLE
from bslite.onnx import backend

LEAST = 600  # tests that have to be claimed


def claimed_cases() -> type[unittest.TestCase]:
    """The runner's test class, of which only the claimed tests are left."""
    from onnx.backend.test import runner

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "load_model_tests", lambda kind: node_cases() if kind == "node" else [])
        suite = runner.Runner(backend.Backend, __name__)
    cases: type[unittest.TestCase] = suite.test_cases["OnnxBackendNodeModelTest"]
    wanted = {f"{t.case.name}_cpu" for t in claimed_tests()}
    for name in [n for n in vars(cases) if n.startswith("test_") and n not in wanted]:
        delattr(cases, name)
    missing = wanted - {n for n in vars(cases) if n.startswith("test_")}
    assert not missing, f"the runner has no tests {sorted(missing)[:5]}"
    return cases


# A reader of warnings would see those of the operators' own tests: dividing by zero and the like.
TestNodes = pytest.mark.filterwarnings("ignore::RuntimeWarning")(claimed_cases())


def test_enough_is_claimed() -> None:
    assert len(claimed_tests()) >= LEAST


def test_claims_name_operators_and_tests_that_exist() -> None:
    tests = node_tests()
    assert len(set(CLAIMED)) == len(CLAIMED)
    assert set(CLAIMED) <= {t.op for t in tests}
    assert set(NOT_COMPARABLE) <= {t.case.name for t in tests}


def test_most_claimed_tests_run_on_the_engine() -> None:
    """What depends on no input, or on shapes alone, is computed while the model is read: that is in the
    operator's nature (Shape, Range, ...), and must stay the exception.
    """
    computed = 0
    for t in claimed_tests():
        rep = backend.prepare(t.case.model)
        rep.run(list(t.case.data_sets[0][0]))
        computed += any(kept.spec is not None for kept in rep.kept())
    assert computed >= LEAST, f"{computed} of {len(claimed_tests())} run on the engine"
