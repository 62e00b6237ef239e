"""What the tests share: the error measure, the three-way check, and one-op models."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from bslite import ops, reference
from bslite.ops import Case, Op
from bslite.ops.sample import sample
from bslite.spec import Array, GraphBuilder, ModelSpec

#: Half a unit in the last place of float32: what two exact answers, each rounded once, may differ by.
TINY = 2.0**-24
#: Relative L2 within which two float64 computations of the same thing agree.
FLOAT64 = 1e-12


def same_specials(got: Array, want: Array) -> bool:
    """NaN and both infinities stand in the same places."""
    return all(np.array_equal(find(got), find(want)) for find in (np.isnan, np.isposinf, np.isneginf))


def rel_l2(got: Array, want: Array) -> float:
    """``|got - want| / |want|`` in L2; absolute where ``want`` is zero.

    Shapes must be equal; NaN and infinities must stand in the same places, and are left out of the norms.
    """
    assert got.shape == want.shape, f"got shape {got.shape}, expected {want.shape}"
    assert same_specials(got, want), "NaN or Inf in other places than expected"
    finite = np.isfinite(want)
    exact = np.asarray(want[finite], np.float64)
    error, size = np.linalg.norm(got[finite] - exact), np.linalg.norm(exact)
    return float(error / size if size else error)


def assert_three_way(got: Array, peer: Array, exact: Array, factor: float = 4.0, least: float = 0.0) -> None:
    """``got``, in float32, is as near to ``exact`` as ``peer``, another float32 result, up to ``factor``;
    integers and bools are equal. ``least``: an error of the peer's below which it was lucky.
    """
    if exact.dtype.kind != "f":
        assert got.dtype == exact.dtype, f"got {got.dtype}, expected {exact.dtype}"
        assert np.array_equal(got, exact), f"got {got}, expected {exact}"
        return
    assert got.dtype == np.float32, f"got {got.dtype}, expected float32"
    ours, theirs = rel_l2(got, exact), rel_l2(peer, exact)
    assert ours <= factor * max(theirs, least) + TINY, (
        f"relative error {ours:.3g}, the peer's is {theirs:.3g}"
    )


def arguments(op: Op, case: Case, seed: int = 0) -> tuple[list[Array], dict[str, Array], dict[str, Any]]:
    """Read-only inputs, parameters and parsed attributes of a sample case."""
    inputs, params = sample(op, case, seed)
    for array in (*inputs, *params.values()):
        array.setflags(write=False)
    return inputs, params, ops.parse_attrs(op, case.attrs)


def runs(op: Op, case: Case) -> tuple[list[Array], Callable[..., Array], bool]:
    """Inputs of a case, the reference as a function of inputs alone, and whether it makes integers."""
    inputs, params, attrs = arguments(op, case)
    dtypes = [x.dtype.name for x in inputs], {role: p.dtype.name for role, p in params.items()}

    def function(*given: Array) -> Array:
        return reference.call(op.name, given, params, attrs, np.float32)

    return inputs, function, op.dtype(*dtypes, attrs) in ops.INTEGERS


def unlike(x: Array, integers: bool) -> Array:
    """What spreads into all that reads it: NaN; ones where NaN is no number or cannot be an integer."""
    return np.full_like(x, np.nan if x.dtype == np.float32 and not integers else 1)


def all_cases(least_inputs: int = 0, names: Sequence[str] = ()) -> list[Any]:
    """Every op with every one of its cases, for ``pytest.mark.parametrize(("op", "case"), ...)``."""
    return [
        pytest.param(op, case, id=f"{op.name}: {case.label}")
        for op in ops.REGISTRY.values()
        if op.arity[0] >= least_inputs and (not names or op.name in names)
        for case in op.cases()
    ]


def single_op_spec(op: Op, case: Case, seed: int = 0) -> tuple[ModelSpec, list[Array]]:
    """A model of one node called "op_under_test", and its inputs.

    An op without inputs gets company, for a model needs an input: "sum" adds the model's input to it.
    """
    inputs, params = sample(op, case, seed)
    graph = GraphBuilder(f"{op.name}, {case.label}")
    graph.params.update(params)
    names = [graph.input(f"x{i}", x.shape, dtype=x.dtype.name) for i, x in enumerate(inputs)]
    out = graph.add(op.name, "op_under_test", *names, params={role: role for role in params}, **case.attrs)
    if not names:
        x = np.random.default_rng(seed).standard_normal(params["value"].shape)
        inputs = [np.asarray(x, np.float32)]
        out = graph.add("add", "sum", graph.input("x0", x.shape), out)
    return graph.build(out), inputs
